"""Data structures for loss formulas: `Pairs` holds anchors and positives, and reduces over each anchor's negatives.

Two engines implement the reductions, with equal values and gradients: `dense` holds all similarities in memory, `tiled`
computes them in tiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from graphcl.losses.engine.exponent import Coefficients, Exponent

Similarity = Literal["cosine", "dot", "squared_distance"]
Mask = Literal["diagonal", "ids"]
"""Rule that excludes pairs from the negatives: `diagonal` excludes rows of equal index, `ids` rows of equal id."""
RowFunction = Callable[..., Tensor]
"""Function `(row, *per_anchor) -> [T]` that reduces a `Row` of T anchors to one number per anchor."""


@dataclass(frozen=True)
class Comparison:
    """Sets of rows to compare: anchors, and keys that can be negatives of the anchors.

    Args:
        sets: tensors of rows `[., D]`: first view, second view, the queue if there is one, then rows of other ranks
            (see `with_keys`). For the cosine, rows have norm 1.
        key_sets: one entry per set of anchors (set 0, or sets 0 and 1). Each entry lists pairs of an index into `sets`,
            which selects keys, and a mask, which excludes some of the keys.
        similarity: similarity function of two rows.
        ids: ids of the anchors `[N]` and of the queue's rows `[Q]`, for the mask `ids`.
    """

    sets: tuple[Tensor, ...]
    key_sets: tuple[tuple[tuple[int, Mask | None], ...], ...]
    similarity: Similarity = "cosine"
    ids: tuple[Tensor, Tensor] | None = None

    @property
    def batch_sets(self) -> list[int]:
        """Indices of the views that provide keys; empty if all keys come from the queue."""
        return sorted({keys for key_sets in self.key_sets for keys, mask in key_sets if mask == "diagonal"})

    @property
    def bound(self) -> float:
        """Bound on the magnitude of the entries: with larger ones, sums of products could overflow."""
        if self.similarity == "cosine":
            return torch.inf
        return 1e149 if self.sets[0].dtype == torch.float64 else 1e14

    def with_keys(self, others: Mapping[int, Tensor]) -> Comparison:
        """Return a copy whose key sets also include rows from other ranks.

        `others` maps each index in `batch_sets` to the rows of this set on the other ranks, `[., D]`.
        """
        numbers = {number: len(self.sets) + place for place, number in enumerate(others)}

        def extended(key_sets: tuple[tuple[int, Mask | None], ...]) -> Iterator[tuple[int, Mask | None]]:
            for keys, mask in key_sets:
                yield keys, mask
                if mask == "diagonal":
                    yield numbers[keys], None

        return replace(
            self,
            sets=(*self.sets, *others.values()),
            key_sets=tuple(tuple(extended(each)) for each in self.key_sets),
        )

    def same_ids(self, rows: slice = slice(None), keys: slice = slice(None)) -> Tensor:
        """Return a mask `[rows, keys]` that is True where an anchor and a row of the queue have the same id."""
        assert self.ids is not None
        return self.ids[0][rows, None] == self.ids[1][None, keys]


@dataclass(frozen=True)
class Row:
    """The similarities of T anchors with their negatives, as a matrix.

    Args:
        value: similarities `[T, M]`; squared distances in float64.
        kept: mask that is True for negatives, `[T, M]`; None if all entries are negatives.
    """

    value: Tensor
    kept: Tensor | None = None

    @property
    def count(self) -> Tensor | float:
        """Number of negatives of each anchor, at least 1, `[T, 1]`; one float if no entry is masked."""
        return float(self.value.size(1)) if self.kept is None else self.kept.sum(1, keepdim=True).clamp(min=1)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sums `[T]` of `values [T, M]` over each anchor's negatives."""
        return (values if self.kept is None else values.where(self.kept, 0)).sum(dim=1)

    def mean(self, values: Tensor) -> Tensor:
        """Return the means `[T]` of `values [T, M]` over each anchor's negatives."""
        return self.sum(values / self.count)

    def filled(self, values: Tensor, filler: float) -> Tensor:
        """Return `values [T, M]` with `filler` in the entries that are not negatives."""
        return values if self.kept is None else values.masked_fill(~self.kept, filler)

    def logsumexp(self, values: Tensor) -> Tensor:
        """Return the logsumexps `[T]` of `values [T, M]` over each anchor's negatives.

        For an anchor without negatives the result is 0, with a zero gradient.
        """
        if self.kept is None:
            return values.logsumexp(dim=1)
        none = ~self.kept.any(dim=1)
        # Do not mask rows without negatives: a row of only -inf would have a gradient of NaN.
        result = values.masked_fill(~(self.kept | none[:, None]), -torch.inf).logsumexp(dim=1)
        return result.masked_fill(none, 0.0)


