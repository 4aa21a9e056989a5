"""Run one training step on two views: encode, project, loss, backward, optimiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.distributed.data_parallel import data_parallel, explain_unused_parameters
from graphcl.methods import Method, Outcome
from graphcl.training.optimiser import OptimizerName, make_optimizer


class Step:
    """A method with its optimiser; a call with two views runs one training step.

    Args:
        method: method to train, in place.
        optimizer: name of the optimiser.
        lr: learning rate.
        weight_decay: see `make_optimizer`.
        clip_norm: largest allowed norm of the gradient; None disables clipping.
        amp: whether the forward pass uses bfloat16 autocast.
        generator: generator for the method's own random draws.
        deterministic: see `graphcl.distributed.data_parallel.data_parallel`.
    """

    def __init__(
        self,
        method: Method,
        *,
        optimizer: OptimizerName,
        lr: float,
        weight_decay: float,
        clip_norm: float | None,
        amp: bool,
        generator: torch.Generator | None,
        deterministic: bool,
    ) -> None:
        method.to(next(method.model.parameters()).device)  # the modules that the method added to the model
        self.method, self.clip_norm, self.amp, self.generator = method, clip_norm, amp, generator
        self.parameters = [each for each in method.parameters() if each.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = make_optimizer(optimizer, self.parameters, lr, weight_decay)
        self._parallel = data_parallel(method, self.device, deterministic)

    def __call__(self, view1: Batch, view2: Batch, ids: Tensor | None) -> Outcome:
        """Run forward, backward and update on two views, and return the method's outcome."""
        outcome = self.forward(view1, view2, ids)
        self.backward(outcome.loss)
        self.update()
        return outcome

    def forward(self, view1: Batch, view2: Batch, ids: Tensor | None) -> Outcome:
        """Encode and project both views, compute the loss, and return the method's outcome."""
        with explain_unused_parameters(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp):
            outcome: Outcome = self._parallel(view1, view2, ids=ids, generator=self.generator)
        return outcome

    def backward(self, loss: Tensor) -> Tensor | None:
        """Compute the gradient of `loss` and clip it; return its norm before clipping, or None without clipping."""
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return None if self.clip_norm is None else nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimiser.param_groups:
            group["lr"] = lr

    def update(self) -> None:
        """Run the optimiser step, then update the method's state (momentum encoder, queue or memory bank)."""
        self.optimiser.step()
        self.method.after_step()
