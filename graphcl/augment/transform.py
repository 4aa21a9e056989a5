"""Base class of augmentations, a PyG transform that draws a decision and applies it; the identity; pairs of views.

A decision holds the random draws. Applying it is deterministic and can be repeated: `select` cuts the kept nodes and
edges out of a batch.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from graphcl.arguments import named_arguments, shown
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs import native
from graphcl.graphs.batching import Layout, as_batch, assemble, bookkeeping, counts_nodes, graph_class
from graphcl.graphs.segment import nonzero, pick, pointers
from graphcl.registry import augmentations

Graphs = TypeVar("Graphs")  # `Batch` or `Data`; an augmentation returns the type of its input
_REBUILT = {"batch", "ptr", "num_nodes"}
_NODE_LEVEL = ("x", "pos")


@dataclass(frozen=True)
class Decision:
    """Changes to a batch of N nodes and E directed edges; a field that is None changes nothing.

    Args:
        keep_node: mask `[N]` of the nodes to keep.
        keep_edge: mask `[E]` of the edges to keep; edges of removed nodes are always removed.
        moved: indices `[K]` of the edges to rewire; the edges keep their attributes.
        moved_to: new sources and targets `[2, K]` of the rewired edges, within the same graph.
        masked: indices `[M]` of the nodes whose features are replaced.
        features: new features `[M, F]` of the masked nodes.
        then: decision to apply to the resulting batch; its indices refer to the resulting batch.
    """

    keep_node: Tensor | None = None
    keep_edge: Tensor | None = None
    moved: Tensor | None = None
    moved_to: Tensor | None = None
    masked: Tensor | None = None
    features: Tensor | None = None
    then: Decision | None = None


@named_arguments
def apply_decision(batch: Batch, decision: Decision) -> Batch:
    """Return `batch` changed by `decision`, with the same graphs in the same order. `batch` itself is not changed."""
    while decision.then is not None:
        batch, decision = apply_decision(batch, replace(decision, then=None)), decision.then
    if all(change is None for change in vars(decision).values()):
        return batch
    layout = Layout.of(batch)
    changed = {"edge_index": layout.edge_index}
    if decision.moved is not None and decision.moved_to is not None:
        changed["edge_index"] = layout.edge_index.clone()
        for ends, to in zip(changed["edge_index"], decision.moved_to, strict=True):
            ends.index_copy_(0, decision.moved, to)
    if decision.masked is not None and decision.features is not None:
        changed["x"] = batch.x.index_copy(0, decision.masked, decision.features)
    return select(batch, layout, decision.keep_node, decision.keep_edge, changed)


def as_augmentation(view: Any, argument: str = "augmentation") -> Any:
    """Return the augmentation named `view` with its default arguments; return any other callable unchanged.

    Raises:
        InputError: the name is unknown, or the augmentation has required arguments.
        InputTypeError: `view` is a registered class or function that was not called, or is not an augmentation.
    """
    rule = f"`{argument}` must be an augmentation"
    if isinstance(view, str):
        if required := [name for name in augmentations.arguments(view).required if name != "self"]:
            raise InputError(f"augmentation `{view}` needs `{'` and `'.join(required)}`; pass an object instead.")
        return augmentations[view]()
    if isinstance(view, Augmentation):
        return view
    if isinstance(view, type) or view in augmentations.values():
        raise InputTypeError(f"{rule}; call {view.__name__}, as in {view.__name__}().")
    if isinstance(view, BaseTransform):
        kind = type(view).__name__
        raise InputTypeError(f"{rule} of whole batches, got PyG's {kind}; wrap it: PerGraph({kind}(...)).")
    if not callable(view):
        raise InputTypeError(f"{rule} or the name of one, got {shown(view)}.")
    return view


class Augmentation(BaseTransform):
    """Random augmentation of all graphs in a batch.

    Called on a `Batch`, it returns a `Batch` with the same graphs in the same order, each with at least one node.
    Called on a `Data`, for example as `transform=` of a data set, it returns a `Data`. The input is never changed.

    A subclass implements `decide` and stores each argument of its constructor as an attribute of the same name. If both
    views have the same class and arguments, training on CUDA makes them in one call, on a batch with each graph twice.
    """

    def __call__(self, data: Graphs, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Graphs:
        """Return an augmented copy of `data`, a batch or a single graph.

        Args:
            data: PyG `Batch` or `Data`.
            generator: source of randomness, on the device of `data`; torch's global generator by default.
            graphs: mask `[B]` of the graphs to augment; all by default.

        Raises:
            InputTypeError: `data` is not a homogeneous PyG graph or batch.
            InputError: `data` lacks an attribute that the augmentation needs.
        """
        batch = as_batch(data)
        view: Any = self.augment(batch, generator, graphs)
        if isinstance(data, Batch):
            return view
        out: Any = copy.copy(data)  # graph-level attributes do not change
        for key, level in levels(view, Layout.of(view)).items():
            if level != "other":
                out[key] = view[key]  # batching a single graph shifts no indices, so none need to be shifted back
        if "num_nodes" in view:
            out.num_nodes = view.num_nodes
        return out

    def forward(self, data: Graphs) -> Graphs:
        """Return an augmented copy of `data`; PyG's `BaseTransform` requires this method."""
        return self(data)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Draw a decision and return `batch` changed by it."""
        with Layout.shared(batch):
            return apply_decision(batch, self.decide(batch, generator, graphs))

    @abstractmethod
    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a random decision for `batch`, to be applied by `apply_decision`. `batch` is not changed."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"


@augmentations.register("identity")
class Identity(Augmentation):
    """Leave every graph unchanged.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> graph = FakeDataset(num_graphs=1)[0]
        >>> Identity()(graph).num_nodes == graph.num_nodes
        True
    """

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision that changes nothing."""
        return Decision()


