"""One training step on two views: encode, project, loss, backward, optimiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.distributed.data_parallel import data_parallel, explain_unused_parameters
from graphcl.errors import InputError
from graphcl.methods import Method, Outcome


class Step:
    """A method with its Adam optimiser; a call with two views runs one training step.

    Args:
        method: method to train, in place.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        clip_norm: largest allowed norm of the gradient; None disables clipping.
        amp: whether the forward pass uses bfloat16 autocast.
        generator: generator for the method's own random draws.
        deterministic: see `graphcl.distributed.data_parallel.data_parallel`.

    Raises:
        InputError: `clip_norm` is not above 0.
    """

    def __init__(
        self,
        method: Method,
        *,
        lr: float,
        weight_decay: float,
        clip_norm: float | None,
        amp: bool,
        generator: torch.Generator | None,
        deterministic: bool,
    ) -> None:
        if clip_norm is not None and not clip_norm > 0:  # a negative norm would flip the gradient's sign
            raise InputError(f"`clip_norm` must be above 0, or None, got {clip_norm}.")
        self.method, self.clip_norm, self.amp, self.generator = method, clip_norm, amp, generator
        self.parameters = [each for each in method.parameters() if each.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = torch.optim.Adam(self.parameters, lr=lr, weight_decay=weight_decay, fused=True)
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

    def update(self) -> None:
        """Run the optimiser step, then update the method's state (momentum encoder, queue or memory bank)."""
        self.optimiser.step()
        self.method.after_step()
