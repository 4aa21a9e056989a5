"""A loss as a module: it only holds the arguments."""

from __future__ import annotations

from typing import Any

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

    def forward(self, z1: Tensor, z2: Tensor, **data: Tensor | None) -> Tensor:
        """The loss of projections `[N, D]` of two views; `data` are tensors that it takes besides, such as a queue."""
        loss: Tensor = losses[self.name](z1, z2, **self.arguments, **data)
        return loss

    def extra_repr(self) -> str:
        """Name and arguments."""
        return ", ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
