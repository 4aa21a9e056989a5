"""PyG's `Batch` from the inside: the one place that reads and writes its private bookkeeping.

A `Batch` concatenates its graphs' attributes and remembers, per attribute, where each graph's part starts
(`_slice_dict`) and what was added to it (`_inc_dict`), so that `to_data_list()` can undo it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

from graphcl.errors import InputError, InputTypeError
from graphcl.graphs import native
from graphcl.graphs.restrict import restrict
from graphcl.graphs.segment import pick, pointers

_REBUILT = ("batch", "ptr", "num_nodes")
_NODE_LEVEL = ("x", "pos")


@dataclass(frozen=True)
class Layout:
    """Where the graphs of a batch lie.

    Args:
        ptr: first node of each graph, and N at the end, `[B + 1]`.
        batch: graph of each node, `[N]`.
        edge_index: the edges `[2, E]`, in any order.
        edge_ptr: first edge of each graph, and E at the end, `[B + 1]`, where the edges lie graph by graph; else None.
    """

    ptr: Tensor
    batch: Tensor
    edge_index: Tensor
    edge_ptr: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch) -> Layout:
        """The layout of a PyG batch."""
        if "edge_index" not in batch:
            raise InputError("augmentations need `edge_index`; other forms of adjacency are not supported.")
        edge_index = batch.edge_index
        if type(edge_index) is not Tensor:  # PyG's EdgeIndex carries metadata that an augmentation would invalidate
            edge_index = edge_index.as_tensor()
        ptr = batch.get("ptr")
        if ptr is None:
            ptr = pointers(torch.bincount(batch.batch, minlength=batch.num_graphs))
        edge_ptr = getattr(batch, "_slice_dict", {}).get("edge_index")
        if edge_ptr is not None:
            edge_ptr = edge_ptr.to(ptr.device, non_blocking=True)
        return cls(ptr, batch.batch, edge_index, edge_ptr)

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.batch.numel()

    @property
    def num_edges(self) -> int:
        """E, directed entries."""
        return self.edge_index.size(1)

    @cached_property
    def compiled(self) -> bool:
        """Whether the compiled loops of `graphcl.graphs.native` take this batch."""
        edge_ptr = self.edge_ptr
        if edge_ptr is None or not native.takes(self.ptr, edge_ptr, self.batch, self.edge_index):
            return False
        ends = int(self.ptr[-1]), int(edge_ptr[-1]), edge_ptr.numel()
        return ends == (self.num_nodes, self.num_edges, self.ptr.numel())

    @cached_property
    def nodes(self) -> Tensor:
        """Number of nodes of each graph, `[B]`."""
        return self.ptr.diff()

    @cached_property
    def edge_graph(self) -> Tensor:
        """Graph of each edge, `[E]`."""
        return pick(self.batch, self.edge_index[0])


def as_batch(data: Data | Batch) -> Batch:
    """`data` itself if it is a batch, a batch of one if it is a single graph."""
    if isinstance(data, HeteroData) or not isinstance(data, Data):
        raise InputTypeError(
            f"expected a homogeneous PyG `Data` or `Batch`, got {type(data).__name__}{unsupported(data)}."
        )
    return data if isinstance(data, Batch) else Batch.from_data_list([data])


def unsupported(graph: object) -> str:
    """What to say after the type of a graph that is of no use here, whatever it is put into; else nothing."""
    if isinstance(graph, HeteroData):
        return "; heterogeneous graphs are not supported, use its to_homogeneous()"
    return "; temporal graphs are not supported, make a Data of each period" if isinstance(graph, TemporalData) else ""


def check_batch(batch: object) -> None:
    """Refuse what is no batch of whole graphs with features.

    Raises:
        InputTypeError: a single graph, a sampled part of one, a heterogeneous or temporal one, a tuple, ...
        InputError: no features `x`.
    """
    if isinstance(batch, Data) and not isinstance(batch, Batch) and "input_id" in batch:
        raise InputTypeError(
            "expected a batch of whole graphs, got a part of one graph, as a NeighborLoader samples it; "
            "use PyG's DataLoader over a data set of graphs."
        )
    hint = unsupported(batch)
    if hint or not isinstance(batch, Batch):
        hint = hint or ("; use Batch.from_data_list([graph])" if isinstance(batch, Data) else "")
        kind = type(batch).__name__
        raise InputTypeError(f"expected a torch_geometric.data.Batch of whole graphs, got {kind}{hint}.")
    if batch.get("x") is None:
        raise InputError("these graphs have no node features `x`; give them some, as load_dataset does.")


def levels(batch: Batch, layout: Layout) -> dict[str, str]:
    """`node`, `edge` or `other` for each attribute, by its parts' sizes and, where those leave a doubt, its name."""
    slices: Mapping[str, Any] = getattr(batch, "_slice_dict", {})
    found = {}
    rebuilt = _rebuilt(batch)
    for key, value in batch._store.items():
        if key in rebuilt:
            continue
        found[key] = "other"
        if not isinstance(value, Tensor) or value.dim() == 0:
            continue
        dim = batch.__cat_dim__(key, value)
        size = value.size(dim) if isinstance(dim, int) else -1
        node, edge = size == layout.num_nodes, size == layout.num_edges
        named_node, named_edge = key in _NODE_LEVEL or key.startswith("node_"), key.startswith("edge")
        if (node or edge) and not (named_node or named_edge) and key not in slices and size == layout.num_graphs:
            continue  # most likely one entry a graph
        if (node or edge) and not (named_node or named_edge) and key in slices:
            # Looking at the parts' sizes waits for the device, so it is left to names that say nothing.
            parts = slices[key].cpu()
            if size == layout.num_graphs and torch.equal(parts, torch.arange(size + 1)):
                continue  # one entry a graph
            node = node and torch.equal(parts, layout.ptr.cpu())
            edge = edge and torch.equal(parts, slices["edge_index"].cpu())
        if node and edge:
            node, edge = not named_edge, named_edge
        if node or edge:
            found[key] = "node" if node else "edge"
    return found


