"""Load graphs whose nodes are contrasted and scored, instead of whole graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphcl.datasets.dataset import GraphDataset, class_labels
from graphcl.datasets.features import node_features
from graphcl.datasets.names import NODE_NAMES, PLANETOID_NAMES, PYG_NAMES, is_node_name, suggestion
from graphcl.datasets.nodes.named import load_ogb_nodes, load_pyg_nodes
from graphcl.datasets.nodes.sbm import sbm
from graphcl.datasets.own import collate_graphs
from graphcl.datasets.pyg import allow_pyg_containers
from graphcl.datasets.store import MASKS, check_finite, check_store
from graphcl.errors import InputError, InputTypeError
from graphcl.system.torch_file import read_torch_file


class NodeDataset(GraphDataset):
    """PyG data set of one graph or a few, with one class `y` per node.

    Attributes:
        split: indices of the nodes in the parts `train`, `valid` and `test` of the public split; None without one.
    """

    rows: ClassVar[str] = "nodes"
    split: Mapping[str, Tensor] | None = None

    @property
    def num_rows(self) -> int:
        """Number of nodes."""
        return len(self.y)

    def protocol(self) -> dict[str, Any]:
        """Return the public split for evaluators."""
        return {"split": self.split}

    def sample(self) -> list[Data]:
        """Return a part of the first graph, to try settings on: its first 64 nodes, numbered by `node_id`."""
        graph = self[0]
        part = graph.subgraph(torch.arange(min(64, graph.x.size(0))))
        part.node_id = torch.arange(part.x.size(0))
        return [part]

    def check_views(self, view1: Batch, view2: Batch) -> None:
        """Raise InputError if a view of `sample` does not keep every node, in order."""
        every = self.sample()[0].node_id
        for name, view in (("first", view1), ("second", view2)):
            if not torch.equal(view.node_id, every):
                raise InputError(
                    f"`views.{name}` removes nodes, so that row i of both views is not the same node; use edge_drop, "
                    "feature_mask, attribute_mask, edge_perturb or drop_and_mask."
                )

    def __repr__(self) -> str:
        return super().__repr__().replace(f"{len(self)} graph", f"{self._data.x.size(0)} nodes, {len(self)} graph", 1)


def load_nodes(
    source: Any, root: Path, mirror: str | os.PathLike[str] | None, features: str, max_degree: int
) -> NodeDataset:
    """Return the nodes of a named set, of a PyG data set, of one `Data`, of a list of a few, or of a `.pt` file.

    Args:
        source: see above.
        root: absolute path of the folder of all data sets.
        mirror: folder or URL of the files of a named set.
        features: see `load_dataset`, like `max_degree`.

    Raises:
        InputError: the name is unknown, `y` is not one class per node, or a graph is invalid.
    """
    split: Mapping[str, Tensor] | None = None
    name = source if isinstance(source, str) else getattr(source, "name", None) or "own"
    if is_node_name(source) or (isinstance(source, str) and source.startswith("ogbn-")):
        if source in (*PLANETOID_NAMES, *PYG_NAMES):
            data = load_pyg_nodes(source, root, mirror)
        else:
            data, split = load_ogb_nodes(source, root, mirror) if source.startswith("ogbn-") else sbm(source)
        graphs: Sequence[Data] = [data]
    elif isinstance(source, Data):
        graphs = [source]
    elif isinstance(source, str) and not source.endswith(".pt"):
        raise InputError(
            f"{source!r} is not a known data set of nodes; {suggestion(source, NODE_NAMES)}Known: "
            f"{', '.join(NODE_NAMES)}, a .pt file; for whole graphs, use --method two_views."
        )
    else:
        graphs = _graphs(source)
        name = Path(source).stem if isinstance(source, str) else name
    return prepare_nodes(graphs, str(name), split, features, max_degree)


def _graphs(source: Any) -> list[Data]:
    """Return the graphs of a list, of a PyG data set or of a `.pt` file."""
    if isinstance(source, str):
        allow_pyg_containers()
        source = read_torch_file(Path(source), "save the graph with torch.save(data, path)")
        if isinstance(source, tuple):  # of InMemoryDataset.save
            source = Data.from_dict(source[0]) if source and isinstance(source[0], dict) else list(source[:1])
    if isinstance(source, Data):
        return [source]
    if not isinstance(source, list | tuple | torch.utils.data.Dataset):
        raise InputTypeError(
            f"a data set of nodes must be one Data, a list or a PyG data set, got {type(source).__name__}."
        )
    return [source[i] for i in range(len(source))]  # type: ignore[arg-type]


def prepare_nodes(
    graphs: Sequence[Data], name: str, split: Mapping[str, Tensor] | None, features: str, max_degree: int
) -> NodeDataset:
    """Check graphs and return them as a `NodeDataset`; the split is `split`, else that of the graphs' masks.

    Raises:
        InputError: a graph or a mask is invalid, or `y` is not one whole number per node, from 0.
    """
    data, slices, ptr = check_store(*collate_graphs(graphs, name, least=1), name, least=1)
    split = split or _split(data, name)
    for mask in MASKS.values():
        if mask in data:
            del data[mask], slices[mask]
    y = data.get("y")
    n = int(ptr[-1])
    labels = class_labels(y.flatten(), torch.arange(n + 1), n) if isinstance(y, Tensor) else None
    if labels is None:
        found = "none" if y is None else f"shape {list(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{name}: `y` must be one class for each of the {n} nodes, got {found}; for classes of whole graphs, use "
            "--method two_views."
        )
    if unlabelled := int((y < 0).sum()):
        raise InputError(
            f"{name}: `y` of {unlabelled} nodes is negative, such as {int(y.min())}; number the classes from 0, or "
            "leave nodes without a class out."
        )
    x, features, degrees = node_features(data, slices["edge_index"], ptr, features, max_degree, name)
    check_finite(x, ptr, "x", name)
    data.x, (data.y, classes) = x, labels
    slices["x"] = slices["y"] = ptr.cpu()
    del data.num_nodes
    dataset = NodeDataset(data, slices, name, features, classes, degrees)
    dataset.split = split
    return dataset


def _split(data: Data, name: str) -> dict[str, Tensor] | None:
    """Return the indices in the masks of `data`, or None if it has no masks; raise InputError if they overlap."""
    masks = {part: data.get(mask) for part, mask in MASKS.items()}
    if any(not isinstance(mask, Tensor) or mask.dim() != 1 for mask in masks.values()):
        return None
    if bool((torch.stack(list(masks.values())).bool().long().sum(dim=0) > 1).any()):
        raise InputError(f"{name}: the masks train_mask, val_mask and test_mask must not share a node.")
    return {part: mask.nonzero().squeeze(1) for part, mask in masks.items()}
