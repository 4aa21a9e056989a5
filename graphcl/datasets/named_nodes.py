"""Load graphs whose nodes have classes by name, through PyG's own classes or through ogb.

| name | loaded by | features |
|---|---|---|
| `Amazon-Photo`, `Coauthor-CS`, `CitationFull-DBLP`, ... | PyG's class and its argument `name` | divided by their sum |
| `Actor`, `Flickr`, `Reddit`, `WikiCS` | PyG's class | as given |
| `ogbn-arxiv`, `ogbn-products` | ogb, with its split | as given |
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch_geometric.datasets
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import to_undirected

from graphcl.datasets.fetch import fetch_file, mirror_place
from graphcl.datasets.names import OGBN_NAMES
from graphcl.datasets.ogb import checked_split, facts_of, load_archive, open_reader
from graphcl.datasets.tu import no_pickles
from graphcl.errors import InputError, reason
from graphcl.system.optional import import_ogb

BAGS = ("Amazon", "CitationFull", "Coauthor")
"""Classes of PyG whose features are bags of words."""


def load_pyg_nodes(name: str, root: Path, mirror: str | os.PathLike[str] | None = None) -> Data:
    """Return the graph that PyG's class loads under `root`; `Amazon-Photo` is `Amazon(root / "Amazon", "Photo")`.

    Args:
        name: name of the class, and its argument `name` after a dash.
        root: absolute path of the folder of all data sets.
        mirror: folder or URL of the raw files; by default, PyG downloads them.

    Raises:
        InputError: a file cannot be downloaded or read.
    """
    kind, _, part = name.partition("-")
    missing: list[str] = []

    class Reader(getattr(torch_geometric.datasets, kind)):  # type: ignore[misc]
        """PyG's class, which also takes its raw files from a mirror."""

        def download(self) -> None:
            missing.extend(Path(path).name for path in self.raw_paths)
            if mirror is None:
                super().download()
                return
            place = mirror_place(mirror)
            for path in map(Path, self.raw_paths):
                if isinstance(place, Path):
                    shutil.copyfile(place / path.name, path)
                else:
                    fetch_file(f"{place.rstrip('/')}/{path.name}", path, "Pass a folder as `mirror` (--mirror).")

    transform = NormalizeFeatures() if kind in BAGS else None
    try:
        with no_pickles():
            warnings.filterwarnings("ignore", message="The .* dataset now returns an undirected graph")
            reader: Any = Reader(str(root / kind), *([part] if part else []), transform=transform)
        graph: Data = reader[0]
    except Exception as error:  # a damaged file can raise any exception
        advice = (
            f"get {', '.join(missing)} elsewhere and pass the folder as `mirror` (--mirror)"
            if missing
            else f"delete the folder {root / kind} and load again"
        )
        raise InputError(f"PyG's class {kind} cannot load {name} ({reason(error)}); {advice}.") from None
    return graph


def load_ogb_nodes(
    name: str, root: Path, mirror: str | os.PathLike[str] | None = None
) -> tuple[Data, dict[str, Tensor]]:
    """Return the graph of the OGB set `name`, with edges in both directions, and its split; see `load_ogb`.

    Raises:
        InputError: the set has no class per node or several graphs, or see `load_ogb`.
    """
    if name not in OGBN_NAMES:
        raise InputError(f"{name!r} is not supported; sets of one class per node: {', '.join(OGBN_NAMES)}.")
    package = import_ogb("nodeproppred")

    def parse(folder: Path) -> tuple[Data, dict[str, Tensor]]:
        reader, split = open_reader(package.PygNodePropPredDataset, name, folder)
        graph = reader[0]
        edges = to_undirected(graph.edge_index, num_nodes=graph.num_nodes)
        return Data(x=graph.x, edge_index=edges, y=graph.y.flatten()), checked_split(split, graph.num_nodes)

    return load_archive(name, facts_of(name, package), root, mirror, parse)