def assemble(
    like: type[Data],
    fields: Mapping[str, Any],
    slices: Mapping[str, Any] | None,
    incs: Mapping[str, Any],
    ptr: Tensor,
    batch: Tensor,
    keep_num_nodes: bool = False,
) -> Batch:
    """A true PyG `Batch` from attributes that are concatenated already.

    Args:
        like: the class of the single graphs; `to_data_list()` gives it back.
        fields: attribute name -> concatenated value, `edge_index` counting nodes through the whole batch.
        slices: attribute name -> boundaries of the graphs' parts, `[B + 1]`; None if the batch cannot be taken apart.
        incs: attribute name -> what was added to each graph's part, `[B]`, where that is not zero.
        ptr: first node of each graph, and N at the end, `[B + 1]`.
        batch: graph of each node, `[N]`.
        keep_num_nodes: whether the graphs carry `num_nodes` as an attribute of their own.
    """
    out = _empty_batch(like)
    num_graphs = ptr.numel() - 1
    none_added = torch.zeros(num_graphs, dtype=torch.long)
    for key, value in fields.items():
        out[key] = value
    if keep_num_nodes:
        out._store._num_nodes = ptr.diff().tolist()
        out.num_nodes = batch.numel()
    out.batch, out.ptr = batch, ptr
    out._num_graphs = num_graphs
    if slices is not None:
        out._slice_dict = dict(slices)
        out._inc_dict = {key: incs.get(key, none_added) for key in slices}
    return out


def select(
    batch: Batch,
    layout: Layout,
    keep_node: Tensor | None,
    keep_edge: Tensor | None,
    edge_index: Tensor,
) -> Batch:
    """The batch restricted to some nodes and edges, attributes carried along, indices compact, graphs kept in place.

    Args:
        batch: the batch; it is not changed.
        layout: its layout.
        keep_node: mask `[N]`, or None for all.
        keep_edge: mask `[E]`, or None for all; edges that lose an end go in any case.
        edge_index: the edges `[2, E]` to restrict, in place of the batch's own.
    """
    fields = {key: value for key, value in batch._store.items() if key not in _REBUILT}
    known = getattr(batch, "_slice_dict", None)
    slices = {key: part for key, part in (known or {}).items() if key not in _REBUILT}
    incs = dict(getattr(batch, "_inc_dict", {}))
    level = levels(batch, layout)
    if keep_node is not None:
        _refuse_node_indices(batch)
    with_edges = any(where == "edge" and key != "edge_index" for key, where in level.items())
    compiled = layout.compiled and native.takes(edge_index)
    part = restrict(layout.ptr, layout.batch, edge_index, layout.edge_ptr, keep_node, keep_edge, with_edges, compiled)

    for key, where in level.items():
        kept, ptr = (part.nodes, part.ptr) if where == "node" else (part.edges, part.edge_ptr)
        if where == "other" or ptr is None or (where == "node" and kept is None):
            continue
        if kept is not None and key != "edge_index":
            fields[key] = pick(fields[key], kept, batch.__cat_dim__(key, fields[key]))
        if key in slices:
            slices[key] = ptr
        if f"{key}_ptr" in batch:
            fields[f"{key}_ptr"] = ptr
            fields[f"{key}_batch"] = part.batch if where == "node" else pick(part.batch, part.edge_index[0])
    fields["edge_index"] = part.edge_index
    incs["edge_index"] = part.ptr[:-1]
    # Where nothing else tells how many nodes a graph has, the number itself has to.
    told = any(where == "node" and (key in _NODE_LEVEL or "node" in key) for key, where in level.items())
    keep_num_nodes = "num_nodes" in batch._store or not told
    parts = slices if known is not None else None
    return assemble(_graph_class(batch), fields, parts, incs, part.ptr, part.batch, keep_num_nodes)


