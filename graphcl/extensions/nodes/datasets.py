"""Load graphs whose nodes are contrasted and scored, instead of whole graphs: of the user, by name, or generated.

| name | loaded by | features |
|---|---|---|
| `Cora`, `CiteSeer`, `PubMed` | PyG's `Planetoid`, with its public split | divided by their sum |
| `Amazon-Photo`, `Coauthor-CS`, `CitationFull-DBLP`, ... | PyG's class and its argument `name` | divided by their sum |
| `Actor`, `Flickr`, `Reddit`, `WikiCS` | PyG's class | as given |
| `ogbn-arxiv`, `ogbn-products` | ogb, with its split | as given |
| `sbm`, `sbm-N` | generated, with N nodes | noise around the mean of the class |

What PyG's classes lack: a `mirror`, an atomic download and one process at a time (`graphcl.datasets.cache`). The
files of Planetoid are pickles of Python 2, which PyG loads without a check; a pickle can run code.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch_geometric.datasets
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import coalesce, to_undirected

from graphcl.datasets.cache import (
    Mirror,
    Reader,
    allow_pyg_containers,
    checked_split,
    fetch,
    load_archive,
    load_cached,
    no_pickles,
    open_reader,
)
from graphcl.datasets.collate import check_store, collate_graphs
from graphcl.datasets.dataset import GraphDataset, class_labels
from graphcl.datasets.names import suggestion
from graphcl.datasets.preparation import node_features
from graphcl.datasets.settings import NodeFeatures
from graphcl.datasets.sources import Request, Source
from graphcl.errors import InputError, InputTypeError
from graphcl.registry import datasets, sources
from graphcl.system.arrays import read_torch_file
from graphcl.system.optional import import_ogb

PLANETOID_NAMES = ("Cora", "CiteSeer", "PubMed")
"""Citation networks, each one graph whose nodes have classes."""
PYG_NAMES = (
    "Actor", "Amazon-Computers", "Amazon-Photo", "CitationFull-CiteSeer", "CitationFull-Cora", "CitationFull-Cora_ML",
    "CitationFull-DBLP", "CitationFull-PubMed", "Coauthor-CS", "Coauthor-Physics", "Flickr", "Reddit", "WikiCS",
)  # fmt: skip
"""Sets that PyG's own classes load: the name of the class, and the argument `name` after a dash."""
OGBN_NAMES = ("ogbn-arxiv", "ogbn-products")
"""Sets of the Open Graph Benchmark of one graph whose nodes have one class each."""
NAMES = (*PLANETOID_NAMES, *PYG_NAMES, *OGBN_NAMES, "sbm")
datasets.reserve(*NAMES)
BAGS = ("Planetoid", "Amazon", "CitationFull", "Coauthor")
"""Classes of PyG whose features are bags of words."""


def load_pyg_nodes(name: str, root: Path, mirror: Mirror) -> Data:
    """Return the graph that PyG's class loads; edges are in both directions if the set is of `Planetoid`.

    `Cora` is `Planetoid(root, "Cora")`, `Amazon-Photo` is `Amazon(root / "Amazon-Photo", "Photo")`. Without a mirror,
    the raw files are from Planetoid's server, or PyG downloads them.
    """
    planetoid = name in PLANETOID_NAMES
    kind, _, part = ("Planetoid", "", name) if planetoid else name.partition("-")
    base: Any = getattr(torch_geometric.datasets, kind)

    class Loaded(Reader, base):
        def download(self) -> None:
            if mirror is None and not planetoid:
                super().download()
                return
            for path in map(Path, self.raw_paths):
                file = fetch(path.name, base.url, mirror, path.parent)
                if file != path:
                    shutil.copyfile(file, path)

        def process(self) -> None:
            for path in map(Path, self.raw_paths[:-1] if planetoid else ()):
                _check_pickle(path)
            super().process()

    def read(home: Path, prepare: bool) -> Data:
        Loaded._prepare = prepare
        folder = home.parent if planetoid else home
        with no_pickles():
            warnings.filterwarnings("ignore", message="The .* dataset now returns an undirected graph")
            graph: Data = Loaded(str(folder), *([part] if part else []))[0]
        graph.validate()
        return graph

    graph = load_cached(root / name, read)
    if planetoid:
        graph.edge_index = to_undirected(graph.edge_index, num_nodes=graph.num_nodes)
    return NormalizeFeatures()(graph) if kind in BAGS else graph


