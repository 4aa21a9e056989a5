"""Load data sets of the Open Graph Benchmark (OGB) for graph property prediction, with their splits.

root/ogbg_molhiv/raw/*.csv.gz, split/scaffold/*.csv.gz, mapping/*, RELEASE_v1.txt      files of OGB's archive
root/ogbg_molhiv/processed/geometric_data_processed.pt      PyG's collated form, read by later loads
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from graphcl.datasets.cache import checked_split, load_archive, open_reader
from graphcl.datasets.collate import check_store
from graphcl.datasets.dataset import Benchmark, Collated
from graphcl.datasets.names import listing, suggestion
from graphcl.datasets.sources import Graphs, Request, Source
from graphcl.errors import InputError
from graphcl.registry import datasets, sources
from graphcl.system.optional import import_ogb

NAMES = (
    "ogbg-molbace", "ogbg-molbbbp", "ogbg-molchembl", "ogbg-molclintox", "ogbg-molesol", "ogbg-molfreesolv",
    "ogbg-molhiv", "ogbg-mollipo", "ogbg-molmuv", "ogbg-molpcba", "ogbg-molsider", "ogbg-moltox21", "ogbg-moltoxcast",
    "ogbg-ppa",
)  # fmt: skip
"""Sets of many graphs with classes or numbers; all but the last are of molecules."""
datasets.reserve(*NAMES)


@sources.register("ogb")
class Ogb(Source):
    """Set of the Open Graph Benchmark, with its split and metric."""

    place = 60
    settings = frozenset({"mirror"})
    names = NAMES

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` begins as one of OGB's names."""
        return isinstance(source, str) and source.lower().startswith(("ogbg-", "ogbn-", "ogbl-"))

    def usual(self, source: Any) -> dict[str, Any]:
        """Return the usual evaluator, and the usual encoder of molecules."""
        return {"eval": ["ogb"]} if source == "ogbg-ppa" else {"eval": ["ogb"], "encoder": "molecule_gine"}

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the set, whose `x` holds category indices, from the cache or from OGB's archive."""
        if source not in NAMES:
            advice = f"{suggestion(source, NAMES)}known: {listing(NAMES, 20)}"
            raise InputError(f"{source!r} is not one of OGB's sets of many graphs with classes or numbers; {advice}.")

        def parse(root: Path, prepare: bool) -> tuple[Collated, Benchmark]:
            return _read(source, root, prepare)

        graphs, benchmark = load_archive(source, import_ogb(), request.data_root, request.mirror, parse)
        return Graphs(source, *graphs, benchmark, True)


def _read(name: str, root: Path, prepare: bool) -> tuple[Collated, Benchmark]:
    reader, split = open_reader(import_ogb().PygGraphPropPredDataset, name, root, prepare)
    data, slices = reader._data, reader.slices
    num_graphs = slices["y"].numel() - 1
    benchmark = Benchmark(checked_split(split, num_graphs), reader.task_type, reader.eval_metric, reader.num_tasks)
    if data.y.shape != (num_graphs, benchmark.num_tasks):
        raise InputError(f"y must be [{num_graphs}, {benchmark.num_tasks}], got {list(data.y.shape)}")
    if prepare:
        check_store(data, slices, name)
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    sizes = {"x": get_atom_feature_dims(), "edge_attr": get_bond_feature_dims()} if "mol" in name else {}
    for key, most in sizes.items():  # the encoder's embedding tables lack other categories
        values = data[key]
        wrong = ((values < 0) | (values >= torch.tensor(most))).any(dim=1).nonzero()
        if wrong.numel():
            raise InputError(f"row {int(wrong[0])} of `{key}`, {values[wrong[0, 0]].tolist()}, is beyond {most}")
    return (data, slices), benchmark