def split(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """A batch taken apart into batches of the next `sizes[0]`, `sizes[1]`, ... graphs; tensors are shared, not copied.

    Args:
        batch: a batch that the resident loader made, or a view of one.
        sizes: graphs in each part; they add up to the number of graphs.
    """
    if len(sizes) == 1:
        return [batch]
    bounds = [0, *accumulate(sizes)]
    slices, incs = batch._slice_dict, batch._inc_dict
    # One look at the device for each kind of boundary, not for each batch.
    cuts = {id(part): part[bounds].tolist() for part in [batch.ptr, *slices.values()]}
    first_nodes = cuts[id(batch.ptr)]
    parts = []
    for number, (start, stop) in enumerate(pairwise(bounds)):
        fields, part_slices, part_incs = {}, {}, {}
        for key, part in slices.items():
            low, high = cuts[id(part)][number : number + 2]
            value = batch[key]
            if isinstance(value, Tensor):
                fields[key] = value.narrow(batch.__cat_dim__(key, value) or 0, low, high - low)
                if incs[key] is not None and counts_nodes(key):
                    fields[key] = fields[key] - first_nodes[number]
                    part_incs[key] = incs[key][start:stop] - first_nodes[number]
            else:
                fields[key], part_incs[key] = value[low:high], None
            part_slices[key] = part[start : stop + 1] - low
        first, last = first_nodes[number : number + 2]
        ptr = batch.ptr[start : stop + 1] - first
        graph = batch.batch[first:last] - start
        keep_num_nodes = "num_nodes" in batch._store
        parts.append(assemble(_graph_class(batch), fields, part_slices, part_incs, ptr, graph, keep_num_nodes))
    return parts


def with_entries(batch: Batch, key: str, values: Tensor) -> Batch:
    """A shallow copy of a batch with one more attribute, an entry for each graph `[B]`; `split` carries it along."""
    out = copy.copy(batch)
    out[key] = values
    if (slices := getattr(batch, "_slice_dict", None)) is not None:
        count = values.size(0)
        out._slice_dict = {**slices, key: torch.arange(count + 1)}
        out._inc_dict = {**batch._inc_dict, key: torch.zeros(count, dtype=torch.long)}
    return out


def _empty_batch(like: type[Data]) -> Batch:
    """`Batch(_base_cls=like)`, which makes and inspects classes at each call; for plain `Data` once is enough."""
    return type.__call__(_plain_batch()) if like is Data else Batch(_base_cls=like)


@cache
def _plain_batch() -> type[Batch]:
    return type(Batch(_base_cls=Data))


def _graph_class(batch: Batch) -> type[Data]:
    cls: type[Data] = type(batch).__bases__[-1]
    return cls


def counts_nodes(key: str) -> bool:
    """Whether PyG takes the attribute for indices of nodes, and adds the number of nodes before a graph to it."""
    return "index" in key or key == "face"


def _rebuilt(batch: Batch) -> set[str]:
    """The attributes that follow from others: those of every batch, and the pairs that PyG's `follow_batch` adds."""
    followed = {f"{key}_{suffix}" for key in batch._store.to_dict() for suffix in ("batch", "ptr")}
    return {*_REBUILT, *(key for key in followed if key in batch)}


def _refuse_node_indices(batch: Batch) -> None:
    own_rules = _graph_class(batch).__inc__ is not Data.__inc__
    for key in set(batch._store.keys()) - {"edge_index", *_rebuilt(batch)}:
        value = batch[key]
        shifted = own_rules and isinstance(value, Tensor) and bool(torch.as_tensor(batch.__inc__(key, value)).any())
        if counts_nodes(key) or shifted:
            raise InputError(
                f"`{key}` holds node indices, which an augmentation that removes nodes would leave dangling; "
                f"remove it from the graphs before augmenting."
            )
