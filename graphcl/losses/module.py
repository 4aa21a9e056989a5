"""A loss as a module: it only holds the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from graphcl.errors import InputError
from graphcl.registry import losses


class Loss(nn.Module):
    """A registered loss with its arguments.

    Args:
        name: the registered name, such as `"adnce"`.
        **arguments: keyword arguments of the loss function, checked here once.

    Raises:
        InputError: an unknown name (the message lists the valid ones), an unknown argument, a value out of range.

    Example:
        >>> Loss("adnce", mu=0.5)
        Loss(adnce, mu=0.5)
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        if found := losses.problems(name, arguments):
            raise InputError(" ".join(found))
        self.name, self.arguments = name, arguments

    if TYPE_CHECKING:  # torch's own gives Any

        def __call__(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
            """See `forward`."""

    def forward(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
        """The loss of projections `[N, D]` of two views.

        Args:
            z1: projections of the first view.
            z2: projections of the second view.
            **others: tensors that the loss takes besides, such as a queue, and arguments to override.
        """
        loss: Tensor = losses[self.name](z1, z2, **self.arguments | others)
        return loss

    def accepts(self, argument: str) -> bool:
        """Whether the loss has an argument of that name: a setting, or a tensor such as `queue`, `weight`, `labels`."""
        known = losses.arguments(self.name)
        return argument in known.defaults or argument in known.tensors

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """The value of an argument, given or default; `otherwise` where the loss has none of that name."""
        return self.arguments.get(argument, losses.arguments(self.name).defaults.get(argument, otherwise))

    def extra_repr(self) -> str:
        """Name and arguments."""
        return ", ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
