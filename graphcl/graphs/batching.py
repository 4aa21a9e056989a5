"""Inspect, assemble, restrict and split PyG's `Batch`.

A `Batch` concatenates the attributes of its graphs. For each attribute it stores where each graph's part starts
(`_slice_dict`) and which offset was added to the part (`_inc_dict`), so that `to_data_list()` can undo the batching.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

from graphcl.arguments import shown
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs import native
from graphcl.graphs.segment import nonzero, pick, pointers, ranges, repeat, to_device

MASK = -1
"""Integer that replaces a masked category; `attribute_mask` writes it, and encoders learn its embedding."""
_PLAIN: type[Batch] = type(Batch())
"""Class of the batches of `Data`; a call of `Batch` would create a metaclass each time."""
_SHARED: ContextVar[tuple[Batch, list[Layout]] | None] = ContextVar("_SHARED", default=None)
"""The batch of the innermost `Layout.shared`, and its layout once it has been computed."""


@dataclass(frozen=True)
class Layout:
    """Assignment of the nodes and edges of a batch to its graphs.

    Args:
        ptr: node boundaries of the graphs, `[B + 1]`, from 0 to N.
        batch: graph of each node, `[N]`.
        edge_index: source and target of each edge, `[2, E]`.
        host_ptr: `ptr` on the CPU; None if it is not at hand.
        host_edge_ptr: edge boundaries of the graphs on the CPU, `[B + 1]`, from 0 to E; None if edges are not ordered
            by graph.
    """

    ptr: Tensor
    batch: Tensor
    edge_index: Tensor
    host_ptr: Tensor | None = None
    host_edge_ptr: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch) -> Layout:
        """Return the layout of the PyG `batch`.

        Boundaries that PyG stores but that do not fit, as of edges that a transform changed, are ignored.

        Raises:
            InputError: there is no `edge_index`, or `ptr` does not fit the nodes (checked on the CPU only).
        """
        shared, layouts = _SHARED.get() or (None, [])
        if shared is not batch:
            return cls._of(batch)
        if not layouts:
            layouts.append(cls._of(batch))
        return layouts[0]

    @classmethod
    def _of(cls, batch: Batch) -> Layout:
        edge_index = batch.get("edge_index")
        if edge_index is None:
            raise InputError("augmentations need `edge_index`; other forms of adjacency are not supported.")
        if type(edge_index) is not Tensor:  # EdgeIndex has metadata that an augmentation would invalidate
            edge_index = edge_index.as_tensor()
        ptr, of_nodes = batch.get("ptr"), batch.batch
        if ptr is None:
            ptr = pointers(torch.bincount(of_nodes, minlength=batch.num_graphs))
        graphs, nodes = batch.num_graphs, of_nodes.numel()
        if not _ascends(ptr, graphs, nodes):
            got = f"{shown(ptr.tolist())} for {graphs} graphs"
            raise InputError(f"`ptr` of the batch must ascend from 0 to its {nodes} nodes, got {got}.")
        slices = bookkeeping(batch)[0] or {}
        host_ptr, edge_ptr = slices.get("x") if ptr.is_cuda else ptr, slices.get("edge_index")
        if host_ptr is not None and not _ascends(host_ptr, graphs, nodes):
            host_ptr = None
        if edge_ptr is not None and not _ascends(edge_ptr, graphs, edge_index.size(1)):
            edge_ptr = None
        return cls(ptr, of_nodes, edge_index, host_ptr, edge_ptr)

    @staticmethod
    @contextmanager
    def shared(batch: Batch) -> Iterator[None]:
        """Compute the layout of `batch` once for all calls of `of` in a `with` block, which does not change it."""
        token = _SHARED.set((batch, []))
        try:
            yield
        finally:
            _SHARED.reset(token)

    @property
    def num_graphs(self) -> int:
        """Number of graphs B."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.batch.numel()

    @property
    def num_edges(self) -> int:
        """Number of directed edges E."""
        return self.edge_index.size(1)

    @cached_property
    def edge_ptr(self) -> Tensor | None:
        """Edge boundaries of the graphs, `[B + 1]`; None if edges are not ordered by graph."""
        return None if self.host_edge_ptr is None else to_device(self.host_edge_ptr, self.ptr.device)

    @cached_property
    def compiled(self) -> bool:
        """Whether the compiled loops of `graphcl.graphs.native` support this layout."""
        edge_ptr = self.edge_ptr
        return edge_ptr is not None and native.takes(self.ptr, edge_ptr, self.batch, self.edge_index)

    @cached_property
    def nodes(self) -> Tensor:
        """Number of nodes in each graph, `[B]`."""
        return self.ptr.diff()

    @cached_property
    def host_nodes(self) -> Tensor:
        """Number of nodes in each graph, `[B]`, on the CPU."""
        return self.nodes.cpu() if self.host_ptr is None else self.host_ptr.diff()

    @cached_property
    def host_starts(self) -> Tensor:
        """First node of each graph, `[B]`, on the CPU."""
        return pointers(self.host_nodes)[:-1] if self.host_ptr is None else self.host_ptr[:-1]

    @cached_property
    def edge_graph(self) -> Tensor:
        """Graph of each edge, `[E]`."""
        return pick(self.batch, self.edge_index[0])

    def edges_of(self, graphs: Tensor) -> Tensor:
        """Return the ascending indices of the edges of all graphs for which the CPU mask `graphs [B]` is true."""
        if self.host_edge_ptr is None:
            return nonzero(pick(to_device(graphs, self.ptr.device), self.edge_graph))
        chosen = nonzero(graphs)
        return ranges(self.host_edge_ptr[chosen], self.host_edge_ptr.diff()[chosen], self.ptr.device)


