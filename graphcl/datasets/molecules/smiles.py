"""Load molecules from SMILES: parse the rows of a table, report the invalid ones, and split the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from graphcl.arguments import MetricName
from graphcl.datasets.dataset import Benchmark, GraphDataset, is_whole
from graphcl.datasets.features import warn_once
from graphcl.datasets.molecules.graphs import Graphs, concatenate, molecule_graphs
from graphcl.datasets.molecules.split import split_molecules
from graphcl.datasets.molecules.table import Table, read_table, where
from graphcl.errors import InputError, one_line
from graphcl.system.optional import import_rdkit

CHUNK = 4096
"""Number of rows that are parsed at a time."""
MAX_ATOMS = 2**14
"""Largest number of atoms of a molecule; RDKit's time to list the bonds grows with their square."""
MAX_LISTED = 3
"""Number of invalid rows in a message."""


def load_molecules(
    source: Any,
    smiles: str | None = None,
    target: Sequence[str] = (),
    invalid: str = "skip",
    split: str | None = None,
    metric: str | None = None,
) -> tuple[str, Graphs, Benchmark | None]:
    """Return the name and the graphs of a table of molecules and, with `split`, its benchmark.

    Each graph has `x`, `edge_index` and `edge_attr` (see `graphcl.datasets.molecules.graphs`), `smiles`, `id` and, with
    targets, `y`. The `id` is the index of the row in the table, including invalid rows.

    The arguments are those of `load_dataset`.

    Raises:
        InputError: the table cannot be used, or no row holds a molecule.
    """
    table = read_table(source, smiles, target)
    data, slices = concatenate(list(parse(table, invalid)))
    if split is None:
        if metric is not None:
            raise InputError(f"`metric` {metric} scores a split; pass `split` too, such as scaffold.")
        return table.name, (data, slices), None
    if table.y is None:
        raise InputError(f"`split` {split} needs targets to score; name their columns by `target`.")
    metric = metric or default_metric(table)
    y = data.y.view(len(data.smiles), -1).float()
    _check_metric(metric, y, target)
    data.y, slices["y"] = y, torch.arange(len(y) + 1)
    parts = split_molecules(data.smiles, y, split)
    task = {"acc": "classification", "rmse": "regression", "mae": "regression"}.get(metric, "binary classification")
    benchmark = Benchmark(split=parts, task_type=task, eval_metric=metric, num_tasks=y.size(1))
    return table.name, (data, slices), benchmark


def molecule_pieces(table: Table, invalid: str = "skip") -> Iterator[tuple[GraphDataset, int]]:
    """Yield `(dataset, number of graphs)` for each chunk of `CHUNK` rows of a table, without the attribute `smiles`.

    Raises:
        InputError: see `parse`; or only one row holds a molecule.
    """
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
    """Yield the graphs of each chunk of `CHUNK` rows of a table, without invalid molecules.

    Raises:
        InputError: no row is valid, or a row is invalid and `invalid` is "stop".
    """
    from tqdm import tqdm

    if invalid not in ("skip", "stop"):
        raise InputError(f"`invalid` must be skip or stop, got {invalid!r}.")
    base = import_rdkit("rdBase")
    wrong: list[int] = []
    starts = range(0, len(table.molecules), CHUNK)
    for start in tqdm(starts, "molecules", leave=False, disable=None if len(starts) > 4 else True, unit_scale=CHUNK):
        rows, molecules = [], []
        with base.BlockLogs():  # RDKit would print each problem on stderr
            for row in range(start, min(start + CHUNK, len(table.molecules))):
                molecule = _molecule(table.molecules[row])
                if molecule is None:
                    wrong.append(row)
                else:
                    rows.append(row)
                    molecules.append(molecule)
        if wrong and invalid == "stop":
            raise InputError(f"{_invalid_rows(table, wrong)}; correct the rows, or pass --invalid skip.")
        if rows:
            yield _with_columns(molecule_graphs(molecules), table, rows, molecules)
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


def _with_columns(graphs: Graphs, table: Table, rows: list[int], molecules: list[Any]) -> Graphs:
    """Return the graphs with the attributes `smiles`, `id` and, if the table has targets, `y`."""
    data, slices = graphs
    chem = import_rdkit("Chem")
    texts = [(table.molecules[row], each) for row, each in zip(rows, molecules, strict=True)]
    data.smiles = [given if isinstance(given, str) else chem.MolToSmiles(each) for given, each in texts]
    data.id = torch.tensor(rows)
    if table.y is not None:
        y = table.y[data.id]
        data.y = y.flatten().long() if _is_classes(table.y) else y.float()
    for key in {"smiles", "id", "y"} & set(data.keys()):
        slices[key] = torch.arange(len(rows) + 1)
    return data, slices


def _invalid_rows(table: Table, wrong: list[int]) -> str:
    """Return a message on invalid rows: their number, and the line and text of the first `MAX_LISTED`."""
    count = f"{len(wrong)} of {len(table.molecules)} rows hold" if len(wrong) > 1 else "1 row holds"
    shown = [f"{where(table.lines, row)} {one_line(repr(table.molecules[row]), 60)}" for row in wrong[:MAX_LISTED]]
    rest = ", ..." * (len(wrong) > MAX_LISTED)
    return f"{table.name}: {count} no valid molecule of at most {MAX_ATOMS} atoms: {', '.join(shown)}{rest}"


def _is_classes(y: Tensor) -> bool:
    """Return True if `y [n, tasks]` is one whole number per row."""
    return y.size(1) == 1 and bool(is_whole(y).all())


def _check_metric(metric: str, y: Tensor, target: Sequence[str]) -> None:
    """Raise InputError if the metric is unknown or does not fit the targets `y [n, tasks]`."""
    if metric not in get_args(MetricName):
        raise InputError(f"`metric` must be one of {', '.join(get_args(MetricName))}, got {metric!r}.")
    known, needed = y.nan_to_num(0), ""
    if metric in ("rocauc", "ap"):
        needed = "" if bool(((known == 0) | (known == 1)).all()) else "0 or 1"
    elif metric == "acc":
        needed = "" if bool(((known >= 0) & (known == known.trunc()) & (known < 2**24)).all()) else "classes 0, 1, ..."
    if needed:
        raise InputError(
            f"`metric` {metric} needs targets of {needed}, but {', '.join(target)} holds other numbers; "
            "use rmse or mae, or name the classes by texts."
        )


def default_metric(table: Table) -> str:
    """Return `rocauc` if all targets are 0 or 1, `acc` for texts, else `rmse`."""
    assert table.y is not None
    if bool(((table.y == 0) | (table.y == 1) | table.y.isnan()).all()):
        return "rocauc"
    return "acc" if table.texts else "rmse"
