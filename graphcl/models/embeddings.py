"""Define embeddings in a form of their own, such as sparse rows, where a tensor `[B, H]` does not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor

Self = TypeVar("Self", bound="Embeddings")


class Embeddings(ABC):
    """Embeddings of B graphs in another form than a tensor `[B, H]`.

    The encoder is registered with the fact `form`, the form's name, and names the `ContrastiveModel` whose `encode`
    returns them as its attribute `contrasted_by`. Evaluators that take `matrix()` name the form in their fact `forms`.
    """

    form: ClassVar[str]
    """Name of the form; that of a tensor is `dense`."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of graphs, B."""

    @abstractmethod
    def __getitem__(self: Self, some: Any) -> Self:
        """Return the embeddings of some graphs: a slice, a number, several numbers or a mask."""

    @classmethod
    @abstractmethod
    def cat(cls: type[Self], parts: Sequence[Self]) -> Self:
        """Return the embeddings of several batches, one below the other."""

    @abstractmethod
    def cpu(self: Self) -> Self:
        """Return the embeddings on the CPU, without gradients."""

    @abstractmethod
    def finite(self) -> Tensor:
        """Return whether all values of each graph are finite, `[B]`."""

    @abstractmethod
    def spread(self: Self, places: Sequence[int] | np.ndarray, size: int) -> Self:
        """Return embeddings of `size` graphs: these at `places`, in this order, and empty ones of the others."""

    @abstractmethod
    def matrix(self) -> Any:
        """Return what evaluators of this form take."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return arrays for the folder of a run; those of two seeds differ in `h` only."""

    @abstractmethod
    def npz(self) -> dict[str, Any]:
        """Return the arrays for an .npz file of `graphcl embed`."""

    @abstractmethod
    def arrow(self) -> dict[str, Any]:
        """Return columns of PyArrow, for a Parquet file of `graphcl embed`."""


def arrays_of(h: Tensor | Embeddings) -> dict[str, np.ndarray]:
    """Return the arrays of embeddings for the folder of a run: `h`, and others that are equal for all seeds."""
    return h.arrays() if isinstance(h, Embeddings) else {"h": h.numpy()}