def _ascends(ptr: Tensor, parts: int, end: int) -> bool:
    """Return whether `ptr` holds boundaries `[parts + 1]` that ascend from 0 to `end`; read values on the CPU only."""
    if ptr.dim() != 1 or not 0 < ptr.numel() == parts + 1:
        return False
    if not ptr.is_cpu:
        return True
    if native.takes(ptr):
        return native.ascends(ptr, end)
    values = ptr.numpy()  # faster than PyTorch's operations
    return bool(values[0] == 0 and values[-1] == end and (values[1:] >= values[:-1]).all())


def bookkeeping(
    batch: Batch, slices: Mapping[str, Any] | None = None, incs: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return PyG's private `_slice_dict` (None if missing) and `_inc_dict` of `batch`; set both first if given."""
    store = vars(batch._store)
    if slices is not None:
        store.update(_slice_dict=dict(slices), _inc_dict=dict(incs or {}))
    return store.get("_slice_dict"), store.get("_inc_dict", {})


def as_batch(data: Data | Batch) -> Batch:
    """Return `data` as a batch; a single graph becomes a batch of one graph."""
    if isinstance(data, HeteroData) or not isinstance(data, Data):
        raise InputTypeError(
            f"expected a homogeneous PyG `Data` or `Batch`, got {type(data).__name__}{unsupported(data)}."
        )
    return data if isinstance(data, Batch) else Batch.from_data_list([data])


def unsupported(graph: object) -> str:
    """Return advice for an error message if the type of `graph` is not supported, else an empty string."""
    if isinstance(graph, HeteroData):
        return "; heterogeneous graphs are not supported, use its to_homogeneous()"
    return "; temporal graphs are not supported, make each period a Data" if isinstance(graph, TemporalData) else ""


def check_batch(batch: object) -> None:
    """Raise InputTypeError unless `batch` is a homogeneous `Batch` of whole graphs, and InputError if it has no `x`."""
    if isinstance(batch, Data) and not isinstance(batch, Batch) and "input_id" in batch:
        raise InputTypeError(
            "expected a batch of whole graphs, got a part of one graph, as a NeighborLoader samples it; "
            "use PyG's DataLoader over a data set of graphs."
        )
    hint = unsupported(batch)
    if hint or not isinstance(batch, Batch):
        if not hint:
            alone = "; use Batch.from_data_list([graph])"
            hint = alone if isinstance(batch, Data) else "; of a loader of (batch, y), pass unpack=lambda item: item[0]"
        kind = type(batch).__name__
        raise InputTypeError(f"expected a torch_geometric.data.Batch of whole graphs, got {kind}{hint}.")
    if batch.get("x") is None:
        raise InputError("these graphs have no node features `x`; add them, as load_dataset does.")


def members_of(batch: Any) -> tuple[Batch, Batch]:
    """Return the batches of first and second members of a pair; of any other batch, the batch twice. Check both."""
    one, two = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, batch)
    check_batch(one)
    check_batch(two)
    return one, two


