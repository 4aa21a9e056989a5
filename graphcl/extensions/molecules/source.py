"""Read molecules: parse a table of SMILES, warn of repeated molecules, and split them; load OGB's sets of graphs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.cache import checked_split, load_archive, open_reader
from graphcl.datasets.collate import check_store
from graphcl.datasets.dataset import Benchmark, Collated, GraphDataset
from graphcl.datasets.names import listing, suggestion
from graphcl.datasets.sources import Graphs, Pieces, Request, Source
from graphcl.errors import InputError
from graphcl.extensions.molecules import MoleculeSettings, import_rdkit
from graphcl.extensions.molecules.parse import MoleculeGraphs, Parser, concatenate, is_classes, parse_by
from graphcl.extensions.molecules.table import SUFFIXES, Table, find, is_molecules, is_smiles, read_table
from graphcl.graphs.wl import first_colours, refine
from graphcl.registry import datasets, sources
from graphcl.system.optional import import_ogb

_SETTINGS = ("id", "target", "group", "invalid", "split", "metric")
TRAIN, VALID = 0.8, 0.1
"""Fractions of the graphs in the training and the validation part."""
DEPTH = 3
"""Radius in bonds of the atoms' surroundings that the keys of repeated molecules compare."""
_TASKS = {"rocauc": "binary classification", "ap": "binary classification", "acc": "classification"}
"""Metric of a split -> kind of task; others are of regression."""