class Pairs(ABC):
    """Base class for A anchors and their positives, with reductions over each anchor's negatives.

    Args:
        comparison: sets of anchors and keys to compare.

    Attributes:
        positive: similarity of each anchor to its positive, `[A]`.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        a, b = comparison.sets[:2]
        squared_distance = comparison.similarity == "squared_distance"
        positive = (a - b).square().sum(dim=1) if squared_distance else (a * b).sum(dim=1)
        self.positive = torch.cat([positive] * len(comparison.key_sets))

    @property
    def anchor(self) -> Tensor:
        """Row of each anchor, `[A, D]`."""
        return torch.cat([self.comparison.sets[number] for number in range(len(self.comparison.key_sets))])

    @property
    def partner(self) -> Tensor:
        """Row of each anchor's positive, `[A, D]`."""
        return torch.cat([self.comparison.sets[1 - number] for number in range(len(self.comparison.key_sets))])

    @property
    def count(self) -> Tensor:
        """Number M of negatives of each anchor, `[A]`, as floating point; 1 for an anchor without negatives."""
        return self._count.clamp(min=1)

    @property
    def isolated(self) -> Tensor:
        """Mask `[A]`, True for anchors without negatives (only possible with ids). All reductions return 0 for them."""
        return self._count == 0

    @property
    @abstractmethod
    def _count(self) -> Tensor:
        """Number of negatives of each anchor, `[A]`, as floating point."""

    @abstractmethod
    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        r"""Return, for each exponent P, the logsumexps `[A]` $\log \sum_j e^{P(c_{ij})}$.

        Here c_ij is the similarity of anchor i and its negative j.
        """

    @abstractmethod
    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        r"""Return the weighted mean of each anchor's similarities, and the log of the sum of the weights, `[A]` each.

        The results are $\sum_j w_j c_j / \sum_j w_j$ and $\log \sum_j w_j$. Here c_j is the similarity of an anchor and
        its negative j, and w_j = e^{P(c_j)} is its weight, with P = `exponent`. The weights are detached.
        """

    @abstractmethod
    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function(row, *per_anchor) -> [T]` to chunks of T anchors and return the results, `[A]`.

        Use this method for reductions that the other methods do not cover.

        Args:
            function: reduction of the chunk's `Row` and of the chunk's entries of each tensor in `per_anchor`.
            *per_anchor: tensors with one entry per anchor, `[A]`.
        """

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and population variance of each anchor's similarities to its negatives, `[A]` each."""
        mean = self.rows(lambda row: row.mean(row.value))
        return mean, self.rows(lambda row, mean: row.mean((row.value - mean[:, None]).square()), mean)


def similarities(x: Tensor, y: Tensor, similarity: Similarity) -> Tensor:
    """Return the similarities `[R, C]` of all rows of `x [R, D]` and all rows of `y [C, D]`; distances in float64."""
    if similarity != "squared_distance":
        return x @ y.T
    # For close rows the squares cancel, and for short ones they underflow, so compute in float64. Distances do not
    # depend on the origin, so move it to the mean of `y`, which reduces the cancellation further.
    x, y = x.double(), y.double()
    origin = y.detach().mean(dim=0)
    x, y = x - origin, y - origin
    squares = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return (squares - 2 * x @ y.T).clamp(min=0)


@dataclass(frozen=True)
class Sums:
    """Description of the sums over negatives that the tiles compute.

    Args:
        comparison: sets of anchors and keys, detached.
        exponents: one exponent P for each sum of e^P.
        expected: whether the mean similarities with weights e^P are wanted, instead of the sums; weights are constants.
    """

    comparison: Comparison
    exponents: tuple[Exponent, ...]
    expected: bool

    @property
    def slopes(self) -> list[Coefficients]:
        """Coefficients of P', for each exponent P; of the constant 1 for the mean similarities.

        For anchor i and similarity c_ij, d total_i / d c_ij = e^(P - total_i) P', and d mean_i / d c_ij =
        e^(P - total_i), with total_i the logsumexp.
        """
        return [(1.0,) if self.expected else exponent.slope for exponent in self.exponents]


class Tiles(Protocol):
    """Interface of the modules that compute sums and their gradients tile by tile."""

    def forward(self, sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
        """Return two sums over the negatives of each anchor, for each of the K exponents P of `sums`.

        Returns:
            The logs of the sums of e^P, and the means of the similarities with weights e^P. Each list has one tensor
            `[K, N]` per set of N anchors. The means are valid only if `sums.expected`.
        """

    def backward(
        self, sums: Sums, totals: list[Tensor], upstream: list[Tensor], wanted: list[bool]
    ) -> list[Tensor | None]:
        """Return the gradient with respect to each set of rows.

        Args:
            sums: sums to differentiate.
            totals: logsumexps returned by `forward`.
            upstream: gradients with respect to the means if `sums.expected`, else to the logsumexps; `[K, N]` for each
                set of anchors.
            wanted: whether the gradient of each set is needed; the result is None if not.
        """