def assemble(
    like: type[Data],
    fields: Mapping[str, Any],
    slices: Mapping[str, Any] | None,
    incs: Mapping[str, Any],
    ptr: Tensor,
    batch: Tensor,
    keep_num_nodes: bool = False,
) -> Batch:
    """Return a PyG `Batch` made of attributes that are already concatenated over graphs.

    Args:
        like: class of the graphs that `to_data_list()` returns.
        fields: concatenated value of each attribute; `edge_index` holds node indices within the batch.
        slices: boundaries `[B + 1]` of the graphs in each attribute; None for a batch that cannot be split.
        incs: offsets `[B]` that batching added to each attribute; zeros for attributes without an entry.
        ptr: node boundaries of the graphs, `[B + 1]`, from 0 to N.
        batch: graph of each node, `[N]`.
        keep_num_nodes: whether to store `num_nodes` in the graphs as an attribute.
    """
    out = type.__call__(_PLAIN) if like is Data else Batch(_base_cls=like)
    num_graphs = ptr.numel() - 1
    out._store._mapping.update(fields)  # `out[key] = value` would take longer than all else here
    if keep_num_nodes:
        out._store._num_nodes = ptr.diff().tolist()
        out.num_nodes = batch.numel()
    out._store._mapping.update(batch=batch, ptr=ptr)
    out._store._num_graphs = num_graphs
    if slices is not None:
        none_added = torch.zeros(num_graphs, dtype=torch.long) if slices.keys() - incs.keys() else None
        bookkeeping(out, slices, {key: incs.get(key, none_added) for key in slices})
    return out


