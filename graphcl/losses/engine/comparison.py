"""What a loss is given: anchors with their positives, and ways to reduce each anchor's negatives to a number.

Two engines provide the reductions with the same values and gradients: `dense` holds all similarities at once, `tiled`
never does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from graphcl.losses.engine.exponent import Exponent

Similarity = Literal["cosine", "dot", "squared_distance"]
LeftOut = Literal["diagonal", "ids"]


@dataclass(frozen=True)
class Comparison:
    """Who is compared with whom.

    Args:
        sets: rows `[., D]` of the first view, of the second and, if there is one, of the queue, then those of other
            ranks, see `joined`; of length 1 where the similarity is the cosine.
        against: for each set of anchors (0, or 0 and 1) the sets its negatives come from, and which pairs are left
            out: those of equal position, or those of equal id.
        similarity: what is computed of two rows.
        ids: ids of the anchors `[N]` and of the queue's rows `[Q]`, where pairs are left out by id.
    """

    sets: tuple[Tensor, ...]
    against: tuple[tuple[tuple[int, LeftOut | None], ...], ...]
    similarity: Similarity = "cosine"
    ids: tuple[Tensor, Tensor] | None = None

    @property
    def of_batch(self) -> list[int]:
        """The sets of the batch that give keys: of both views, of one, or (the queue gives them all) of none."""
        return sorted({keys for against in self.against for keys, left_out in against if left_out == "diagonal"})

    def joined(self, others: Mapping[int, Tensor], own: bool = True) -> Comparison:
        """The same anchors with more keys: those of other ranks, beside the batch's sets that they belong to.

        Args:
            others: the number of each set `of_batch`, and rows of it that lie on other ranks `[., D]`.
            own: whether what the anchors were compared with stays.
        """
        numbers = {number: len(self.sets) + place for place, number in enumerate(others)}

        def of(against: tuple[tuple[int, LeftOut | None], ...]) -> Iterator[tuple[int, LeftOut | None]]:
            for keys, left_out in against:
                if own:
                    yield keys, left_out
                if left_out == "diagonal":
                    yield numbers[keys], None

        return replace(
            self,
            sets=(*self.sets, *others.values()),
            against=tuple(tuple(of(each)) for each in self.against),
            ids=self.ids if own else None,
        )

    def same_ids(self, rows: slice = slice(None), keys: slice = slice(None)) -> Tensor:
        """Which of the queue's rows have an anchor's id, `[rows, keys]`."""
        assert self.ids is not None
        return self.ids[0][rows, None] == self.ids[1][None, keys]

    def count(self, anchors: int) -> Tensor:
        """How many negatives each anchor of a set has, `[N]` in the sets' dtype."""
        rows = self.sets[anchors]
        total = sum(self.sets[keys].size(0) - int(left_out == "diagonal") for keys, left_out in self.against[anchors])
        count = rows.new_full((rows.size(0),), total)
        return count if self.ids is None else count - _occurrences(*self.ids)


@dataclass(frozen=True)
class Row:
    """The negatives of some anchors, laid out.

    Args:
        value: similarities `[T, M]`.
        kept: which of them count, `[T, M]`, or None where all do.
    """

    value: Tensor
    kept: Tensor | None = None

    @property
    def count(self) -> Tensor | float:
        """How many count, `[T, 1]`, at least 1 so that it can be divided by."""
        return float(self.value.size(1)) if self.kept is None else self.kept.sum(1, keepdim=True).clamp(min=1)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over an anchor's negatives of `values [T, M]`: `[T]`."""
        return (values if self.kept is None else values.where(self.kept, 0)).sum(dim=1)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over an anchor's negatives of `values [T, M]`: `[T]`."""
        return self.sum(values / self.count)

    def filled(self, values: Tensor, filler: float) -> Tensor:
        """`values`, with a filler for those that do not count."""
        return values if self.kept is None else values.masked_fill(~self.kept, filler)

    def logsumexp(self, values: Tensor) -> Tensor:
        """Logsumexp over an anchor's negatives: `[T]`, 0 without a gradient where there are none."""
        if self.kept is None:
            return values.logsumexp(dim=1)
        none = ~self.kept.any(dim=1)
        # A row of -inf alone would give NaN as its gradient.
        result = values.masked_fill(~(self.kept | none[:, None]), -torch.inf).logsumexp(dim=1)
        return result.masked_fill(none, 0.0)


Reduction = Callable[..., Tensor]


class Pairs(ABC):
    """Anchors, their positives, and reductions over their negatives.

    Args:
        comparison: who is compared with whom.

    Attributes:
        positive: similarity of each anchor with its positive, `[A]`.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        a, b = comparison.sets[:2]
        squared_distance = comparison.similarity == "squared_distance"
        positive = (a - b).square().sum(dim=1) if squared_distance else (a * b).sum(dim=1)
        self.positive = torch.cat([positive] * len(comparison.against))

    @property
    def anchor(self) -> Tensor:
        """The anchors' rows `[A, D]`."""
        return torch.cat([self.comparison.sets[number] for number in range(len(self.comparison.against))])

    @property
    def partner(self) -> Tensor:
        """The rows of the anchors' positives `[A, D]`."""
        return torch.cat([self.comparison.sets[1 - number] for number in range(len(self.comparison.against))])

    @property
    def count(self) -> Tensor:
        """Number of negatives of each anchor, M, `[A]` in the similarities' dtype; 1 where there is none."""
        return self._count.clamp(min=1)

    @property
    def alone(self) -> Tensor:
        """Which anchors have no negative, `[A]`: possible only where ids leave keys out. Their reductions are 0."""
        return self._count == 0

    @property
    def _count(self) -> Tensor:
        return torch.cat([self._count_of(anchors) for anchors in range(len(self.comparison.against))])

    def _count_of(self, anchors: int) -> Tensor:
        return self.comparison.count(anchors)

    @abstractmethod
    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        r"""$\log \sum_j e^{P(c_{ij})}$ over each anchor's negatives: `[A]` for each exponent P."""

    @abstractmethod
    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        r"""Mean similarity under weights: $\sum_j w_j c_j / \sum_j w_j$ and $\log \sum_j w_j$, with w = e^{P(c)}.

        The weights are constants to the gradient.
        """

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and population variance of each anchor's negative similarities: `[A]` both."""

    @abstractmethod
    def rows(self, function: Reduction, *per_anchor: Tensor) -> Tensor:
        """Any other reduction: `function(row, *those of the anchors)` -> `[T]`, for some anchors at a time: `[A]`."""


def similarities(x: Tensor, y: Tensor, similarity: Similarity) -> Tensor:
    """Of each row of `x [R, D]` with each of `y [C, D]`: `[R, C]`."""
    if similarity != "squared_distance":
        return x @ y.T
    # Distances do not depend on the origin; near the rows, little cancels.
    origin = y.detach().mean(dim=0)
    x, y = x - origin, y - origin
    squares = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
    return (squares - 2 * x @ y.T).clamp(min=0)


def _occurrences(ids: Tensor, among: Tensor) -> Tensor:
    """How often each of `ids` occurs among others, without comparing all of them with all."""
    ordered = among.sort().values
    return torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids)
