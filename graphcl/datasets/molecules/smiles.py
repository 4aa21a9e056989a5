"""Load molecules from SMILES: parse the rows of a table, report the invalid ones, and split the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import Benchmark, GraphDataset, is_whole
from graphcl.datasets.invalid import InvalidRow, NoGraphLeftError, kept_rows
from graphcl.datasets.molecules.duplicates import duplicates
from graphcl.datasets.molecules.graphs import Graphs, concatenate, molecule_graphs
from graphcl.datasets.molecules.split import split_molecules
from graphcl.datasets.molecules.table import REACTION, Table, read_table, where
from graphcl.datasets.settings import SplitTable
from graphcl.datasets.settings import Table as Rules
from graphcl.errors import InputError, one_line, warn
from graphcl.system.optional import import_rdkit
from graphcl.system.progress import progress

CHUNK = 4096
"""Number of rows that are parsed at a time."""
MAX_ATOMS = 2**14
"""Largest number of atoms of a molecule; RDKit's time to list the bonds grows with their square."""
_UNLIKE = 10.0
"""Ratio of the deviations of two targets from which the mean of their errors says little about one of them."""
HYDROGEN_ISOTOPE = re.compile(r"\[\d+H").search
"""Function that finds deuterium and tritium in a SMILES, which RDKit's parser does not remove."""
_METALS = {13, *range(21, 32), *range(39, 51), *range(57, 84), *range(89, 113)}
"""Atomic numbers of metals but those of groups 1 and 2."""


def load_molecules(source: Any, settings: SplitTable) -> tuple[Parser, Graphs, Benchmark | None]:
    """Return the parser and the graphs of a table of molecules and, with `split`, its benchmark.

    Each graph has `x`, `edge_index` and `edge_attr` (see `graphcl.datasets.molecules.graphs`), `smiles`, `id` and, if
    the table has them, `y` and `group`. Without a column of ids, the `id` is the index of the row in the table,
    including invalid rows.

    Raises:
        InputError: the table cannot be used, or no row holds a molecule.
    """
    table = read_table(source, settings)
    split, metric = settings.split, settings.metric
    parser = Parser(table, settings)
    data, slices = concatenate(list(parser))
    if not isinstance(source, list | tuple):
        repeats = duplicates((data, slices), data.smiles)
        _print_counts(parser, len(repeats))
        _warn_of_contradictions(table, repeats, kept_rows(len(data.smiles), parser.invalid))
    if split is None:
        if metric is not None:
            raise InputError(f"`metric` {metric} scores a split; pass `split` too, such as scaffold.")
        return parser, (data, slices), None
    if table.y is None:
        raise InputError(f"`split` {split} needs targets to score; name their columns by `target`.")
    y = data.y.view(len(data.smiles), -1).float()
    known = y.nan_to_num(0)
    binary = bool(((known == 0) | (known == 1)).all())
    classes = bool(((known >= 0) & (known == known.trunc()) & (known < 2**24)).all())
    metric = metric or ("rocauc" if binary else "acc" if table.classes else "rmse")
    if not {"rocauc": binary, "ap": binary, "acc": classes}.get(metric, True):
        raise InputError(f"`metric` {metric} needs targets of 0 or 1 (acc: of classes 0, 1, ...); use rmse, mae or r2.")
    if metric in ("rmse", "mae"):
        _warn_of_units(table.name, settings.target, y.numpy())
    data.y, slices["y"] = y, torch.arange(len(y) + 1)
    parts = split_molecules(data.smiles, y, split)
    kinds = {"rocauc": "binary classification", "ap": "binary classification", "acc": "classification"}
    task = kinds.get(metric, "regression")
    names = tuple(settings.target), tuple(table.classes)
    benchmark = Benchmark(parts, task, metric, y.size(1), *names)
    return parser, (data, slices), benchmark


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


def _print_counts(parser: Parser, duplicates: int = 0) -> None:
    """Print how many molecules repeat another or were standardised, and how many targets are missing, if any."""
    table, invalid = parser.table, [fault.row for fault in parser.invalid]
    of = f"of {len(table.molecules) - len(invalid)} molecules"
    counts = [(duplicates, f"{of} repeat an earlier one"), (parser.changed, f"{of} changed by `standardise`")]
    if table.y is not None:
        y = np.delete(table.y.numpy(), invalid, axis=0)
        counts.append((int(np.isnan(y).sum()), f"of {y.size} targets missing"))
    if found := [f"{count} {of}" for count, of in counts if count]:
        print(f"graphcl: {table.name}: {', '.join(found)}", file=sys.stderr)


