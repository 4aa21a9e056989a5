"""The class `Loss`: a PyTorch module that computes a registered loss with fixed arguments."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcl.arguments import named_arguments
from graphcl.errors import InputError
from graphcl.losses.engine.pairwise import total
from graphcl.registry import losses


class Loss(nn.Module):
    """PyTorch module that computes a registered loss with fixed arguments.

    Args:
        name: registered name, such as `"adnce"`.
        **arguments: keyword arguments of the loss function, checked here and not again in each call.

    Raises:
        InputError: an unknown name, an unknown argument, a value out of range.

    Example:
        >>> Loss("adnce", mu=0.5)
        Loss(adnce, mu=0.5)
    """

    @named_arguments
    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        if found := losses.problems(name, arguments):
            raise InputError(" ".join(found))
        self.name, self.arguments = name, arguments

    if TYPE_CHECKING:  # the annotation of nn.Module.__call__ is Any

        def __call__(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
            """Compute the loss, see `forward`."""

    def forward(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
        """Return the loss of two views.

        Args:
            z1: projections of the first view, `[N, D]`.
            z2: projections of the second view, `[N, D]`.
            **others: tensors such as `queue` or `weight`, and arguments that override the fixed ones in this call.

        Returns:
            A scalar, or `[A]` with `reduction="none"`.
        """
        loss: Any = losses[self.name]
        arguments = self.arguments | others
        if others.keys() - losses.arguments(self.name).tensors:  # settings of this call only are checked here
            return loss(z1, z2, **arguments)
        if not hasattr(loss, "formula"):
            return loss.__wrapped__(z1, z2, **arguments)
        # The steps of the function `loss`, inlined so that a debugger steps from here into the formula.
        pairs, own, given = loss.compare(z1, z2, **arguments)
        with torch.autocast(z1.device.type, enabled=False):
            return total(loss.formula(pairs, **own), pairs, given)

    def with_settings(self, **settings: Any) -> Loss:
        """Return a copy with these settings, checked here and not again in each call."""
        changed = copy.copy(self)
        changed.arguments = Loss(self.name, **self.arguments | settings).arguments
        return changed

    def accepts(self, argument: str) -> bool:
        """Return whether the loss takes `argument`, a setting or a tensor (`queue`, `weight`, `labels`)."""
        known = losses.arguments(self.name)
        return argument in known.defaults or argument in known.tensors

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """Return the value of `argument`: the given value or the default; `otherwise` if the loss does not take it."""
        return self.arguments.get(argument, losses.arguments(self.name).defaults.get(argument, otherwise))

    def extra_repr(self) -> str:
        """Return the name and the arguments of the loss, for `repr`."""
        return ", ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