@named_arguments
def two_views(
    batch: Batch | Sequence[Batch],
    first: Augmentation | str,
    second: Augmentation | str,
    generator: torch.Generator | None = None,
) -> tuple[Batch, Batch]:
    """Return two views of `batch`; graph i of one view is the positive of graph i of the other.

    Args:
        batch: the graphs, which are not changed; or a pair of batches, of which each gives one view.
        first: augmentation of the first view, or its name; `Identity()` for the original graphs.
        second: augmentation of the second view, or its name.
        generator: source of randomness, on the device of `batch`.
    """
    one, two = batch if isinstance(batch, tuple | list) else (batch, batch)
    return as_augmentation(first, "first")(one, generator), as_augmentation(second, "second")(two, generator)


def alike(one: Any, two: Any) -> bool:
    """Return whether two augmentations, or two arguments of them, are the same or have the same class and arguments."""
    if one is two or type(one) is not type(two):
        return one is two
    if isinstance(one, Augmentation):
        return alike([*vars(one).items()], [*vars(two).items()])
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    return isinstance(one, str | float | int) and one == two


# -- the kept nodes and edges of a batch -------------------------------------------------------------------------------


def levels(batch: Batch, layout: Layout) -> dict[str, str]:
    """Return the level of each attribute (`node`, `edge` or `other`), inferred from its size and name."""
    slices = bookkeeping(batch)[0] or {}
    level = {}
    rebuilt = _rebuilt(batch)
    for key, value in batch._store.items():
        if key in rebuilt:
            continue
        level[key] = "other"
        if not isinstance(value, Tensor) or value.dim() == 0:
            continue
        dim = batch.__cat_dim__(key, value)
        size = value.size(dim) if isinstance(dim, int) else -1
        node, edge = size == layout.num_nodes, size == layout.num_edges
        named_node, named_edge = key in _NODE_LEVEL or key.startswith("node_"), key.startswith("edge")
        # Reading the parts' sizes synchronises with the device, so do it only if the name does not show the level.
        if (node or edge) and not (named_node or named_edge):
            parts = slices[key].cpu() if key in slices else None
            if size == layout.num_graphs and (parts is None or torch.equal(parts, torch.arange(size + 1))):
                continue  # one entry per graph, or most likely so, hence `other`
            node = node and (parts is None or torch.equal(parts, layout.ptr.cpu()))
            edge = edge and (parts is None or torch.equal(parts, slices["edge_index"].cpu()))
        if node and edge:
            node, edge = not named_edge, named_edge
        if node or edge:
            level[key] = "node" if node else "edge"
    return level


def select(
    batch: Batch, layout: Layout, keep_node: Tensor | None, keep_edge: Tensor | None, changed: Mapping[str, Tensor]
) -> Batch:
    """Return a new batch of the kept nodes and edges of `batch`. All graphs stay; node indices are renumbered.

    The masks are those of `restrict`. `changed` holds new values of `edge_index [2, E]` and of other attributes.
    """
    fields = {key: value for key, value in batch._store.items() if key not in _REBUILT} | dict(changed)
    edge_index = fields["edge_index"]
    all_slices, incs = bookkeeping(batch)
    slices = {key: part for key, part in (all_slices or {}).items() if key not in _REBUILT}
    incs = dict(incs)
    level = levels(batch, layout)
    if keep_node is not None:
        _refuse_node_indices(batch)
    with_edges = any(where == "edge" and key != "edge_index" for key, where in level.items())
    part = restrict(layout, edge_index, keep_node, keep_edge, with_edges)
    cuts = part.cuts or (part.ptr, part.edge_ptr)
    for key, where in level.items():
        kept, ptr, cut = (part.nodes, part.ptr, cuts[0]) if where == "node" else (part.edges, part.edge_ptr, cuts[1])
        if where == "other" or ptr is None or (where == "node" and kept is None):
            continue
        if kept is not None and key != "edge_index":
            fields[key] = pick(fields[key], kept, batch.__cat_dim__(key, fields[key]))
        if key in slices:
            slices[key] = cut
        if f"{key}_ptr" in fields:
            fields[f"{key}_ptr"] = ptr
            fields[f"{key}_batch"] = part.batch if where == "node" else pick(part.batch, part.edge_index[0])
    fields["edge_index"] = part.edge_index
    if part.cuts is not None:
        incs["edge_index"] = cuts[0][:-1]
    # Without a node-level attribute, PyG cannot infer the number of nodes, so store `num_nodes`.
    inferable = any(where == "node" and (key in _NODE_LEVEL or "node" in key) for key, where in level.items())
    keep_num_nodes = "num_nodes" in batch._store or not inferable
    parts = slices if all_slices is not None else None
    return assemble(graph_class(batch), fields, parts, incs, part.ptr, part.batch, keep_num_nodes)


