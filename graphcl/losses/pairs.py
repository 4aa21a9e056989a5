"""Pairs of anchors, positives and negatives, which loss formulas reduce.

Two engines hold the negatives, with equal values and gradients: `dense` (`graphcl.losses.dense`) holds all similarities
at once, `tiled` (`graphcl.losses.tiled`) computes them in tiles.

Many losses are a (weighted) logsumexp of the negatives minus the positive. They sum exp(P(c)) over the negatives. The
exponent P is a polynomial of the similarity c, such as c / tau (InfoNCE), the logarithm of a Gaussian (ADNCE), or their
sum. Part of P can be detached. The engines need no other description of such a loss.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from graphcl.errors import InputError

Similarity = Literal["cosine", "dot", "squared_distance"]
Mask = Literal["diagonal", "ids"]
"""Rule that excludes pairs from the negatives: `diagonal` excludes rows of equal index, `ids` rows of equal id."""
KeySet = tuple[int, Mask | None]
"""Index of a set of rows that are keys, and the mask that excludes some of them."""
RowFunction = Callable[..., Tensor]
"""Function `(row, *per_anchor) -> [T]` that reduces a `Row` of T anchors to one number per anchor."""
Coefficients = tuple[float, ...]
"""Coefficients of a polynomial; those that depend on a learned temperature are scalar tensors."""
Value = TypeVar("Value", float, Tensor)


@dataclass(frozen=True)
class Exponent:
    r"""The polynomial $P(c) = \sum_k (\text{free}_k + \text{frozen}_k)\,(c - \text{center})^k$.

    Here c is the similarity. Only the terms in `free` are differentiated. Exponents can be added:
    `linear(5.0) + gaussian(0.7, 1.0, frozen=True)`.

    Args:
        free: coefficients of the part with a gradient, lowest power first, degree at most 4.
        frozen: coefficients of the detached part, lowest power first, degree at most 4.
        center: origin of the powers. Use the mean of a narrow Gaussian: powers of c itself would suffer cancellation.
    """

    free: Coefficients
    frozen: Coefficients = ()
    center: float = 0.0

    def __post_init__(self) -> None:
        if max(len(self.free), len(self.frozen)) > 5:
            raise InputError(f"an exponent must have degree 4 or less, got {self}.")

    def __add__(self, other: Exponent) -> Exponent:
        # Keep the center of the exponent of higher degree, whose coefficients are smallest about its own center.
        if len(other.total) > len(self.total):
            return other + self
        free, frozen = (
            _sum(mine, _shifted(theirs, self.center - other.center))
            for mine, theirs in ((self.free, other.free), (self.frozen, other.frozen))
        )
        return Exponent(free, frozen, self.center)

    @property
    def total(self) -> Coefficients:
        """Coefficients of P: the sum of `free` and `frozen`."""
        return _sum(self.free, self.frozen)

    @property
    def slope(self) -> Coefficients:
        """Coefficients of the derivative of the part `free`, in powers of c - `center`."""
        return tuple(k * value for k, value in enumerate(self.free) if k > 0)

    @property
    def is_learned(self) -> bool:
        """Whether a coefficient depends on a learned temperature."""
        return any(isinstance(value, Tensor) for value in self.free)

    def constant(self) -> Exponent:
        """Return the exponent with plain numbers as coefficients; waits for the device if the exponent is learned."""
        if not self.is_learned:
            return self
        free = (float(value.detach()) if isinstance(value, Tensor) else value for value in self.free)
        return Exponent(tuple(free), self.frozen, self.center)

    def varied(self, total: Tensor, mean: Tensor) -> Tensor:
        r"""Return the logsumexps `total [A]` with a gradient by learned coefficients of degree 0 and 1.

        The derivative by the coefficient of $(c - \text{center})^k$ is the mean of this power with weights e^P. `mean
        [A]` is the mean of c, see `Pairs.expectation`.
        """
        for coefficient, power in zip(self.free, (1.0, mean - self.center), strict=False):
            if isinstance(coefficient, Tensor):
                total = total + (coefficient - coefficient.detach()) * power
        return total

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether |P| < 60 on all cosines, by a bound. A float32 sum of a million terms e^P is then finite."""
        return horner(tuple(map(abs, self.total)), 65 / 64 + abs(self.center)) < 60

    def __call__(self, similarity: Tensor) -> Tensor:
        """Return P(c) for each entry of `similarity`. Only the part `free` is differentiated."""
        offset = similarity - self.center if self.center else similarity
        value = horner(self.free, offset)
        return value + horner(self.frozen, offset.detach()) if self.frozen else value


def linear(factor: float) -> Exponent:
    """Return the exponent `factor * c`; `linear(1 / temperature)` is the exponent of InfoNCE."""
    return Exponent((0.0, factor))


def gaussian(mu: float, sigma: float, frozen: bool = True) -> Exponent:
    r"""Return the exponent $-(c - \mu)^2 / 2 \sigma^2$, the logarithm of a Gaussian of the similarity c."""
    coefficients = (0.0, 0.0, -min(0.5 / sigma / sigma, 1e25))
    return Exponent((), coefficients, mu) if frozen else Exponent(coefficients, (), mu)


