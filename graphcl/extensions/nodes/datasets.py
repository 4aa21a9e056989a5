"""Load graphs whose nodes are contrasted and scored, instead of whole graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.collate import collate_graphs
from graphcl.datasets.dataset import GraphDataset, class_labels
from graphcl.datasets.names import suggestion
from graphcl.datasets.preparation import node_features
from graphcl.datasets.settings import NodeFeatures
from graphcl.datasets.sources import Request, Source
from graphcl.datasets.staging import allow_pyg_containers
from graphcl.datasets.store import check_store
from graphcl.errors import InputError, InputTypeError
from graphcl.extensions.nodes.named import NAMES, load_ogb_nodes, load_pyg_nodes, sbm
from graphcl.registry import sources
from graphcl.system.arrays import read_torch_file

Split = Mapping[str, Tensor]
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
"""Part of a split -> PyG's attribute with the mask of its nodes."""


class NodeDataset(GraphDataset):
    """PyG data set of one graph or a few, with one class `y` per node.

    Attributes:
        split: indices of the nodes in the parts `train`, `valid` and `test` of the public split; None without one.
    """

    rows: ClassVar[str] = "nodes"
    split: Split | None = None

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

    def __repr__(self) -> str:
        return super().__repr__().replace(f"{len(self)} graph", f"{self._data.x.size(0)} nodes, {len(self)} graph", 1)


@sources.register("nodes")
class Nodes(Source):
    """One graph or a few with a class per node: a name such as Cora, a `.pt` file, `Data`, or a PyG data set."""

    place = 40
    names = NAMES
    settings = frozenset({"mirror"})

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether nodes are wanted, or `source` is the name of a set of nodes."""
        return request.nodes or _is_name(source)

    def usual(self, source: str) -> dict[str, Any]:
        """Return the method of nodes."""
        return {"method": "grace"}

    def read(self, source: Any, request: Request) -> object:
        """Return the `NodeDataset`.

        Raises:
            InputError: nodes are not wanted, the name is unknown, `y` is not one class per node, or a graph is invalid.
        """
        if not request.nodes:
            advice = "use graphcl run --method grace, or load_dataset(..., nodes=True)"
            raise InputError(f"{source} is one graph, whose nodes are contrasted; {advice}.")
        split: Split | None = None
        name = str(source if isinstance(source, str) else getattr(source, "name", None) or "own")
        if isinstance(source, Path):
            if source.suffix != ".pt":
                raise InputError(
                    f"{str(source)!r} must be a .pt file of one graph or a few, whose nodes are contrasted."
                )
            name = source.stem
            allow_pyg_containers()
            source = read_torch_file(source, "save the graph with torch.save(data, path)")
            if isinstance(source, tuple) and source:  # of InMemoryDataset.save
                source = Data.from_dict(source[0]) if isinstance(source[0], dict) else source[0]
        elif isinstance(source, str):
            if source.startswith("ogbn-"):
                source, split = load_ogb_nodes(source, request.data_root, request.mirror)
            elif not _is_name(source):
                names = f"{suggestion(source, NAMES)}Known: {', '.join(NAMES)}, a .pt file"
                raise InputError(
                    f"{source!r} is not a known data set of nodes; {names}; of graphs: --method two_views."
                )
            elif source.startswith("sbm"):
                source, split = sbm(source)
            else:
                source = load_pyg_nodes(source, request.data_root, request.mirror)
        if not isinstance(source, Data | list | tuple | torch.utils.data.Dataset):
            kind = type(source).__name__
            raise InputTypeError(f"a data set of nodes must be one Data, a list or a PyG data set, got {kind}.")
        graphs: Any = [source] if isinstance(source, Data) else source
        return _prepare([graphs[number] for number in range(len(graphs))], name, split, request.settings)


def _is_name(source: object) -> bool:
    return isinstance(source, str) and (source in NAMES or re.fullmatch(r"sbm-\d{1,9}", source) is not None)


def _prepare(graphs: Sequence[Data], name: str, split: Split | None, settings: NodeFeatures) -> NodeDataset:
    """Check graphs and return them as a `NodeDataset`; the split is that of the graphs' masks, else `split`."""
    data, slices, ptr = check_store(*collate_graphs(graphs, name), name)
    split = _split(data, slices, ptr, name) or split
    y, n = data.get("y"), int(ptr[-1])
    y = y.flatten() if isinstance(y, Tensor) else [value for values in y or () for value in values]
    labels = class_labels(y, torch.arange(n + 1), n, name)
    if labels is None or (isinstance(y, Tensor) and int(y.min()) < 0):
        y = data.get("y")
        got = f"shape {list(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        rule = f"one class, from 0 on, for each of the {n} nodes (of whole graphs: --method two_views)"
        raise InputError(f"{name}: `y` must be {rule}, got {got}; leave nodes without a class out.")
    x, features, degrees = node_features(data, slices["edge_index"], ptr, settings, name)
    data.x, (data.y, classes) = x, labels
    slices = {key: cut for key, cut in slices.items() if key in data} | dict.fromkeys(("x", "y"), ptr.cpu())
    del data.num_nodes
    dataset = NodeDataset(data, slices, name, features, classes, degrees)
    dataset.split = split
    return dataset


def _split(data: Data, slices: Mapping[str, Tensor], ptr: Tensor, name: str) -> Split | None:
    """Return the indices in PyG's masks of `data`, which are removed; None without masks of one column."""
    masks = {part: data.get(mask) for part, mask in MASKS.items()}
    for key in set(MASKS.values()) & set(data.keys()):
        del data[key]
    if any(not isinstance(mask, Tensor) or mask.dim() != 1 for mask in masks.values()):
        return None
    for part, mask in masks.items():
        if not torch.equal(slices[MASKS[part]], ptr.cpu()) or ((mask != 0) & (mask != 1)).any():
            raise InputError(f"{name}: `{MASKS[part]}` must hold True or False for each node of a graph.")
    if bool((torch.stack(list(masks.values())).long().sum(dim=0) > 1).any()):
        raise InputError(f"{name}: the masks train_mask, val_mask and test_mask must not share a node.")
    return {part: mask.nonzero().squeeze(1) for part, mask in masks.items()}
