"""The dense engine: holds all similarities `[A, M]`, for small batches and as the reference for the tiled engine."""

import torch
from torch import Tensor

from graphcl.losses.engine.base import Comparison, Pairs, Row, RowFunction, similarities
from graphcl.losses.engine.exponent import Exponent


class DensePairs(Pairs):
    """`Pairs` with a matrix of all similarities of anchors and negatives.

    The matrix contains no entry for an anchor with itself or with its positive. Only rows of the queue with the
    anchor's id are masked.

    Args:
        comparison: sets of anchors and keys to compare.
        row: matrix of the similarities; by default computed from `comparison`.
    """

    def __init__(self, comparison: Comparison, row: Row | None = None) -> None:
        super().__init__(comparison)
        self.row = _all_rows(comparison) if row is None else row

    @property
    def _count(self) -> Tensor:
        value, kept = self.row.value, self.row.kept
        return self.positive.new_full(value.shape[:1], value.size(1)) if kept is None else kept.sum(dim=1).to(value)

    @property
    def negative(self) -> Tensor:
        """Similarities of all anchors to their negatives, `[A, M]`."""
        return self.row.value

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """Return the logsumexps of the negatives, see `Pairs`."""
        return tuple(self.row.logsumexp(exponent(self.row.value)) for exponent in exponents)

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """Return weighted means and logs of the sums of weights, see `Pairs.expectation`."""
        # Mask before the softmax: a masked entry could dominate the softmax or overflow, and inf * 0 is NaN.
        log_weight = self.row.filled(exponent(self.row.value.detach()), -torch.inf)
        # The softmax of a row without negatives is NaN, so set it to 0.
        weight = log_weight.softmax(dim=1).nan_to_num(0.0)
        return self.row.sum(weight * self.row.value), self.row.logsumexp(log_weight)

    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function` to all anchors at once, see `Pairs`."""
        return function(self.row, *per_anchor)


def _all_rows(comparison: Comparison) -> Row:
    """Return the similarities of all anchors to their negatives: to other graphs of the batch, then to other keys."""
    diagonal = [[keys for keys, mask in of if mask == "diagonal"] for of in comparison.key_sets]
    others = [[(keys, mask) for keys, mask in of if mask != "diagonal"] for of in comparison.key_sets]
    blocks: dict[tuple[int, int], Tensor] = {}
    for anchors, of in enumerate(diagonal):
        for keys in of:  # two directions of the same pairs cost one product
            known = blocks.get((keys, anchors))
            blocks[anchors, keys] = _similarities(comparison, anchors, keys) if known is None else known.T
    parts, kept = [], None
    if blocks:
        own = off_diagonal(torch.stack([*blocks.values()])).unflatten(0, (len(diagonal), -1)).transpose(1, 2)
        parts.append(own.flatten(2).flatten(0, 1))
    if others[0]:
        rows = [
            torch.cat([_similarities(comparison, anchors, keys) for keys, _ in of], 1)
            for anchors, of in enumerate(others)
        ]
        parts.append(torch.cat(rows))
    value = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
    if others[0] and others[0][-1][1] == "ids":  # of the queue, which comes last
        different = (~comparison.same_ids()).repeat(len(others), 1)
        kept = torch.nn.functional.pad(different, (value.size(1) - different.size(1), 0), value=True)
    return Row(value, kept)


def _similarities(comparison: Comparison, anchors: int, keys: int) -> Tensor:
    return similarities(comparison.sets[anchors], comparison.sets[keys], comparison.similarity)


def similarity_rows(comparison: Comparison, anchors: int, rows: slice) -> Row:
    """Return the similarities of a slice `rows` of the anchors in set `anchors` to their negatives, as a `Row`."""
    x, start = comparison.sets[anchors][rows], rows.start
    values: list[Tensor] = []
    earlier: list[Tensor] = []
    kept = None
    for keys, mask in comparison.key_sets[anchors]:
        y = comparison.sets[keys]
        if mask == "diagonal" and start:
            # Start with the key at `start`, so that the excluded pairs lie on the diagonal. The earlier keys are
            # appended at the end, which keeps the cyclic order.
            earlier.append(similarities(x, y[:start], comparison.similarity))
            y = y[start:]
        block = similarities(x, y, comparison.similarity)
        values.append(off_diagonal(block) if mask == "diagonal" else block)
        if mask == "ids":
            before = sum(value.size(1) for value in values[:-1])
            kept = torch.nn.functional.pad(~comparison.same_ids(rows), (before, 0), value=True)
    if kept is not None and earlier:
        kept = torch.nn.functional.pad(kept, (0, sum(value.size(1) for value in earlier)), value=True)
    values += earlier
    return Row(torch.cat(values, dim=1) if len(values) > 1 else values[0], kept)


def off_diagonal(matrix: Tensor) -> Tensor:
    """Return each `matrix [..., T, N]`, T <= N, without its diagonal, as `[..., T, N - 1]`."""
    rows, columns = matrix.shape[-2:]
    flat = matrix.flatten(-2)
    # In the flattened matrix, N entries lie between two diagonal entries, and N - T entries after the last one.
    last = (rows - 1) * (columns + 1)
    between = flat[..., :last].unflatten(-1, (rows - 1, columns + 1))[..., 1:].flatten(-2)
    whole = between if rows == columns else torch.cat([between, flat[..., last + 1 :]], dim=-1)
    return whole.unflatten(-1, (rows, columns - 1))
