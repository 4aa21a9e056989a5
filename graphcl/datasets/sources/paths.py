"""Read graphs from files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphcl.datasets.networks import SUFFIXES, read_networks
from graphcl.datasets.own import collate_file, read_graphs
from graphcl.datasets.settings import Attributes
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.datasets.sources.objects import collate_objects
from graphcl.errors import InputError
from graphcl.graphs.columns import read_vectors, standardised_vectors
from graphcl.registry import sources

_IGNORED = ("pre_transform.pt", "pre_filter.pt")
"""Files that PyG writes next to the graphs."""


@sources.register("torch_file", takes="a .pt file of InMemoryDataset.save (a pickle can hold code)")
class TorchFile(Source):
    """File of `InMemoryDataset.save`, or of one `Data` or a list of them; code in it is never run."""

    place = 100
    suffixes = (".pt",)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs in the file."""
        return Graphs(source.stem, *collate_file(source), directions=True)


@sources.register("network_file", takes="a .graphml, .gml or node-link .json file of networkx")
class NetworkFile(Source):
    """File of graphs that networkx wrote."""

    place = 100
    suffixes, settings = SUFFIXES, frozenset(Attributes.model_fields)

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs in the file."""
        return collate_objects(read_networks(source), source.stem, request)


@sources.register("folder", takes="a folder of .pt, .graphml, .gml or .json files")
class Folder(Source):
    """Folder of files, in the order of their names, which become the `id` of graphs without one.

    A `.pt` file holds one `Data` or a list of them. Next to other files, `.json` files are ignored.
    """

    place = 110
    settings = frozenset(Attributes.model_fields)

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` is a folder with such files."""
        return isinstance(source, Path) and bool(_kinds(source))

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of all files."""
        folder = source.resolve()
        suffix, *others = _kinds(folder)
        if others and others != [".json"]:
            raise InputError(f"folder {str(source)!r} holds {suffix} and {others[0]} files; keep one kind in a folder.")
        graphs: list[Any] = []
        for file in _files(folder, suffix):
            found = read_graphs(file) if suffix == ".pt" else read_networks(file)
            for place, graph in enumerate(found):
                known = graph if isinstance(graph, Data) else getattr(graph, "graph", {})
                if "id" not in known:
                    known["id"] = f"{file.stem}/{place}" if len(found) > 1 else file.stem
            graphs += found
        return collate_objects(graphs, folder.name, request)


@sources.register("vectors", takes="a .npy file of numbers [n, d], as targets of pairs")
class Vectors(Source):
    """Matrix of numbers; each row is a graph of one node, so that an encoder of graphs embeds it.

    The columns of `x` are standardised over all rows and clamped to -5 .. 5. A missing cell, NaN, is 0; then as
    many columns follow that are 1 where a cell has a number.
    """

    place = 100
    suffixes = (".npy",)

    def read(self, source: Any, request: Request) -> object:
        """Return the rows as graphs."""
        rows = torch.from_numpy(standardised_vectors(read_vectors(source))).float()
        present = ~rows.isnan()
        x = rows.nan_to_num()
        x = x if bool(present.all()) else torch.cat([x, present.float()], dim=1)
        one_each, none = torch.arange(len(x) + 1), torch.zeros(len(x) + 1, dtype=torch.long)
        edges = torch.zeros(2, 0, dtype=torch.long)
        return Graphs(source.stem, Data(x=x, edge_index=edges), {"x": one_each, "edge_index": none})


def _files(folder: Path, suffix: str) -> list[Path]:
    return sorted(file for file in folder.glob(f"*{suffix}") if file.name not in _IGNORED and file.name[0] != ".")


def _kinds(folder: Path) -> list[str]:
    """Return the suffixes of the files of graphs in a folder; `.json` is last, as it may hold anything."""
    return [suffix for suffix in (".pt", *SUFFIXES) if _files(folder, suffix)]