def _rebuilt(batch: Batch) -> set[str]:
    """Return the names of attributes that batching creates: `_REBUILT` and the attributes of `follow_batch`."""
    keys = set(batch._store.keys())  # once, as `key in batch` lists all keys at every call
    return _REBUILT | {f"{key}_{suffix}" for key in keys for suffix in ("batch", "ptr")} & keys


def _refuse_node_indices(batch: Batch) -> None:
    own_rules = graph_class(batch).__inc__ is not Data.__inc__
    for key in set(batch._store.keys()) - {"edge_index", *_rebuilt(batch)}:
        value = batch[key]
        shifted = own_rules and isinstance(value, Tensor) and bool(torch.as_tensor(batch.__inc__(key, value)).any())
        if counts_nodes(key) or shifted:
            raise InputError(
                f"`{key}` holds node indices, which an augmentation that removes nodes would leave dangling; "
                f"remove it from the graphs before augmenting."
            )


@dataclass(frozen=True)
class Part:
    """The kept N' nodes and E' edges of a batch of N nodes and E edges.

    Args:
        nodes: indices of the kept nodes in the batch, `[N']`; None if all are kept.
        ptr: boundaries of the graphs in the kept nodes, `[B + 1]`, from 0 to N'.
        batch: graph of each kept node, `[N']`.
        edges: indices of the kept edges in the batch, `[E']`; None if all are kept or the indices were not requested.
        edge_ptr: boundaries of the graphs in the kept edges, `[B + 1]`, from 0 to E'; None if all edges are kept.
        edge_index: kept edges `[2, E']`, with nodes numbered 0 .. N' - 1.
        cuts: `ptr` and `edge_ptr` on the CPU; None if nothing is removed.
    """

    nodes: Tensor | None
    ptr: Tensor
    batch: Tensor
    edges: Tensor | None
    edge_ptr: Tensor | None
    edge_index: Tensor
    cuts: tuple[Tensor, Tensor] | None = None


def restrict(
    layout: Layout, edge_index: Tensor, keep_node: Tensor | None, keep_edge: Tensor | None, with_edges: bool = True
) -> Part:
    """Return the part of a batch that both masks keep. Edges of removed nodes are always removed.

    The edges `edge_index [2, E]` may be others than those of the layout, in the same graphs. The masks `keep_node [N]`
    and `keep_edge [E]` are None to keep all. `with_edges` tells whether `Part.edges` is needed.
    """
    ptr, batch, edge_ptr = layout.ptr, layout.batch, layout.edge_ptr
    if keep_node is None and keep_edge is None:
        return Part(None, ptr, batch, None, None, edge_index)
    nodes = name = None
    # the loops read as many edges as the layout has
    same_size = edge_index.shape == layout.edge_index.shape
    if layout.compiled and edge_ptr is not None and same_size and native.takes(edge_index):
        keep_node, keep_edge = native.mask(keep_node, batch.numel()), native.mask(keep_edge, edge_index.size(1))
        new_ptr = ptr
        if keep_node is not None:
            name, nodes, batch, new_ptr = native.keep_nodes(keep_node, ptr)
        left, edge_ptr, edges = native.keep_edges(ptr, edge_index, edge_ptr, keep_edge, keep_node, name, with_edges)
        return Part(nodes, new_ptr, batch, edges, edge_ptr, left, (new_ptr, edge_ptr))
    graphs = batch
    if keep_node is not None:
        inside = pick(keep_node, edge_index.reshape(-1)).view(2, -1).all(dim=0)
        keep_edge = inside if keep_edge is None else keep_edge & inside
        first = pointers(keep_node)  # the new index of each kept node
        ptr = pick(first, ptr)
    assert keep_edge is not None
    before = pointers(keep_edge)
    if edge_ptr is None:
        edge_counts = torch.zeros_like(ptr[1:]).scatter_add_(0, pick(graphs, edge_index[0]), keep_edge.long())
        edge_ptr = pointers(edge_counts)
    else:
        edge_ptr = pick(before, edge_ptr)
    # Read both boundaries at once: the only time that the host waits for the device.
    cuts = (ptr, edge_ptr) if ptr.device.type == "cpu" else tuple(torch.stack([ptr, edge_ptr]).cpu())
    edges = nonzero(keep_edge, int(cuts[1][-1]), before)
    left = pick(edge_index, edges, dim=1)
    if keep_node is not None:
        nodes = nonzero(keep_node, int(cuts[0][-1]), first)
        batch = pick(batch, nodes)
        left = pick(first, left.view(-1)).view(2, -1)
    return Part(nodes, ptr, batch, edges, edge_ptr, left, (cuts[0], cuts[1]))