def _warn_of_contradictions(table: Table, repeats: Sequence[tuple[int, int]], rows: np.ndarray) -> None:
    """Warn if a molecule that occurs several times has different targets.

    Args:
        table: the table.
        repeats: each graph that repeats a molecule, and the first graph of the molecule.
        rows: row of each graph in the table `[n]`.
    """
    if table.y is None or not repeats:
        return
    first = dict(repeats)
    graphs = np.array(sorted({*first, *first.values()}))
    molecule = np.array([first.get(graph, graph) for graph in graphs.tolist()])
    y = table.y.numpy()[rows[graphs]]
    low, high = np.full((2, len(rows), y.shape[1]), np.nan)
    np.fmin.at(low, molecule, y)
    np.fmax.at(high, molecule, y)
    differing, tasks = (high > low).nonzero()
    if len(differing):
        values = y[:, tasks[0]]
        shown = []
        for bound in (low, high):
            place = (molecule == differing[0]) & (values == bound[differing[0], tasks[0]])
            shown.append(where(table.lines, int(rows[graphs[place][0]])))
        text = one_line(repr(table.molecules[int(rows[differing[0]])]), 60)
        found = f"molecules with different targets: {len(np.unique(differing))}"
        warn(f"{table.name}: {found}, such as {text} in `{table.targets[tasks[0]]}` of {shown[0]} and {shown[1]}")


def molecule_pieces(parser: Parser) -> Iterator[GraphDataset]:
    """Yield the graphs of each chunk of `CHUNK` rows of a table, without the attribute `smiles`."""
    table = parser.table
    classes = table.y.long().unique() if table.y is not None and _is_classes(table.y) else None
    for data, slices in parser:
        del data.smiles, slices["smiles"]
        if classes is not None:
            data.y = torch.searchsorted(classes, data.y.long().flatten())
        yield GraphDataset(data, slices, table.name, "labels", classes)
    _print_counts(parser)


class Chunk(NamedTuple):
    """Consecutive rows of a table, of which `start` is the first."""

    start: int
    molecules: Sequence[Any]
    standardise: bool


class Parsed(NamedTuple):
    """The graphs of the valid rows of a chunk, with their numbers and SMILES; `changed` counts `standardise`d ones.

    `invalid` holds the number and the text of each other row, `metals` the number of each row of which `standardise`
    left out a metal, and the metals.
    """

    graphs: Graphs
    rows: list[int]
    smiles: list[str]
    invalid: list[tuple[int, str]]
    changed: int
    metals: Sequence[tuple[int, str]] = ()


def parse(chunk: Chunk) -> Parsed:
    """Return the parsed rows of a chunk."""
    chem, base = import_rdkit("Chem"), import_rdkit("rdBase")
    change = _standardiser(chem) if chunk.standardise else None
    rows, smiles, invalid, changes = list[int](), list[str](), list[tuple[int, str]](), list[int]()
    metals = list[tuple[int, str]]()

    def molecules() -> Iterator[tuple[Any, str]]:
        for row, given in enumerate(chunk.molecules, chunk.start):
            molecule, text = _molecule(given, chem), given if isinstance(given, str) else None
            if molecule is not None and change is not None and (changed := change(molecule)) is not None:
                changes.append(row)
                if lost := " ".join(sorted(_metals(molecule) - _metals(changed))):
                    metals.append((row, lost))
                molecule, text = changed, chem.MolToSmiles(changed)
            if molecule is None:
                invalid.append((row, repr(given) if text is None else text))
                continue
            rows.append(row)
            smiles.append(chem.MolToSmiles(molecule) if text is None else text)
            yield molecule, text or "|"

    with base.BlockLogs():  # RDKit would print each problem on stderr
        graphs = molecule_graphs(molecules())
    return Parsed(graphs, rows, smiles, invalid, len(changes), metals)


