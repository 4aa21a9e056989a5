"""Read molecules: parse a table of SMILES, warn of repeated molecules, and split them for training and test."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import Benchmark, Collated, GraphDataset
from graphcl.datasets.sources import Graphs, Pieces, Request, Source
from graphcl.datasets.tables import kept_rows
from graphcl.errors import InputError, one_line, warn
from graphcl.extensions.molecules import MoleculeSettings, import_rdkit
from graphcl.extensions.molecules.parse import Parser, concatenate, is_classes, parse_by
from graphcl.extensions.molecules.table import SUFFIXES, Table, find, is_molecules, is_smiles, read_table, where
from graphcl.graphs.wl import first_colours, refine
from graphcl.registry import sources

_SETTINGS = ("id", "target", "group", "invalid", "split", "metric")
TRAIN, VALID = 0.8, 0.1
"""Fractions of the graphs in the training and the validation part."""
DEPTH = 3
"""Radius in bonds of the atoms' surroundings that the keys of repeated molecules compare."""
_UNLIKE = 10.0
"""Ratio of the deviations of two targets from which the mean of their errors says little about one of them."""
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
        """Return whether a string is a SMILES, or a reaction, which is then refused."""
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
            repeats = duplicates((data, slices), data.smiles)
            _print_counts(parser, len(repeats))
            _warn_of_contradictions(table, repeats, kept_rows(len(data.smiles), parser.invalid))
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
    if metric in ("rmse", "mae"):
        _warn_of_units(table.name, settings.target, data.y.numpy())
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


def _warn_of_units(name: str, targets: Sequence[str], y: np.ndarray) -> None:
    """Warn if the mean of the errors of several targets is that of a few: of classes and numbers, or unlike units."""
    if y.shape[1] < 2:
        return
    spread = {target: float(np.nanstd(column)) for target, column in zip(targets, y.T, strict=True)}
    binary = [np.isin(column[~np.isnan(column)], (0, 1)).all() for column in y.T]
    low, high = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    if any(binary) != all(binary) or spread[high] > _UNLIKE * spread[low]:
        kinds = "0 and 1 are scored as numbers, and " if any(binary) else ""
        scales = f"deviations from {spread[low]:.3g} ({one_line(low, 40)}) to {spread[high]:.3g} ({one_line(high, 40)})"
        advice = "read the score of each target, pass --metric r2, or score classes and numbers in runs of their own"
        warn(f"{name}: {kinds}the targets have {scales}, so the mean of their errors is that of a few; {advice}.")


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


def _warn_of_contradictions(table: Table, repeats: Sequence[tuple[int, int]], rows: np.ndarray) -> None:
    """Warn if a molecule that occurs several times has different targets.

    Args:
        table: the table.
        repeats: each graph that repeats a molecule, and the first graph of the molecule.
        rows: row of each graph in the table `[n]`.
    """
    if table.y is None:
        return
    first = dict(repeats)
    values: dict[tuple[int, int], dict[float, int]] = defaultdict(dict)  # molecule and task -> value -> first row
    for graph in sorted({*first, *first.values()}):
        for task, value in enumerate(table.y[int(rows[graph])].tolist()):
            if not math.isnan(value):
                values[first.get(graph, graph), task].setdefault(value, int(rows[graph]))
    differing = sorted(key for key, by_value in values.items() if len(by_value) > 1)
    if differing:
        molecule, task = differing[0]
        by_value = values[molecule, task]
        low, high = (where(table.lines, by_value[bound(by_value)]) for bound in (min, max))
        text = one_line(repr(table.molecules[int(rows[molecule])]), 60)
        count = len({molecule for molecule, _ in differing})
        example = f"{text} in `{table.targets[task]}` of {low} and {high}"
        warn(f"{table.name}: molecules with different targets: {count}, such as {example}")


def duplicates(graphs: Collated, smiles: Sequence[str]) -> list[tuple[int, int]]:
    """Return each molecule whose canonical SMILES an earlier molecule has, and the first such molecule.

    Canonical SMILES are computed only of molecules that share their `keys` with another, as they are slow.
    """
    _, inverse, counts = np.unique(keys(graphs).numpy(), return_inverse=True, return_counts=True)
    chem = import_rdkit("Chem")
    with import_rdkit("rdBase").BlockLogs():
        first, repeats = dict[str, int](), list[tuple[int, int]]()
        for row in np.flatnonzero(counts[inverse] > 1).tolist():
            molecule = chem.MolFromSmiles(smiles[row])
            # RDKit cannot read every SMILES that it writes of a molecule
            text = smiles[row] if molecule is None else chem.MolToSmiles(molecule)
            if (earlier := first.setdefault(text, row)) != row:
                repeats.append((row, earlier))
    return repeats


def keys(graphs: Collated) -> Tensor:
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