class _Unpickler(pickle.Unpickler):
    """Unpickler that creates only what Planetoid's files hold: arrays, sparse matrices, lists and dictionaries."""

    _NAMES = ("_reconstruct", "ndarray", "dtype", "csr_matrix", "defaultdict", "list", "encode")
    _MODULES = ("numpy", "scipy", "collections", "__builtin__", "_codecs")

    def find_class(self, module: str, name: str) -> Any:
        if name not in self._NAMES or module.partition(".")[0] not in self._MODULES:
            raise InputError(f"it needs {module}.{name}, which no Planetoid file contains; it may hold code")
        return super().find_class(module, name)


def _check_pickle(path: Path) -> None:
    """Raise InputError if a file of Planetoid needs other classes, or indices that scipy would write out of bounds."""
    try:
        content = path.read_bytes()
        puts = (int(index or 0) for code, index, _ in pickletools.genops(content) if code.name.endswith("PUT"))
        if max(puts, default=0) > len(content):  # pickle would allocate 16 bytes for each smaller index
            raise InputError("it numbers more objects than it has bytes")
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        if hasattr(value, "check_format"):
            value.check_format(full_check=True)
        if isinstance(value, dict) and max(map(max, filter(None, value.values())), default=0) >= len(value):
            raise InputError("an edge joins a node that is not in the file")  # PyG would allocate one row per number
    except Exception as error:  # a damaged pickle can raise any exception
        raise InputError(f"{path.name} is damaged, or not a file of Planetoid: {error}") from None


def load_ogb_nodes(name: str, root: Path, mirror: Mirror) -> tuple[Data, dict[str, Tensor]]:
    """Return the graph of the OGB set `name`, with edges in both directions, and its split; see `load_ogb`."""
    if name not in OGBN_NAMES:
        raise InputError(f"{name!r} is not supported; sets of one class per node: {', '.join(OGBN_NAMES)}.")
    package = import_ogb("nodeproppred")

    def parse(root: Path, prepare: bool) -> tuple[Data, dict[str, Tensor]]:
        reader, split = open_reader(package.PygNodePropPredDataset, name, root, prepare)
        graph = reader[0]
        edges = to_undirected(graph.edge_index, num_nodes=graph.num_nodes)
        return Data(x=graph.x, edge_index=edges, y=graph.y.flatten()), checked_split(split, graph.num_nodes)

    return load_archive(name, package, root, mirror, parse)


def sbm(name: str) -> tuple[Data, dict[str, Tensor]]:
    """Return a graph with eight classes of equal size, and its split into training, validation and test nodes.

    Each of the 6.9 N edges starts at a random node. With probability 0.7 it ends at a random node of the same class,
    else at any random node. A node's 128 features are Gaussian noise of deviation 1 plus the mean of
    its class, of length 2, so features alone predict the class poorly. The training part has 20 nodes per class; 25 %
    of the other nodes are for validation, 75 % for testing. The graph depends on N only. With 169,343 nodes it has 1.17
    million edges, as many as ogbn-arxiv.

    Args:
        name: `sbm-N`, or `sbm` for 2,000 nodes.

    Raises:
        InputError: fewer than 400 nodes.

    References:
        Holland, Laskey and Leinhardt, "Stochastic Blockmodels: First Steps", Social Networks 1983.
    """
    n = int(name.partition("-")[2] or 2000)
    if n < 400:
        raise InputError(f"`{name}` must have at least 400 nodes, got {n}.")
    draw = torch.Generator().manual_seed(n)
    blocks, columns = 8, 128
    y = torch.arange(n) % blocks
    edges = int(n * 13.8 / 2)
    source, target = torch.randint(n, (2, edges), generator=draw)
    inside = torch.rand(edges, generator=draw) < 0.7
    # the nodes of a class are blocks apart
    target = torch.where(inside, (target // blocks * blocks + y[source]) % n, target)
    pairs = torch.stack([source, target])[:, source != target]
    centres = torch.nn.functional.normalize(torch.randn(blocks, columns, generator=draw)) * 2
    x = centres[y] + torch.randn(n, columns, generator=draw)
    order = torch.randperm(n, generator=draw)
    train, rest = order[: 20 * blocks], order[20 * blocks :]
    split = {"train": train, "valid": rest[: len(rest) // 4], "test": rest[len(rest) // 4 :]}
    return Data(x=x, edge_index=coalesce(torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=n), y=y), split


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