class Parser:
    """Iterable over the graphs of a table, in chunks of `CHUNK` rows; `parse_all` may parse them elsewhere, in order.

    Attributes:
        invalid: the rows that were left out so far.
        changed: number of molecules that `standardise` changed so far.
        metals: rows of which `standardise` left out a metal so far, and the metals.

    Raises:
        InputError: no row holds a valid molecule, or one does not and `invalid` is "stop".
    """

    def __init__(
        self, table: Table, settings: Rules, parse_all: Callable[[list[Chunk]], Iterable[Parsed]] | None = None
    ) -> None:
        self.table, self._settings, self._parse_all = table, settings, parse_all
        self.invalid: list[InvalidRow] = []
        self.changed = 0
        self.metals: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Graphs]:
        table, rules = self.table, self._settings
        starts = range(0, len(table.molecules), CHUNK)
        parsed: Iterable[Parsed]
        molecules = list(table.molecules)
        for row in table.refused:
            molecules[row] = None
        chunks = (Chunk(start, molecules[start : start + CHUNK], rules.standardise) for start in starts)
        parsed = map(parse, chunks) if self._parse_all is None else self._parse_all(list(chunks))
        with progress("molecules", len(table.molecules)) as update:
            for chunk in parsed:
                for row, text in chunk.invalid:
                    line = table.lines[row] if table.lines else None
                    fault = InvalidRow(row, line, text, table.id(row))
                    if row in table.refused:
                        fault = fault._replace(smiles=str(table.molecules[row]), reason=table.refused[row])
                    self.invalid.append(fault)
                self.changed += chunk.changed
                self.metals += chunk.metals
                if self.invalid and rules.invalid == "stop":
                    raise InputError(f'{self._found()}; correct the rows, or set `invalid` to "skip".')
                update(len(chunk.rows) + len(chunk.invalid))
                if chunk.rows:
                    yield self._with_columns(chunk)
        if len(self.invalid) == len(table.molecules):
            raise NoGraphLeftError(self._found(), self.invalid)
        if self.invalid:
            warn(f"{self._found()}; skipped.")
        if self.metals:
            row, lost = self.metals[0]
            shown = f"{lost} of {where(table.lines, row)} {one_line(repr(table.molecules[row]), 60)}"
            warn(
                f"{table.name}: `standardise` kept the largest fragment of {len(self.metals)} molecules and left out a "
                f"metal, such as {shown}; leave it out for metal complexes"
            )

    def _with_columns(self, chunk: Parsed) -> Graphs:
        """Return the graphs of rows with the attributes `smiles`, `id` and, if the table has them, `y` and `group`."""
        data, slices = chunk.graphs
        table, data.smiles, rows = self.table, chunk.smiles, torch.tensor(chunk.rows)
        data.id = rows if table.ids is None else [table.ids[row] for row in chunk.rows]
        if isinstance(table.ids, Tensor):
            data.id = table.ids[rows]
        if table.y is not None:
            y = table.y[rows]
            data.y = y.flatten().long() if _is_classes(table.y) else y.float()
        if table.groups is not None:
            data.group = table.groups[rows]
        slices |= dict.fromkeys(set(data.keys()) - slices.keys(), torch.arange(len(chunk.rows) + 1))
        return data, slices

    def _found(self) -> str:
        """Return a message on the invalid rows: their number, and the line and text of the first three."""
        table, messages = self.table, list[str]()
        for refused, rule in (
            (False, f"rows hold no valid molecule of at most {MAX_ATOMS} atoms"),
            (True, "rows have an invalid target"),
        ):
            rows = [fault.row for fault in self.invalid if (fault.row in table.refused) == refused]
            texts = (table.refused[row] if refused else one_line(repr(table.molecules[row]), 60) for row in rows)
            shown = [f"{where(table.lines, row)} {text}" for row, text in zip(rows[:3], texts, strict=False)]
            if rows:
                count = f"{len(rows)} of {len(table.molecules)} {rule}"
                messages.append(f"{count}: {', '.join(shown)}{', ...' * (len(rows) > 3)}")
        reactions = any(REACTION(row.smiles) for row in self.invalid if row.row not in table.refused)
        advice = "; A>>B is a reaction: give its reactants or its products as the column of SMILES" * reactions
        return f"{table.name}: {'; '.join(messages)}{advice}"


def _molecule(given: Any, chem: Any) -> Any:
    """Return the sanitised molecule of a SMILES, or a sanitised copy of a molecule; None if it is invalid.

    Hydrogens are implicit, isotopes of hydrogen too, except those that RDKit's `RemoveHs` keeps.
    """
    molecule = chem.MolFromSmiles(given) if isinstance(given, str) else given
    if not isinstance(molecule, chem.Mol) or not 1 <= molecule.GetNumAtoms() <= MAX_ATOMS:
        return None
    if not isinstance(given, str) or HYDROGEN_ISOTOPE(given):
        molecule = chem.Mol(molecule)
        if chem.SanitizeMol(molecule, catchErrors=True):
            return None
        rules = chem.RemoveHsParameters()
        rules.removeIsotopes = True
        molecule = chem.RemoveHs(molecule, rules)
        chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    return molecule


def _standardiser(chem: Any) -> Callable[[Any], Any]:
    """Return a function from a molecule to its largest fragment, neutralised; None if that is itself, or invalid."""
    tools = import_rdkit("Chem.MolStandardize.rdMolStandardize")
    largest, uncharger = tools.LargestFragmentChooser(), tools.Uncharger()

    def change(molecule: Any) -> Any:
        fragment = largest.choose(molecule)
        chem.Kekulize(fragment, clearAromaticFlags=True)  # a neutralised atom may be aromatic no longer
        changed = uncharger.uncharge(fragment)
        return None if _charges(changed) == _charges(molecule) else chem.MolFromSmiles(chem.MolToSmiles(changed))

    return change


def _charges(molecule: Any) -> list[int]:
    return [atom.GetFormalCharge() for atom in molecule.GetAtoms()]


def _metals(molecule: Any) -> set[str]:
    """Return the metals of a molecule but those of groups 1 and 2, the usual ions of a salt."""
    return {atom.GetSymbol() for atom in molecule.GetAtoms() if atom.GetAtomicNum() in _METALS}


def _is_classes(y: Tensor) -> bool:
    """Return True if `y [n, tasks]` is one whole number per row."""
    return y.size(1) == 1 and bool(is_whole(y).all())
