"""Count the patterns of graphs, and define the encoder that weights them, with its model."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data

from graphcl.arguments import Positive, interval
from graphcl.extensions.sparse.index import SparseRows, shared_columns
from graphcl.graphs.segment import group, nonzero, pointers, ranges
from graphcl.graphs.wl import GOLDEN, first_colours, mix, refine
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.pieces import lazy
from graphcl.registry import encoders

FREQUENCIES, TIMES = 16, 8
"""Numbers of classes of a pattern's frequency in training, and of how often it occurs in a graph: powers of two."""
Columns = Literal["unary", "log_counts"]
VERSION = 2
"""Version of the colours, which an encoder saves."""
OF_PATTERNS = ("b", "colour", "frequency", "column")
"""Weights and buffers whose sizes depend on the training graphs."""


@dataclass(frozen=True)
class Patterns:
    """The patterns of a batch of B graphs, sorted by graph and colour; R in total.

    A pattern is a WL colour of a graph: a neighbourhood up to a depth. A row of ones is the histogram of one graph.

    Attributes:
        ptr: boundaries of the graphs `[B + 1]`.
        colour: colour of each pattern `[R]`.
        count: number of the graph's nodes with this colour `[R]`.
        depth: depth of the pattern `[R]`.
        node: one of its nodes, `[R]`.
        parent: pattern of the same node one depth below, `[R]`; R at depth 0.
    """

    ptr: Tensor
    colour: Tensor
    count: Tensor
    depth: Tensor
    node: Tensor
    parent: Tensor

    @classmethod
    def of(cls, colours: Tensor, batch: Tensor, size: int) -> Patterns:
        """Return the patterns of `size` graphs from their nodes' colours `[D + 1, N]` and the graph of each node `[N]`.

        Example:
            >>> patterns = Patterns.of(torch.tensor([[7, 7, 5], [8, 9, 6]]), torch.tensor([0, 0, 0]), 1)
            >>> patterns.colour.tolist(), patterns.count.tolist(), patterns.parent.tolist()
            ([5, 6, 7, 8, 9], [1, 1, 2, 1, 1], [5, 0, 5, 2, 2])
        """
        flat, nodes = colours.flatten(), colours.size(1)
        by_value = flat.argsort()
        order, _ = group(batch.repeat(colours.size(0))[by_value], size, by_value)
        colour, graph = flat[order], batch[order % nodes] if nodes else batch
        new = torch.ones_like(colour, dtype=torch.bool)
        new[1:] = (colour[1:] != colour[:-1]) | (graph[1:] != graph[:-1])
        start = nonzero(new)
        count = torch.diff(start, append=start.new_tensor([len(colour)]))
        one, graph = order[start], graph[start]
        of = torch.full((nodes + len(flat),), len(start), device=flat.device)  # "depth -1" has no patterns
        of[order + nodes] = new.cumsum(0) - 1
        ptr = pointers(torch.bincount(graph, minlength=size))
        return cls(ptr, colour[start], count, one // max(nodes, 1), one % max(nodes, 1), of[one])


def unary(count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pattern `[M]` and the number t `[M]` of each column "at least t times" of the unary expansion.

    Example:
        >>> unary(torch.tensor([2, 1]))
        (tensor([0, 0, 1]), tensor([1, 2, 1]))
    """
    return torch.arange(len(count), device=count.device).repeat_interleave(count), ranges(torch.ones_like(count), count)


def column_ids(colour: Tensor, times: Tensor) -> Tensor:
    """Return the 64-bit number of the column "`colour` occurs at least `times` times"; for 1, it is the colour."""
    return torch.where(times == 1, colour, mix(colour + times * GOLDEN))


def frequencies(batches: Iterable[tuple[Tensor, ...]], least: int) -> tuple[Tensor, Tensor]:
    """Return the colours that occur in at least `least` groups, ascending, and the number of groups of each.

    Memory: 16 bytes for each pattern of each group.

    Args:
        batches: colours `[D + 1, N]` of nodes and the group of each node `[N]`; a group may be in several batches.
        least: least number of groups.

    Example:
        >>> frequencies([(torch.tensor([[5, 7, 5, 5]]), torch.tensor([0, 0, 0, 1]))], least=2)
        (tensor([5]), tensor([2]))
    """
    pairs = [_distinct(torch.stack([colours.flatten(), of_node.repeat(len(colours))])) for colours, of_node in batches]
    colour, count = _distinct(torch.cat(pairs, 1))[0].unique_consecutive(return_counts=True)
    return colour[count >= least], count[count >= least]


def _distinct(pairs: Tensor) -> Tensor:
    """Return the distinct columns of `pairs [2, M]`, sorted by the first row."""
    pairs = pairs[:, pairs[1].argsort()]
    pairs = pairs[:, pairs[0].argsort(stable=True)]
    new = torch.ones_like(pairs[0], dtype=torch.bool)
    new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(0)
    return pairs[:, new]


class SparseModel(ContrastiveModel):
    """A `ContrastiveModel` without a projector, whose embeddings are the sparse rows of a `WLSparse` encoder.

    A loss receives the columns that two graphs of a batch share, see `shared_columns`.
    """

    form = "sparse"
    encoder: WLSparse

    @property
    def fitted(self) -> bool:
        """Whether the encoder has counted patterns, here or in an earlier training."""
        return len(self.encoder.column) > 0

    def fit(self, batches: Iterable[Batch], group: Tensor) -> None:
        """Count the patterns of the training graphs, see `WLSparse.fit`."""
        self.encoder.fit(batches, group)
        self.width = self.projection = self.encoder.out_channels

    def encode(self, batch: Batch, edge_weight: Tensor | None = None) -> Any:
        """Return the embeddings of the graphs in `batch` as `SparseRows`; `edge_weight` is not supported.

        Of a batch in pieces, the patterns of one piece at a time are in memory; the backward pass counts them again.
        """
        if not self._is_large(batch):
            return self._rows(batch)
        pieces = lazy(batch, self.micro_batch or 1).pieces
        return SparseRows.cat([SparseRows(*checkpoint(self._tensors, make, use_reentrant=False)) for make in pieces])

    def _tensors(self, make: Callable[[], Batch]) -> tuple[Tensor, Tensor, Tensor]:
        rows = self._rows(make())
        return rows.ptr, rows.column, rows.value

    def _rows(self, batch: Batch) -> SparseRows:
        of_edges = batch.get("edge_attr")
        return self.encoder.rows(batch.x, batch.edge_index, batch.batch, size=batch.num_graphs, edge_attr=of_edges)

    def project_views(self, view1: Batch, view2: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first view's matrix, see `encode_both`, and that of each view, as there is no projector."""
        z1, z2 = self.encode_both(view1, view2).split([view1.num_graphs, view2.num_graphs])
        return z1, z1, z2

    def encode_both(self, view1: Batch, view2: Batch) -> Tensor:
        """Return a dense matrix of both views, `[2 B, C]`, with the inner products of their rows."""
        return shared_columns(SparseRows.cat([self.encode(view1), self.encode(view2)]))

    def embedder(self) -> Callable[[Batch], SparseRows]:
        """Return a function from a batch to its rows, with the digest of the encoder."""
        digest = self.encoder.digest()
        return lambda batch: replace(self.encode(batch), encoder=digest)

    def no_rows(self) -> SparseRows:
        """Return the rows of no graph."""
        return SparseRows.empty(0)

    def features(self, h: SparseRows) -> Any:
        """Return a `scipy.sparse.csr_matrix` with the columns of the training graphs."""
        from scipy.sparse import csr_matrix

        return csr_matrix(h.scipy(self.encoder.column.cpu().numpy())[0])

    def report_arrays(self, batches: Iterable[Batch]) -> dict[str, np.ndarray]:
        """Return the arrays of the encoder's patterns, see `survey`; none before training."""
        from graphcl.extensions.sparse.explain import survey

        encoder = copy.deepcopy(self.encoder).cpu()
        if not bool(encoder.b.any()):  # nothing was trained
            return {}
        return {f"patterns_{name}": values for name, values in survey(encoder, batches).items()}

    def explain(self, one: Data, other: Data, k: int = 10, min_depth: int = 0) -> list[Any]:
        """Return the k patterns that add most to the cosine of two graphs, see the function `explain`."""
        from graphcl.extensions.sparse.explain import explain

        return list(explain(copy.deepcopy(self.encoder).cpu(), one, other, k, min_depth))


@encoders.register("wl_sparse", form="sparse", x="categories or numbers")
class WLSparse(nn.Module):
    r"""Embed graphs as sparse rows: one column for each pattern and t, "the pattern occurs at least t times".

    A pattern is a WL colour up to a depth, see `graphcl.graphs.wl`. With `columns="log_counts"` a pattern has one
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

    Attributes:
        colour: patterns with a weight of their own `[K]`, ascending; `fit` sets them.
        frequency: number of training groups with each of them `[K]`.
        column: columns of the training graphs `[V]`, ascending; those of the matrices of `graphcl.GraphCL`.

    References: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011. Kriege et al., "On Valid Optimal
    Assignment Kernels and Applications to Graph Classification", NIPS 2016. Formal et al., "SPLADE: Sparse Lexical and
    Expansion Model for First Stage Ranking", SIGIR 2021.
    """

    contrasted_by = SparseModel
    colour: Tensor
    frequency: Tensor
    column: Tensor
    version: Tensor

    def __init__(
        self,
        in_channels: int,
        depth: Annotated[int, interval("[0, 100]")] = 3,
        columns: Columns = "unary",
        step: Positive | None = None,
        edge_step: Positive | None = None,
        both: bool = False,
        scale: Positive = 0.3,
    ) -> None:
        super().__init__()
        self.in_channels, self.depth, self.columns = in_channels, depth, columns
        self.step, self.edge_step, self.both, self.scale = step, edge_step, both, scale
        self.a = nn.Parameter(torch.zeros(depth + 1, FREQUENCIES, TIMES))
        self.b = nn.Parameter(torch.zeros(0))
        for name in ("colour", "frequency", "column"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.long))
        self.register_buffer("version", torch.tensor(VERSION))

    @staticmethod
    def report_section(arrays: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """Return the section of a run's report, see `patterns_section`."""
        from graphcl.extensions.sparse.explain import patterns_section

        return patterns_section(arrays)

    @property
    def out_channels(self) -> int:
        """Number of columns of the training graphs, at least 1."""
        return max(len(self.column), 1)

    @torch.no_grad()
    def fit(self, batches: Iterable[Batch], group: Tensor, least: int = 2) -> WLSparse:
        """Count in how many groups each pattern occurs; those in at least `least` groups get a weight of their own.

        The class of a frequency f is floor(log2(f)). A pattern of fewer than `least` groups has the class of f = 1, as
        unseen ones: in training, a graph's own group tells nothing about other groups.

        Args:
            batches: batches of graphs.
            group: group of each graph `[n]`; graphs of group -1 are not counted.
            least: least number of groups.
        """
        seen, columns, done = [], [], 0
        for batch in batches:
            of_graph = group[done : done + batch.num_graphs].to(self.a.device)
            done += batch.num_graphs
            patterns = self.patterns(batch.x, batch.edge_index, batch.batch, len(of_graph), batch.get("edge_attr"))
            of_pattern = of_graph.repeat_interleave(patterns.ptr.diff())
            counted = of_pattern >= 0
            seen.append((patterns.colour[counted][None], of_pattern[counted]))
            of, _, column = self._columns(patterns)
            columns.append(column[counted[of]].unique())
        self.colour, self.frequency = frequencies(seen, least)
        self.column = torch.cat(columns).unique()
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
        return self.rows_of(self.patterns(x, edge_index, batch, size, edge_attr))[0]

    def patterns(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int, edge_attr: Tensor | None = None
    ) -> Patterns:
        """Return the patterns of `size` graphs; arguments as for `rows`."""
        return Patterns.of(self.colours(x, edge_index, edge_attr), batch, size)

    def rows_of(self, patterns: Patterns) -> tuple[SparseRows, Tensor]:
        """Return the rows of the graphs with the patterns `patterns`, and the pattern of each value `[M]`."""
        of, times, column = self._columns(patterns)
        value = self._weights(patterns, of, times)
        if self.columns == "log_counts":
            value = value * times.to(value.dtype).log1p()
        ptr = pointers(patterns.count)[patterns.ptr] if self.columns == "unary" else patterns.ptr
        row = torch.arange(len(ptr) - 1, device=ptr.device).repeat_interleave(ptr.diff())
        norm = value.new_zeros(len(ptr) - 1).index_add(0, row, value.square())
        return SparseRows(ptr, column, value * norm[row].rsqrt()), of

    def _columns(self, patterns: Patterns) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pattern, the number t and the 64-bit number of each column, all `[M]`."""
        if self.columns == "unary":
            of, times = unary(patterns.count)
            return of, times, column_ids(patterns.colour[of], times)
        return torch.arange(len(patterns.count), device=patterns.count.device), patterns.count, patterns.colour

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

    def pattern_weights(self, patterns: Patterns) -> Tensor:
        """Return the weight of the column "occurs at least once" of each pattern, `[R]`."""
        return self._weights(patterns, torch.arange(len(patterns.count)), torch.ones_like(patterns.count))

    def frequencies_of(self, patterns: Patterns) -> Tensor:
        """Return the number of training groups with each pattern `[R]`; 0 for those without a weight of their own."""
        return torch.cat([self.frequency, self.frequency.new_zeros(1)])[self._slots(patterns.colour)]

    def _weights(self, patterns: Patterns, of: Tensor, times: Tensor) -> Tensor:
        """Return the weight of each column `[M]`, of pattern `of [M]` and t `times [M]`."""
        slot, frequency = self._slots(patterns.colour), self.frequencies_of(patterns).clamp(min=1)
        weights = self.a[patterns.depth[of], _power(frequency, FREQUENCIES)[of], _power(times, TIMES)]
        shift = torch.cat([self.b * self.scale, self.b.new_zeros(1)])[slot]
        shift = torch.cat([shift, shift.new_zeros(1)])  # of the parent at depth 0
        total, parent = shift[:-1], torch.cat([patterns.parent, patterns.parent.new_tensor([len(slot)])])
        above = patterns.parent
        for _ in range(self.depth):
            total, above = total + shift[above], parent[above]
        return (weights + total[of]).exp()

    def resize_for(self, state: Mapping[str, Any]) -> str:
        """Give the weights and buffers of patterns the sizes in a state dict; return what is wrong with it, or ""."""
        for name in OF_PATTERNS:
            value, before = state.get(name), getattr(self, name)
            if value is not None and value.shape != before.shape and value.dim() == 1:
                empty = before.new_zeros(value.shape)
                setattr(self, name, nn.Parameter(empty) if name == "b" else empty)
        version = state.get("version", self.version)
        if version.numel() != 1 or int(version) != VERSION:
            return f"its colours have version {version.tolist()}, and this graphcl has {VERSION}"
        return ""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        problem = self.resize_for({name.removeprefix(prefix): value for name, value in state_dict.items()})
        if problem:
            rest[-1].append(problem)  # PyTorch's list of errors
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def digest(self) -> str:
        """Return 16 hexadecimal digits that are equal for encoders with the same rows."""
        settings = self.in_channels, self.depth, self.columns, self.step, self.edge_step, self.both, self.scale
        total = hashlib.sha256(repr(settings).encode())
        for tensor in (self.a, self.b, self.colour, self.frequency):
            total.update(tensor.detach().cpu().numpy().tobytes())
        return total.hexdigest()[:16]

    def _slots(self, colour: Tensor) -> Tensor:
        """Return the place of each colour in `self.colour`, or its length for unknown ones."""
        count = len(self.colour)
        if not count:
            return torch.zeros_like(colour)
        place = torch.searchsorted(self.colour, colour).clamp(max=count - 1)
        return torch.where(self.colour[place] == colour, place, count)


def _power(number: Tensor, most: int) -> Tensor:
    """Return floor(log2(number)), at most `most - 1`, for numbers of 1 and more."""
    return (number.double().log2().floor().long()).clamp(max=most - 1)
