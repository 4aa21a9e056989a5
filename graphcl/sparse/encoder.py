"""Define the encoder whose embeddings are sparse rows of Weisfeiler-Leman patterns with learned weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from graphcl.graphs.segment import pointers
from graphcl.sparse.colours import first_colours, refine
from graphcl.sparse.frequencies import frequencies
from graphcl.sparse.rows import Patterns, SparseRows, column_ids, patterns, shared_columns, unary

FREQUENCIES, TIMES = 16, 8
"""Numbers of classes of a pattern's frequency in training, and of how often it occurs in a graph: powers of two."""
Columns = Literal["unary", "log_counts"]


class WLSparse(nn.Module):
    r"""Embed graphs as sparse rows: one column for each pattern and t, "the pattern occurs at least t times".

    A pattern is a WL colour up to a depth, see `graphcl.sparse.colours`. With `columns="log_counts"` a pattern has one
    column, of value log(1 + count). The weight of a column is

    $$w = \exp\Big(a_{d, f, t} + \sum_{k=0}^{d} s \, b_{c_k}\Big),$$

    where d is the depth, f the class of the pattern's frequency in training (see `fit`), t the class of t, and
    $c_0, \dots, c_d$ are the colours of a node of the pattern at depths 0 to d. A pattern that training did not see has
    b = 0, but its weight includes those of its seen parts. Rows have norm 1. All weights are 1 at first: the inner
    product of two rows is then the normalised WL optimal assignment kernel.

    Args:
        in_channels: F, width of the node features; rows of `x` that are equal are one category.
        depth: D, largest depth.
        columns: `unary` or `log_counts`.
        step: width of bins for the features, and `edge_step` for edge attributes; default: exact values.
        both: whether nodes also see the targets of outgoing edges, see `refine`.
        scale: s, a small factor keeps the weights of single patterns near 0.
        known: number of patterns with a weight of their own; `fit` sets it.

    References: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011. Kriege et al., "On Valid Optimal
    Assignment Kernels and Applications to Graph Classification", NIPS 2016. Formal et al., "SPLADE: Sparse Lexical and
    Expansion Model for First Stage Ranking", SIGIR 2021.
    """

    colour: Tensor
    frequency: Tensor

    def __init__(
        self,
        in_channels: int,
        depth: int = 3,
        columns: Columns = "unary",
        step: float | None = None,
        edge_step: float | None = None,
        both: bool = False,
        scale: float = 0.3,
        known: int = 0,
    ) -> None:
        super().__init__()
        self.in_channels, self.depth, self.columns = in_channels, depth, columns
        self.step, self.edge_step, self.both, self.scale = step, edge_step, both, scale
        self.a = nn.Parameter(torch.zeros(depth + 1, FREQUENCIES, TIMES))
        self.b = nn.Parameter(torch.zeros(known))
        self.register_buffer("colour", torch.zeros(known, dtype=torch.long))
        self.register_buffer("frequency", torch.zeros(known, dtype=torch.long))

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Tensor, ...]], least: int = 2) -> WLSparse:
        """Count in how many groups each pattern occurs; those in at least `least` groups get a weight of their own.

        The class of a frequency f is that of f - 1, so that a pattern of a single group has the class of unseen ones:
        in training, a graph's own group tells nothing about other groups.

        Args:
            batches: colours `[D + 1, N]` of the nodes of all training graphs, and the group of each node `[N]`; see
                `colours`.
            least: least number of groups.
        """
        self.colour, self.frequency = frequencies(batches, least)
        self.b = nn.Parameter(self.b.new_zeros(len(self.colour)))
        return self

    def colours(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the colours of all nodes at each depth, `[D + 1, N]`."""
        edges = None if edge_attr is None else first_colours(edge_attr, self.edge_step)
        return refine(first_colours(x, self.step), edge_index, self.depth, edges, self.both)

    def rows(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> SparseRows:
        """Return the embeddings of B graphs as sparse rows of norm 1; arguments as for `GraphEncoder.forward`."""
        if batch is None:
            batch, size = torch.zeros(x.size(0), dtype=torch.long, device=x.device), 1
        size = int(batch.max()) + 1 if size is None else size
        found = patterns(self.colours(x, edge_index, edge_attr), batch, size)
        if self.columns == "unary":
            of, times = unary(found.count)
            column, ptr = column_ids(found.colour[of], times), pointers(found.count)[found.ptr]
            value = self._weights(found, of, times)
        else:
            of, times = torch.arange(len(found.count), device=x.device), found.count
            column, ptr = found.colour, found.ptr
            value = self._weights(found, of, times) * times.to(self.a.dtype).log1p()
        row = torch.arange(size, device=x.device).repeat_interleave(ptr.diff())
        norm = value.new_zeros(size).index_add(0, row, value.square())
        return SparseRows(ptr, column, value * norm[row].rsqrt())

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        size: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return a dense matrix with the same inner products as the rows, see `shared_columns`."""
        return shared_columns(self.rows(x, edge_index, batch, size=size, edge_attr=edge_attr))

    def _weights(self, found: Patterns, of: Tensor, times: Tensor) -> Tensor:
        """Return the weight of each column `[M]`, of pattern `of [M]` and t `times [M]`."""
        slot = self._slots(found.colour)
        frequency = torch.cat([self.frequency, self.frequency.new_ones(1)])[slot]
        weights = self.a[found.depth[of], _power(frequency, FREQUENCIES)[of], _power(times, TIMES)]
        own = torch.cat([self.b * self.scale, self.b.new_zeros(1)])[slot]
        own = torch.cat([own, own.new_zeros(1)])  # of the parent at depth 0
        total, parent = own[:-1], torch.cat([found.parent, found.parent.new_tensor([len(slot)])])
        above = found.parent
        for _ in range(self.depth):
            total, above = total + own[above], parent[above]
        return (weights + total[of]).exp()

    def _slots(self, colour: Tensor) -> Tensor:
        """Return the place of each colour in `self.colour`, or its length for unknown ones."""
        known = len(self.colour)
        if not known:
            return torch.zeros_like(colour)
        place = torch.searchsorted(self.colour, colour).clamp(max=known - 1)
        return torch.where(self.colour[place] == colour, place, known)


def _power(number: Tensor, most: int) -> Tensor:
    """Return floor(log2(number)), at most `most - 1`, for numbers of 1 and more."""
    return (number.double().log2().floor().long()).clamp(max=most - 1)
