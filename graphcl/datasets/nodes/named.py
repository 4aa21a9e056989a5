"""Load graphs whose nodes have classes by name, through PyG's own classes or through ogb.

| name | loaded by | features |
|---|---|---|
| `Cora`, `CiteSeer`, `PubMed` | PyG's `Planetoid`, with its public split | divided by their sum |
| `Amazon-Photo`, `Coauthor-CS`, `CitationFull-DBLP`, ... | PyG's class and its argument `name` | divided by their sum |
| `Actor`, `Flickr`, `Reddit`, `WikiCS` | PyG's class | as given |
| `ogbn-arxiv`, `ogbn-products` | ogb, with its split | as given |

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

import torch_geometric.datasets
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import to_undirected

from graphcl.datasets.fetch import Mirror, fetch
from graphcl.datasets.names import OGBN_NAMES, PLANETOID_NAMES
from graphcl.datasets.ogb import checked_split, load_archive, open_reader
from graphcl.datasets.staging import Reader, load_cached, no_pickles
from graphcl.errors import InputError
from graphcl.system.optional import import_ogb

BAGS = ("Planetoid", "Amazon", "CitationFull", "Coauthor")
"""Classes of PyG whose features are bags of words."""


def load_pyg_nodes(name: str, root: Path, mirror: Mirror) -> Data:
    """Return the graph that PyG's class loads; edges are in both directions if the set is of `Planetoid`.

    `Cora` is `Planetoid(root, "Cora")`, `Amazon-Photo` is `Amazon(root / "Amazon-Photo", "Photo")`. Without a mirror,
    the raw files are from Planetoid's server, or PyG downloads them.
    """
    planetoid = name in PLANETOID_NAMES
    kind, _, part = ("Planetoid", "", name) if planetoid else name.partition("-")
    known: Any = getattr(torch_geometric.datasets, kind)

    class Loaded(Reader, known):
        def download(self) -> None:
            if mirror is None and not planetoid:
                super().download()
                return
            for path in map(Path, self.raw_paths):
                found = fetch(path.name, known.url, mirror, path.parent)
                if found != path:
                    shutil.copyfile(found, path)

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
        found = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        if hasattr(found, "check_format"):
            found.check_format(full_check=True)
        if isinstance(found, dict) and max(map(max, filter(None, found.values())), default=0) >= len(found):
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