def split(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """Return `batch` split into consecutive batches of `sizes[0]`, `sizes[1]`, ... graphs, mostly without copying.

    `batch` comes from the resident loader, or is an augmented view of such a batch. `sizes` add up to its graphs.
    """
    if len(sizes) == 1:
        return [batch]
    slices, incs = bookkeeping(batch)
    assert slices is not None
    # Boundaries are on the CPU, and attributes of nodes, of edges and of graphs share theirs.
    ptr = torch.cat([incs["edge_index"], torch.tensor([batch.num_nodes])]) if batch.ptr.is_cuda else batch.ptr
    bounds, ends = torch.tensor([0, *accumulate(sizes)]), [size + 1 for size in sizes]
    cuts: dict[int, list[int]] = {}  # the first row of each part
    part_ptrs: dict[int, Sequence[Tensor]] = {}  # of the graphs in each part, from 0
    for boundaries in (ptr, *slices.values()):
        if id(boundaries) not in cuts:
            cuts[id(boundaries)] = boundaries.index_select(0, bounds).tolist()
            part_ptrs[id(boundaries)] = _rebased(boundaries, bounds).split_with_sizes(ends)
    first_nodes = cuts[id(ptr)]

    columns: dict[str, Sequence[Any]] = {}
    for key, boundaries in slices.items():
        value, cut = batch._store[key], cuts[id(boundaries)]
        if isinstance(value, Tensor):
            shifted = incs[key] is not None and counts_nodes(key)
            columns[key] = _cut(value, cut, first_nodes if shifted else None, batch.__cat_dim__(key, value) or 0)
        else:
            columns[key] = [value[start:stop] for start, stop in pairwise(cut)]
    graph_cut = bounds.tolist()
    graphs = _cut(batch.batch, first_nodes, graph_cut)
    ptrs = part_ptrs[id(ptr)]
    if batch.ptr.is_cuda:
        ptrs = to_device(torch.cat(list(ptrs)), batch.ptr.device).split_with_sizes(ends)
    part_incs: dict[str, Sequence[Tensor | None]] = {}
    for key, inc in incs.items():
        shift = first_nodes if counts_nodes(key) else None
        part_incs[key] = [None] * len(sizes) if inc is None else _cut(inc, graph_cut, shift)
    keep_num_nodes = "num_nodes" in batch._store
    parts = []
    for number in range(len(sizes)):
        fields = {key: column[number] for key, column in columns.items()}
        slices_of = {key: part_ptrs[id(boundaries)][number] for key, boundaries in slices.items()}
        incs_of = {key: column[number] for key, column in part_incs.items()}
        layout = ptrs[number], graphs[number], keep_num_nodes
        parts.append(assemble(graph_class(batch), fields, slices_of, incs_of, *layout))
    return parts


def twice(batch: Batch) -> Batch:
    """Return the graphs of `batch`, and then the same graphs again; `batch` comes from the resident loader."""
    slices, incs = bookkeeping(batch)
    assert slices is not None
    counts = {"batch": batch.num_graphs} | {key: batch.num_nodes for key in slices if counts_nodes(key)}

    def joined(key: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return [*value, *value]
        dim = batch.__cat_dim__(key, value) or 0
        return torch.cat([value, value + counts[key] if key in counts else value], dim)

    fields = {key: joined(key, batch[key]) for key in slices}
    ends = {id(part): torch.cat([part, part[1:] + part[-1]]) for part in slices.values()}
    shifts = {key: inc if inc is None else torch.cat([inc, inc + counts.get(key, 0)]) for key, inc in incs.items()}
    ptr = torch.cat([batch.ptr, batch.ptr[1:] + batch.num_nodes])
    parts = {key: ends[id(part)] for key, part in slices.items()}
    layout = ptr, joined("batch", batch.batch), "num_nodes" in batch._store
    return assemble(graph_class(batch), fields, parts, shifts, *layout)


def _cut(value: Tensor, cut: list[int], offsets: list[int] | None = None, dim: int = 0) -> Sequence[Tensor]:
    """Return the rows cut[i] .. cut[i + 1] - 1 of `value` for each i, minus offsets[i]."""
    counts = [stop - start for start, stop in pairwise(cut)]
    if offsets is not None and value.is_cuda:  # in one operation for all parts, as each costs a launch
        shift = repeat(torch.tensor(offsets[: len(counts)]), torch.tensor(counts), value.device)
        value, offsets = value - shift.to(value.dtype), None
    parts = value.split_with_sizes(counts, dim)
    return parts if offsets is None else [part - offset for part, offset in zip(parts, offsets, strict=False)]


def _rebased(ptr: Tensor, bounds: Tensor) -> Tensor:
    """Return the boundaries ptr[a] .. ptr[b] of each part a .. b between `bounds`, minus ptr[a], concatenated."""
    if native.takes(ptr):
        return native.rebase(ptr, bounds)
    starts, counts = bounds[:-1], bounds.diff() + 1
    return ptr[ranges(starts, counts)] - ptr[repeat(starts, counts)]


def with_entries(batch: Batch, key: str, values: Tensor) -> Batch:
    """Return a shallow copy of `batch` with `values [B]`, one entry per graph, as the attribute `key`."""
    out = copy.copy(batch)
    out[key] = values
    slices, incs = bookkeeping(batch)
    if slices is not None:
        count = values.size(0)
        none_added = torch.zeros(count, dtype=torch.long)
        bookkeeping(out, {**slices, key: torch.arange(count + 1)}, {**incs, key: none_added})
    return out


def graph_class(batch: Batch) -> type[Data]:
    """Return the class of the graphs that `batch.to_data_list()` returns."""
    cls: type[Data] = type(batch).__bases__[-1]
    return cls


def counts_nodes(key: str) -> bool:
    """Return whether PyG treats the attribute `key` as node indices, which it shifts when batching."""
    return "index" in key or key == "face"
