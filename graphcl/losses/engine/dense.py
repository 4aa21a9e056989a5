"""The dense engine: all similarities at once, `[A, M]`. For small batches, and the reference of the tiled one."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.losses.engine.comparison import Comparison, Pairs, Reduction, Row, Similarity, similarities
from graphcl.losses.engine.exponent import Exponent


class DensePairs(Pairs):
    """All similarities of a comparison, held at once.

    Negatives are laid out without the anchor itself and without its positive, so that nothing has to be masked out of
    a sum or subtracted from it (only rows of the queue that share an anchor's id are masked).
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(comparison)
        self.row = lay_out(comparison)

    @property
    def negative(self) -> Tensor:
        """Similarity of each anchor with each of its negatives, `[A, M]`."""
        return self.row.value

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """See `Pairs`."""
        return tuple(self.row.logsumexp(exponent(self.row.value)) for exponent in exponents)

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        # Filled first: what is left out may outweigh all the rest, and inf times a masked 0 would be NaN.
        log_weight = self.row.filled(exponent(self.row.value.detach()), -torch.inf)
        # (Rows without any negative come out as NaN.)
        weight = log_weight.softmax(dim=1).nan_to_num(0.0)
        return self.row.sum(weight * self.row.value), self.row.logsumexp(log_weight)

    def moments(self) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        mean = self.row.mean(self.row.value)
        return mean, self.row.mean((self.row.value - mean[:, None]).square())

    def rows(self, function: Reduction, *per_anchor: Tensor) -> Tensor:
        """See `Pairs`."""
        return function(self.row, *per_anchor)


class ExplicitPairs(DensePairs):
    """Anchors, positives and negatives as given: negatives `[M, D]` for all, or `[A, M, D]` for each anchor."""

    def __init__(self, anchors: Tensor, positives: Tensor, negatives: Tensor, similarity: Similarity) -> None:
        Pairs.__init__(self, Comparison((anchors, positives), ((),), similarity))
        if negatives.dim() == 2:
            value = similarities(anchors, negatives, similarity)
        elif similarity == "squared_distance":
            value = (anchors[:, None] - negatives).square().sum(dim=2)
        else:
            value = torch.einsum("ad,amd->am", anchors, negatives)
        self.row = Row(value)

    @property
    def _count(self) -> Tensor:
        return torch.full_like(self.positive, self.row.value.size(1))


def lay_out(comparison: Comparison) -> Row:
    """The negatives of all anchors."""
    known: dict[tuple[int, int], Tensor] = {}
    values, kept = [], []
    for anchors, against in enumerate(comparison.against):
        blocks = []
        for keys, left_out in against:
            if (keys, anchors) in known:  # the two views' directions are one matrix
                block = known[keys, anchors].T
            else:
                block = similarities(comparison.sets[anchors], comparison.sets[keys], comparison.similarity)
                known[anchors, keys] = block
            blocks.append(off_diagonal(block) if left_out == "diagonal" else block)
            if left_out == "ids":
                in_batch = sum(block.size(1) for block in blocks[:-1])
                kept.append(torch.nn.functional.pad(~comparison.same_ids(), (in_batch, 0), value=True))
        values.append(torch.cat(blocks, dim=1))
    return Row(torch.cat(values), torch.cat(kept) if kept else None)


def lay_out_rows(comparison: Comparison, anchors: int, rows: slice) -> Row:
    """The same of some rows of one set of anchors."""
    x = comparison.sets[anchors][rows]
    values: list[Tensor] = []
    earlier: list[Tensor] = []
    kept = None
    for keys, left_out in comparison.against[anchors]:
        y = comparison.sets[keys]
        if left_out == "diagonal":
            # Keys in an order that begins with the first row's own, so that the own ones lie on the diagonal. Those
            # before it come last of all: so rows of other ranks, which follow the batch's, keep their place.
            values.append(off_diagonal(similarities(x, y[rows.start :], comparison.similarity)))
            if rows.start:
                earlier.append(similarities(x, y[: rows.start], comparison.similarity))
        else:
            values.append(similarities(x, y, comparison.similarity))
        if left_out == "ids":
            in_batch = sum(value.size(1) for value in values[:-1])
            kept = torch.nn.functional.pad(~comparison.same_ids(rows), (in_batch, 0), value=True)
    if kept is not None and earlier:
        kept = torch.nn.functional.pad(kept, (0, sum(value.size(1) for value in earlier)), value=True)
    values += earlier
    return Row(torch.cat(values, dim=1) if len(values) > 1 else values[0], kept)


def off_diagonal(matrix: Tensor) -> Tensor:
    """The entries off the diagonal of `[T, N]`, T <= N, row by row: `[T, N - 1]`."""
    rows, columns = matrix.shape
    flat = matrix.flatten()
    # Between two entries of the diagonal lie N others, and N - T behind the last one.
    last = (rows - 1) * (columns + 1)
    between = flat[:last].view(rows - 1, columns + 1)[:, 1:]
    if rows == columns:
        return between.reshape(rows, columns - 1)
    return torch.cat([between.reshape(-1), flat[last + 1 :]]).view(rows, columns - 1)