def horner(coefficients: Coefficients, x: Value) -> Value:
    """Return the polynomial with these coefficients (lowest power first) evaluated at `x`, in the shape of `x`."""
    value: float | Value = coefficients[-1] if coefficients else 0.0
    for coefficient in reversed(coefficients[:-1]):
        value = value * x
        if isinstance(coefficient, Tensor) or coefficient:  # the truth of a tensor would wait for the device
            value = value + coefficient
    if isinstance(x, Tensor) and not isinstance(value, Tensor):
        return torch.full_like(x, value)
    return value


def _sum(a: Coefficients, b: Coefficients) -> Coefficients:
    return tuple(x + y for x, y in itertools.zip_longest(a, b, fillvalue=0.0))


def _shifted(coefficients: Coefficients, delta: float) -> Coefficients:
    """Return the coefficients of the same polynomial in powers about a center shifted by `delta`."""
    n = len(coefficients)
    return tuple(
        sum(coefficients[k] * math.comb(k, power) * delta ** (k - power) for k in range(power, n)) for power in range(n)
    )


@dataclass(frozen=True)
class Comparison:
    """Sets of rows to compare: anchors, and keys that can be negatives of the anchors.

    Args:
        sets: tensors of rows `[., D]`: first view, second view, the queue if there is one, then rows of other ranks.
            For the cosine, rows have norm 1. Explicit negatives may be `[A, M, D]`, M keys of each anchor.
        key_sets: for each set of anchors (set 0, or sets 0 and 1), the sets of keys.
        similarity: similarity function of two rows.
        ids: ids of the anchors `[N]` and of the queue's rows `[Q]`, for the mask `ids`.
        positive: similarity of each anchor to its positive, `[A]`, or None to compute it from the rows.
    """

    sets: tuple[Tensor, ...]
    key_sets: tuple[tuple[KeySet, ...], ...]
    similarity: Similarity = "cosine"
    ids: tuple[Tensor, Tensor] | None = None
    positive: Tensor | None = None

    def same_ids(self, rows: slice = slice(None), keys: slice = slice(None)) -> Tensor:
        """Return a mask `[rows, keys]` that is True where an anchor and a row of the queue have the same id."""
        assert self.ids is not None
        return self.ids[0][rows, None] == self.ids[1][None, keys]

    def similarities(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the similarities `[R, C]` of the rows `x [R, D]` and `y [C, D]` or `[R, C, D]`; distances in float64.

        For close rows the squares of a distance cancel, and for short ones they underflow, hence float64.
        """
        if self.similarity != "squared_distance":
            return x @ y.T if y.dim() == 2 else torch.einsum("ad,amd->am", x, y)
        x, y = x.double(), y.double()
        if y.dim() == 3:
            return (x[:, None] - y).square().sum(dim=2)
        # Distances do not depend on the origin, so move it to the mean of `y`, which reduces the cancellation further.
        origin = y.detach().mean(dim=0)
        x, y = x - origin, y - origin
        squares = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)
        return (squares - 2 * x @ y.T).clamp(min=0)

    def row(self) -> Row:
        """Return the similarities of all anchors with their negatives.

        The matrix contains no entry for an anchor with itself or with its positive. Only rows of the queue with the
        anchor's id are masked.
        """
        batch: dict[tuple[int, int], Tensor] = {}  # indices of the anchors and of the keys -> similarities
        parts, rest = [], []
        for anchors, of_anchors in enumerate(self.key_sets):
            blocks = []
            for keys, mask in of_anchors:
                if mask != "diagonal":
                    blocks.append(self.similarities(self.sets[anchors], self.sets[keys]))
                elif (keys, anchors) in batch:  # two directions of the same pairs cost one product
                    batch[anchors, keys] = batch[keys, anchors].T
                else:
                    batch[anchors, keys] = self.similarities(self.sets[anchors], self.sets[keys])
            if blocks:
                rest.append(torch.cat(blocks, dim=1))
        if batch:
            graphs = off_diagonal(torch.stack([*batch.values()])).unflatten(0, (len(self.key_sets), -1))
            parts.append(graphs.transpose(1, 2).flatten(2).flatten(0, 1))
        if rest:
            parts.append(torch.cat(rest))
        value = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        kept = None
        if self.ids is not None:  # of the queue, which comes last
            different = (~self.same_ids()).repeat(len(self.key_sets), 1)
            kept = torch.nn.functional.pad(different, (value.size(1) - different.size(1), 0), value=True)
        return Row(value, kept)


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

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """Return weighted means and logs of the sums of weights, `[T]` each, see `Pairs.expectation`."""
        # Mask before the softmax: a masked entry could dominate the softmax or overflow, and inf * 0 is NaN.
        log_weight = self.filled(exponent(self.value.detach()), -torch.inf)
        # The softmax of a row without negatives is NaN, so set it to 0.
        weight = log_weight.softmax(dim=1).nan_to_num(0.0)
        return self.sum(weight * self.value), self.logsumexp(log_weight)


class Pairs(ABC):
    """Anchors and their positives, with reductions over each anchor's negatives. Subclasses are the engines.

    Args:
        comparison: sets of anchors and keys to compare.

    Attributes:
        positive: similarity of each of the A anchors to its positive, `[A]`.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        if comparison.positive is not None:
            self.positive = comparison.positive
            return
        a, b = comparison.sets[:2]
        squared_distance = comparison.similarity == "squared_distance"
        positive = (a - b).square().sum(dim=1) if squared_distance else (a * b).sum(dim=1)
        self.positive = torch.cat([positive] * len(comparison.key_sets))

    @property
    def anchor(self) -> Tensor:
        """Row of each anchor, `[A, D]`."""
        return torch.cat(self.comparison.sets[: len(self.comparison.key_sets)])

    @property
    def partner(self) -> Tensor:
        """Row of each anchor's positive, `[A, D]`."""
        return torch.cat([self.comparison.sets[1 - number] for number in range(len(self.comparison.key_sets))])

    @property
    def count(self) -> Tensor:
        """Number M of negatives of each anchor, `[A]`, as floating point; 1 for an anchor without negatives."""
        return self._counts().clamp(min=1)

    @property
    def isolated(self) -> Tensor:
        """Mask `[A]`, True for anchors without negatives (only possible with ids). All reductions return 0 for them."""
        return self._counts() == 0

    def _counts(self) -> Tensor:
        sets, counts = self.comparison.sets, []
        for anchors, key_sets in zip(sets, self.comparison.key_sets, strict=False):
            total = sum(sets[keys].size(-2) - (mask == "diagonal") for keys, mask in key_sets)
            count = anchors.new_full((anchors.size(0),), total)
            if self.comparison.ids is not None:  # sort instead of comparing all pairs
                ids, ordered = self.comparison.ids[0], self.comparison.ids[1].sort().values
                count = count - (torch.searchsorted(ordered, ids, right=True) - torch.searchsorted(ordered, ids))
            counts.append(count)
        return torch.cat(counts)

    @abstractmethod
    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function(row, *per_anchor) -> [T]` to chunks of T anchors and return the results, `[A]`.

        Use this method for reductions that the other methods do not cover.

        Args:
            function: reduction of the chunk's `Row` and of the chunk's entries of each tensor in `per_anchor`.
            *per_anchor: tensors with one entry per anchor, `[A]`.
        """

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        r"""Return, for each exponent P, the logsumexps `[A]` $\log \sum_j e^{P(c_{ij})}$.

        Here c_ij is the similarity of anchor i and its negative j.
        """
        return tuple(self.rows(lambda row, p=exponent: row.logsumexp(p(row.value))) for exponent in exponents)

    @abstractmethod
    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        r"""Return the weighted mean of each anchor's similarities, and the log of the sum of the weights, `[A]` each.

        The results are $\sum_j w_j c_j / \sum_j w_j$ and $\log \sum_j w_j$. Here c_j is the similarity of an anchor and
        its negative j, and w_j = e^{P(c_j)} is its weight, with P = `exponent`. The weights are detached.
        """

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and population variance of each anchor's similarities to its negatives, `[A]` each."""
        mean = self.rows(lambda row: row.mean(row.value))
        return mean, self.rows(lambda row, mean: row.mean((row.value - mean[:, None]).square()), mean)


def without_autocast(some: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which operations on the device of `some` keep their precision."""
    kind = some.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def off_diagonal(matrix: Tensor) -> Tensor:
    """Return each `matrix [..., T, N]`, T <= N, without its diagonal, as `[..., T, N - 1]`."""
    rows, columns = matrix.shape[-2:]
    flat = matrix.flatten(-2)
    # In the flattened matrix, N entries lie between two diagonal entries, and N - T entries after the last one.
    last = (rows - 1) * (columns + 1)
    between = flat[..., :last].unflatten(-1, (rows - 1, columns + 1))[..., 1:].flatten(-2)
    whole = between if rows == columns else torch.cat([between, flat[..., last + 1 :]], dim=-1)
    return whole.unflatten(-1, (rows, columns - 1))


@dataclass(frozen=True)
class Sums:
    """Description of the sums over negatives that the tiles compute.

    Args:
        comparison: sets of anchors and keys, detached.
        exponents: one exponent P for each sum of e^P.
        expected: whether the mean similarities with weights e^P are wanted, instead of the sums; weights are constants.
        held: similarities of the tiles, which compiled loops keep for the gradient; None to compute them again.
    """

    comparison: Comparison
    exponents: tuple[Exponent, ...]
    expected: bool
    held: list[Tensor] | None = None

    @property
    def slopes(self) -> list[Coefficients]:
        """Coefficients of P', for each exponent P; of the constant 1 for the mean similarities.

        For anchor i and similarity c_ij, d total_i / d c_ij = e^(P - total_i) P', and d mean_i / d c_ij =
        e^(P - total_i), with total_i the logsumexp.
        """
        return [(1.0,) if self.expected else exponent.slope for exponent in self.exponents]
