"""Load graphs whose nodes have classes by name, through PyG's own classes or through ogb, or generate one.

| name | loaded by | features |
|---|---|---|
| `Cora`, `CiteSeer`, `PubMed` | PyG's `Planetoid`, with its public split | divided by their sum |
| `Amazon-Photo`, `Coauthor-CS`, `CitationFull-DBLP`, ... | PyG's class and its argument `name` | divided by their sum |
| `Actor`, `Flickr`, `Reddit`, `WikiCS` | PyG's class | as given |
| `ogbn-arxiv`, `ogbn-products` | ogb, with its split | as given |
| `sbm`, `sbm-N` | generated, with N nodes | noise around the mean of the class |

What PyG's classes lack: a `mirror`, an atomic download and one process at a time (`graphcl.datasets.staging`). The
files of Planetoid are pickles of Python 2, which PyG loads without a check; a pickle can run code.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import torch_geometric.datasets
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import coalesce, to_undirected

from graphcl.datasets.fetch import Mirror, fetch
from graphcl.datasets.ogb import checked_split, load_archive, open_reader
from graphcl.datasets.staging import Reader, load_cached, no_pickles
from graphcl.errors import InputError
from graphcl.registry import datasets
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
