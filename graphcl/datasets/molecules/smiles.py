"""Load molecules from SMILES: parse the rows of a table, report the invalid ones, and split the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphcl.datasets.dataset import Benchmark, GraphDataset, is_whole
from graphcl.datasets.features import warn_once
from graphcl.datasets.molecules.graphs import Graphs, concatenate, molecule_graphs
from graphcl.datasets.molecules.split import split_molecules
from graphcl.datasets.molecules.table import Table, read_table, where
from graphcl.datasets.settings import SplitTable
from graphcl.errors import InputError, one_line
from graphcl.system.optional import import_rdkit

CHUNK = 4096
"""Number of rows that are parsed at a time."""
MAX_ATOMS = 2**14
"""Largest number of atoms of a molecule; RDKit's time to list the bonds grows with their square."""


def load_molecules(source: Any, settings: SplitTable) -> tuple[str, Graphs, Benchmark | None]:
    """Return the name and the graphs of a table of molecules and, with `split`, its benchmark.

    Each graph has `x`, `edge_index` and `edge_attr` (see `graphcl.datasets.molecules.graphs`), `smiles`, `id` and, if
    the table has them, `y` and `group`. The `id` is the index of the row in the table, including invalid rows.

    Raises:
        InputError: the table cannot be used, or no row holds a molecule.
    """
    table = read_table(source, settings.smiles, settings.target, settings.group)
    split, metric = settings.split, settings.metric
    data, slices = concatenate(list(parse(table, settings.invalid)))
    if split is None:
        if metric is not None:
            raise InputError(f"`metric` {metric} scores a split; pass `split` too, such as scaffold.")
        return table.name, (data, slices), None
    if table.y is None:
        raise InputError(f"`split` {split} needs targets to score; name their columns by `target`.")
    y = data.y.view(len(data.smiles), -1).float()
    known = y.nan_to_num(0)
    binary = bool(((known == 0) | (known == 1)).all())
    classes = bool(((known >= 0) & (known == known.trunc()) & (known < 2**24)).all())
    metric = metric or ("rocauc" if binary else "acc" if table.texts else "rmse")
    if not {"rocauc": binary, "ap": binary, "acc": classes}.get(metric, True):
        raise InputError(f"`metric` {metric} needs targets of 0 or 1 (acc: of classes 0, 1, ...); use rmse or mae.")
    data.y, slices["y"] = y, torch.arange(len(y) + 1)
    parts = split_molecules(data.smiles, y, split)
    task = {"acc": "classification", "rmse": "regression", "mae": "regression"}.get(metric, "binary classification")
    benchmark = Benchmark(split=parts, task_type=task, eval_metric=metric, num_tasks=y.size(1))
    return table.name, (data, slices), benchmark


def molecule_pieces(table: Table, invalid: str = "skip") -> Iterator[tuple[GraphDataset, int]]:
    """Yield `(dataset, number of graphs)` for each chunk of `CHUNK` rows of a table, without the attribute `smiles`."""
    done = 0
    classes = table.y.long().unique() if table.y is not None and _is_classes(table.y) else None
    for data, slices in parse(table, invalid):
        del data.smiles, slices["smiles"]
        if classes is not None:
            data.y = torch.searchsorted(classes, data.y.long().flatten())
        done += len(data.id)
        yield GraphDataset(data, slices, table.name, "labels", classes), len(data.id)
    if done < 2:
        raise InputError(f"{table.name} holds 1 graph; contrasting graphs needs at least two.")


def parse(table: Table, invalid: str = "skip") -> Iterator[Graphs]:
    """Yield the graphs of each chunk of `CHUNK` rows; raise InputError without a valid one, or on `invalid` "stop"."""
    from tqdm import tqdm

    base = import_rdkit("rdBase")
    wrong: list[int] = []
    starts = range(0, len(table.molecules), CHUNK)
    for start in tqdm(starts, "molecules", leave=False, disable=None if len(starts) > 4 else True, unit_scale=CHUNK):
        with base.BlockLogs():  # RDKit would print each problem on stderr
            parsed = {start + i: _molecule(each) for i, each in enumerate(table.molecules[start : start + CHUNK])}
        rows = [row for row, molecule in parsed.items() if molecule is not None]
        wrong += [row for row, molecule in parsed.items() if molecule is None]
        if wrong and invalid == "stop":
            raise InputError(f"{_invalid_rows(table, wrong)}; correct the rows, or pass --invalid skip.")
        if rows:
            yield _with_columns(table, rows, [parsed[row] for row in rows])
    if len(wrong) == len(table.molecules):
        raise InputError(f"{_invalid_rows(table, wrong)}; no molecule is left.")
    if wrong:
        warn_once(f"{_invalid_rows(table, wrong)}; left out.")


def _molecule(given: Any) -> Any:
    """Return the sanitised molecule of a SMILES, or a sanitised copy of a molecule; None if it is invalid."""
    chem = import_rdkit("Chem")
    molecule = chem.MolFromSmiles(given) if isinstance(given, str) else given
    if not isinstance(molecule, chem.Mol) or not 1 <= molecule.GetNumAtoms() <= MAX_ATOMS:
        return None
    if not isinstance(given, str):
        molecule = chem.Mol(molecule)
        if chem.SanitizeMol(molecule, catchErrors=True):
            return None
        chem.AssignStereochemistry(molecule, cleanIt=True)
    return molecule


def _with_columns(table: Table, rows: list[int], molecules: list[Any]) -> Graphs:
    """Return the graphs of rows with the attributes `smiles`, `id` and, if the table has them, `y` and `group`."""
    data, slices = molecule_graphs(molecules)
    write = import_rdkit("Chem").MolToSmiles
    given = [table.molecules[row] for row in rows]
    data.smiles = [text if isinstance(text, str) else write(each) for text, each in zip(given, molecules, strict=True)]
    data.id = torch.tensor(rows)
    if table.y is not None:
        y = table.y[data.id]
        data.y = y.flatten().long() if _is_classes(table.y) else y.float()
    if table.groups is not None:
        data.group = table.groups[data.id]
    slices |= dict.fromkeys(set(data.keys()) - slices.keys(), torch.arange(len(rows) + 1))
    return data, slices


def _invalid_rows(table: Table, wrong: list[int]) -> str:
    """Return a message on invalid rows: their number, and the line and text of the first three."""
    shown = [f"{where(table.lines, row)} {one_line(repr(table.molecules[row]), 60)}" for row in wrong[:3]]
    count = f"{len(wrong)} of {len(table.molecules)} rows hold no valid molecule of at most {MAX_ATOMS} atoms"
    return f"{table.name}: {count}: {', '.join(shown)}{', ...' * (len(wrong) > 3)}"


def _is_classes(y: Tensor) -> bool:
    """Return True if `y [n, tasks]` is one whole number per row."""
    return y.size(1) == 1 and bool(is_whole(y).all())
