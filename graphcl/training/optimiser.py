"""Update weights by Adam, AdamW or SGD with momentum 0.9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from graphcl.training.settings import TrainingSettings


class Optimiser:
    """An optimiser of `torch.optim`, with less work for each step on the CPU.

    In each step, `torch.optim` collects parameters, gradients and state, and checks them. For a small model, this takes
    several times as long as the update. Here, Adam and AdamW collect them once and call the same fused operation.

    Args:
        settings: optimiser, learning rate and weight decay. Scalars, a learned temperature, have no weight decay.
        parameters: weights to update, on one device.

    Attributes:
        torch: the optimiser of `torch.optim`, with the state.
    """

    def __init__(self, settings: TrainingSettings, parameters: Sequence[Tensor]) -> None:
        scalars = [parameter for parameter in parameters if parameter.dim() == 0]
        groups: list[dict[str, Any]] = [{"params": [parameter for parameter in parameters if parameter.dim()]}]
        if scalars:
            groups.append({"params": scalars, "weight_decay": 0.0})
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        more: dict[str, Any] = {"momentum": 0.9} if settings.optimizer == "sgd" else {"capturable": settings.capture}
        # A CUDA graph reads the rate of each replay from the device.
        lr: Any = torch.tensor(settings.lr, device=parameters[0].device) if settings.capture else settings.lr
        kind: Any = kinds[settings.optimizer]
        self.torch: torch.optim.Optimizer = kind(groups, lr=lr, weight_decay=settings.weight_decay, fused=True, **more)
        usual = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)
        updates: dict[str, Any] = {"adam": torch._fused_adam_, "adamw": torch._fused_adamw_}
        self._update = updates.get(settings.optimizer) if usual else None
        self._parameters = parameters
        self._steps: Tensor | None = None  # `[P]`, number of steps of each parameter
        self._lists: list[tuple[dict[str, Any], list[list[Tensor]]]] = []  # state by group

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights."""
        has_hooks = _global_optimizer_pre_hooks or _global_optimizer_post_hooks
        if self._steps is None or has_hooks or any(parameter.grad is None for parameter in self._parameters):
            self.torch.step()
            if self._steps is None and self._update is not None and len(self.torch.state) == len(self._parameters):
                self._collect()
            return
        self._steps += 1
        for group, (parameters, means, squares, steps) in self._lists:
            gradients = [parameter.grad for parameter in parameters]
            beta1, beta2 = group["betas"]
            rule = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
            self._update(parameters, gradients, means, squares, [], steps, beta1=beta1, beta2=beta2, **rule)  # type: ignore[misc]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `torch.state_dict()`, but keep the current learning rates."""
        rates = [group["lr"] for group in self.torch.param_groups]  # of steps that `capture` reads on the device
        self.torch.load_state_dict(state)
        for group, rate in zip(self.torch.param_groups, rates, strict=True):
            group["lr"] = rate
        self._steps = None

    def _collect(self) -> None:
        """Keep lists of the state, and make the numbers of steps views of one tensor that `step` increments."""
        state = self.torch.state
        self._steps, self._lists = torch.stack([state[parameter]["step"] for parameter in self._parameters]), []
        for parameter, step in zip(self._parameters, self._steps, strict=True):
            state[parameter]["step"] = step
        for group in self.torch.param_groups:
            lists = [[state[p][key] for p in group["params"]] for key in ("exp_avg", "exp_avg_sq", "step")]
            self._lists.append((group, [group["params"], *lists]))