@sources.register("molecules", takes=f"molecules: a table ({', '.join(SUFFIXES)}) or a list of SMILES")
class Molecules(Source):
    """Table of molecules, a DataFrame, a list or Series of SMILES or of RDKit molecules, or one molecule.

    Each graph has `x`, `edge_index` and `edge_attr` (see `graphcl.extensions.molecules.parse`), `smiles`, `id` and, if
    the table has them, `y` and `group`. Without a column of ids, the `id` is the index of the row in the table,
    including invalid rows.
    """

    place = 50
    settings = frozenset({*MoleculeSettings.model_fields, *_SETTINGS, "executor"})

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` holds molecules."""
        settings: Any = request.settings
        return is_molecules(source, settings.smiles)

    def columns(self, header: Sequence[str], settings: Any) -> list[tuple[str, str, int]]:
        """Return the columns of SMILES, targets, groups and ids."""
        return find(header, settings, "the table")

    def is_item(self, text: str) -> bool:
        """Return whether a string is a SMILES."""
        return is_smiles(text)

    def usual(self, source: Any) -> dict[str, Any]:
        """Return the usual encoder."""
        return {"encoder": "molecule_gine"}

    def read(self, source: Any, request: Request) -> object:
        """Return the graphs of the valid molecules."""
        settings: Any = request.settings
        table = read_table(source, settings)
        parser = Parser(table, settings)
        data, slices = concatenate(list(parser))
        if not isinstance(source, list | tuple):
            _print_counts(parser, duplicates((data, slices), data.smiles))
        benchmark = None
        if settings.split is not None:
            benchmark = _benchmark(table, data, settings)
            slices["y"] = torch.arange(len(data.y) + 1)
        elif settings.metric is not None:
            raise InputError(f"`metric` {settings.metric} scores a split; pass `split` too, such as scaffold.")
        classes = np.array(table.classes, object) if table.classes else None
        return Graphs(table.name, data, slices, benchmark, True, parser.invalid, classes)

    def pieces(self, source: Any, request: Request) -> Pieces | None:
        """Return the valid molecules in chunks, without SMILES; those that processes parse are kept in a folder."""
        if request.settings.features not in ("auto", "labels"):
            return None
        table = read_table(source, request.settings)
        by_processes = None if request.executor is None else partial(parse_by, request.executor, request.folder)
        parser = Parser(table, request.settings, by_processes)
        return Pieces(table.name, _pieces(parser), parser.invalid)


def _pieces(parser: Parser) -> Iterator[GraphDataset]:
    table = parser.table
    classes = table.y.long().unique() if table.y is not None and is_classes(table.y) else None
    for data, slices in parser:
        del data.smiles, slices["smiles"]
        if classes is not None:
            data.y = torch.searchsorted(classes, data.y.long().flatten())
        yield GraphDataset(data, slices, table.name, "labels", classes)
    _print_counts(parser)


def _benchmark(table: Table, data: Any, settings: Any) -> Benchmark:
    """Return the split of the molecules, and make `y` its targets."""
    if table.y is None:
        raise InputError(f"`split` {settings.split} needs targets to score; name their columns by `target`.")
    data.y = data.y.view(len(data.smiles), -1).float()
    y = data.y.nan_to_num(0)
    binary = bool(((y == 0) | (y == 1)).all())
    whole = bool(((y >= 0) & (y == y.trunc()) & (y < 2**24)).all())
    metric = settings.metric or ("rocauc" if binary else "acc" if table.classes else "rmse")
    if not {"rocauc": binary, "ap": binary, "acc": whole}.get(metric, True):
        raise InputError(f"`metric` {metric} needs targets of 0 or 1 (acc: of classes 0, 1, ...); use rmse, mae or r2.")
    parts = split_molecules(data.smiles, data.y, settings.split)
    task = _TASKS.get(metric, "regression")
    return Benchmark(parts, task, metric, data.y.size(1), tuple(settings.target), tuple(table.classes))


def split_molecules(smiles: Sequence[str], y: Tensor, how: str) -> dict[str, Tensor]:
    """Return the indices of the graphs in the parts `train` (80 %), `valid` (10 %) and `test` (10 %), ascending.

    The split depends on the molecules and on `how` alone, so it is the same for every run and seed.

    | `how` | molecules of a part |
    |---|---|
    | `random` | drawn at random |
    | `stratified` | drawn from every ten molecules in the order of the target, so the parts have similar targets |
    | `scaffold` | whole groups of `scaffold_groups`: large groups for training, small ones for the other parts |
    | `scaffold-3` | whole groups in a random order by the seed 3, but first those of more than half a test part |
    | `random-3`, `stratified-3` | as above, drawn by the seed 3; without a number, the seed is 0 |

    Args:
        smiles: n valid SMILES.
        y: targets `[n, tasks]`; "stratified" needs one task.
        how: a name in the table, with any whole number as seed.

    Raises:
        InputError: "stratified" is used with several tasks, or a part would be empty.

    References:
        Wu et al., "MoleculeNet: a benchmark for molecular machine learning", 2018 (arXiv 1703.00564). `scaffold-3`:
        `scaffold_balanced` of Chemprop; Yang et al., "Analyzing Learned Molecular Representations for Property
        Prediction", J. Chem. Inf. Model. 59, 2019.
    """
    n = len(smiles)
    part = np.full(n, 2)
    kind, _, number = how.partition("-")
    seed = int(number or 0)
    order = np.random.default_rng(seed).permutation(n)
    if kind == "random":
        part[order[: int(TRAIN * n)]] = 0
        part[order[int(TRAIN * n) : int((TRAIN + VALID) * n)]] = 1
    elif kind == "stratified":
        if y.size(1) > 1:
            raise InputError(f"`split` stratified takes one target, got {y.size(1)}; pass random or scaffold.")
        order = order[np.argsort(y[order, 0].numpy(), kind="stable")]
        ten = np.random.default_rng(seed + 1).random(n)
        place = np.lexsort((ten, np.arange(n) // 10))  # a random order within each ten
        part[order[place]] = np.array([0] * 8 + [1, 2])[np.arange(n) % 10]
    else:
        groups = scaffold_groups(smiles)
        if number:
            shuffled = [groups[i] for i in np.random.default_rng(seed).permutation(len(groups))]
            groups = sorted(shuffled, key=lambda group: len(group) <= (1 - TRAIN - VALID) * n / 2)
        sizes = [0, 0, 0]
        for group in groups:
            valid_or_test = 1 if sizes[0] + sizes[1] + len(group) <= (TRAIN + VALID) * n else 2
            chosen = 0 if sizes[0] + len(group) <= TRAIN * n else valid_or_test
            part[group] = chosen
            sizes[chosen] += len(group)
    parts = {name: torch.from_numpy(np.flatnonzero(part == i)) for i, name in enumerate(("train", "valid", "test"))}
    for name, graphs in parts.items():
        if not len(graphs):
            raise InputError(f"`split` {how} of {n} molecules leaves the part {name} empty; give more molecules.")
    return parts


def scaffold_groups(smiles: Sequence[str]) -> list[list[int]]:
    """Return the indices of molecules with the same Bemis-Murcko scaffold, the largest group first.

    A scaffold consists of the rings and the chains between them, without stereochemistry. All molecules without rings
    share the empty scaffold. Groups of equal size are sorted by their first molecule, descending, as in MoleculeNet.

    Reference: Bemis and Murcko, "The properties of known drugs. 1. Molecular frameworks", J. Med. Chem. 39, 1996.
    """
    scaffold = import_rdkit("Chem.Scaffolds.MurckoScaffold").MurckoScaffoldSmiles
    groups = defaultdict(list)
    with import_rdkit("rdBase").BlockLogs():
        for number, text in enumerate(smiles):
            groups[scaffold(smiles=text, includeChirality=False)].append(number)
    return sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)


def _print_counts(parser: Parser, repeats: int = 0) -> None:
    """Print how many molecules repeat another or were standardised, and how many targets are missing, if any."""
    table, invalid = parser.table, [row.row for row in parser.invalid]
    of = f"of {len(table.molecules) - len(invalid)} molecules"
    counts = {f"{of} repeat an earlier one": repeats, f"{of} changed by `standardise`": parser.changed}
    if table.y is not None:
        y = np.delete(table.y.numpy(), invalid, axis=0)
        counts[f"of {y.size} targets missing"] = int(np.isnan(y).sum())
    shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if shown:
        print(f"graphcl: {table.name}: {shown}", file=sys.stderr)


def duplicates(graphs: MoleculeGraphs, smiles: Sequence[str]) -> int:
    """Return the number of molecules whose canonical SMILES an earlier molecule has.

    Canonical SMILES are computed only of molecules that share their `keys` with another, as they are slow.
    """
    _, inverse, counts = np.unique(keys(graphs).numpy(), return_inverse=True, return_counts=True)
    alike, chem = np.flatnonzero(counts[inverse] > 1).tolist(), import_rdkit("Chem")
    with import_rdkit("rdBase").BlockLogs():
        molecules = [chem.MolFromSmiles(smiles[row]) for row in alike]
        # RDKit cannot read every SMILES that it writes of a molecule
        texts = [smiles[row] if m is None else chem.MolToSmiles(m) for row, m in zip(alike, molecules, strict=True)]
    return len(texts) - len(set(texts))


def keys(graphs: MoleculeGraphs) -> Tensor:
    """Return an int64 key per molecule, `[n]`, which does not depend on the order of its atoms.

    It is the sum of the atoms' colours (`graphcl.graphs.wl`) without stereochemistry, so different molecules may share
    it.
    """
    data, slices = graphs
    ptr, edge_ptr = slices["x"], slices["edge_index"]
    edge_index = data.edge_index + ptr[:-1].repeat_interleave(edge_ptr.diff())
    atoms = first_colours(data.x.index_fill(1, torch.tensor(1), 0) + 1)
    colours = refine(atoms, edge_index, DEPTH, first_colours(data.edge_attr[:, :1] + 1))[-1]
    graph = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())
    return torch.zeros(len(ptr) - 1, dtype=torch.long).index_add_(0, graph, colours)


NAMES = (
    "ogbg-molbace", "ogbg-molbbbp", "ogbg-molchembl", "ogbg-molclintox", "ogbg-molesol", "ogbg-molfreesolv",
    "ogbg-molhiv", "ogbg-mollipo", "ogbg-molmuv", "ogbg-molpcba", "ogbg-molsider", "ogbg-moltox21", "ogbg-moltoxcast",
    "ogbg-ppa",
)  # fmt: skip
"""Sets of many graphs with classes or numbers; all but the last are of molecules."""
datasets.reserve(*NAMES)


@sources.register("ogb")
class Ogb(Source):
    """Set of the Open Graph Benchmark of many graphs, with its split and metric.

    root/ogbg_molhiv/raw/*.csv.gz, split/scaffold/*.csv.gz, mapping/*, RELEASE_v1.txt      files of OGB's archive
    root/ogbg_molhiv/processed/geometric_data_processed.pt      PyG's collated form, read by later loads
    """

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
