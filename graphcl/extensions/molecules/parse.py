"""Parse the rows of a table of molecules in chunks, report the invalid ones, and keep parsed chunks in files.

A graph has categorical atoms and bonds, in the columns of OGB's molecule data sets:

| column of `x` | category 0, 1, 2, ... | else |
|---|---|---|
| element | atomic number 1, 2, ..., 118 | 118: `*` |
| chirality | none, R, S, r, s | - |
| degree | neighbours, with hydrogens: 0, 1, ..., 10 | 11 |
| charge | formal charge -5, -4, ..., 5 | 11 |
| hydrogens | implicit and written `[nH]`: 0, 1, ..., 8 | 9 |
| radical electrons | 0, 1, ..., 4 | 5 |
| hybridisation | sp, sp2, sp3, sp3d, sp3d2 | 5 |
| aromatic, in a ring | no, yes | - |

| column of `edge_attr` | category 0, 1, 2, ... | else |
|---|---|---|
| type | single, double, triple, aromatic | 4 |
| stereo configuration | none, Z, E, z, e | 5: any, or of an axis |
| conjugated | no, yes | - |

The molecule is used as written: salts keep all fragments, hydrogens stay implicit, isotopes are ignored. Chirality and
stereo configuration are CIP labels, computed without isotopes by RDKit's `rdCIPLabeler`, so they do not depend on the
order of the atoms. `r` and `s` are the labels of pseudo-asymmetric centres, as in 1,4-dimethylcyclohexane; `z` and `e`
those of bonds between substituents that are mirror images.

Source: Hu et al., "Open Graph Benchmark", NeurIPS 2020 (arXiv 2005.00687), appendix, and the documentation of
`ogb.utils.features`.

Differs: OGB takes chirality from RDKit's tags: 1 and 2 are clockwise and counterclockwise in the order in which the
atoms are written. OGB's own data sets keep that coding. OGB's reader fails on atropisomeric bonds; here they count as
`any`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.dataset import is_whole
from graphcl.datasets.tables import NoGraphLeftError
from graphcl.errors import InputError, one_line, warn
from graphcl.extensions.molecules import import_rdkit
from graphcl.extensions.molecules.table import Table, where
from graphcl.extensions.molecules.tags import tagged_graphs
from graphcl.graphs.segment import pointers
from graphcl.system.arrays import write_torch_file
from graphcl.system.files import remove_partial
from graphcl.system.processes import completed
from graphcl.system.progress import progress

MoleculeGraphs = tuple[Data, dict[str, Tensor]]
"""Graphs in PyG's collated form: all values, and the start of each graph in each attribute."""
CHIRALITY = {label: number for number, label in enumerate("RSrs", start=1)}
HYBRIDISATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
COMMON = frozenset((1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53))
"""Elements between which all bonds are of `BOND_TYPE`, unless `ODD_BOND` finds another in the SMILES."""
STEREO_MARK, ODD_BOND = (re.compile(rf"[|{marks}]").search for marks in (r"@/\\", "<>~$"))
"""Functions that find marks in a SMILES; "|" opens the extension of CXSMILES, which can hold any of them."""
STEREO = {label: number for number, label in enumerate("ZEze", start=1)} | dict.fromkeys("MPmp", 5)
MAX_COMPARISONS = 2**20
"""Largest number of comparisons for the labels of a molecule, about a second; a molecule that needs more has none."""


def molecule_graphs(molecules: Iterable[tuple[Any, str]]) -> MoleculeGraphs:
    """Return sanitised RDKit molecules as graphs in PyG's collated form, with every bond in both directions.

    Each molecule is read and dropped before the next one is parsed, while it is in the processor's cache. RDKit's
    enumerations are slow to read; in most SMILES these categories follow from the text and the elements.

    Args:
        molecules: molecules, each with the SMILES that it was parsed from, else "|".

    Returns:
        `x [N, 9]`, `edge_index [2, E]` and `edge_attr [E, 3]` of int64, and their slices.
    """
    chem = import_rdkit("Chem")
    atom, bond = chem.Atom, chem.Bond
    of_atom = {
        "element": atom.GetAtomicNum, "hydrogens": atom.GetTotalNumHs, "radical": atom.GetNumRadicalElectrons,
        "hybrid": atom.GetHybridization, "aromatic": atom.GetIsAromatic, "ring": atom.IsInRing,
    }  # fmt: skip
    small = {name: bytearray() for name in (*of_atom, "chirality", "type", "stereo", "conjugated")}  # faster than lists
    large: dict[str, list[int]] = {name: [] for name in ("charge", "begin", "end", "atoms", "bonds")}
    of_order = {order: int(chem.BondType.names[name]) for order, name in zip((1, 2, 3, 1.5), BOND_TYPE, strict=True)}
    for molecule, text in molecules:
        atoms = list(map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms())))
        bonds = list(map(molecule.GetBondWithIdx, range(molecule.GetNumBonds())))
        for name, get in of_atom.items():
            small[name] += bytes(map(get, atoms))
        chirality, stereo = _labels(molecule) if STEREO_MARK(text) else (bytes(len(atoms)), bytes(len(bonds)))
        small["chirality"] += chirality
        small["stereo"] += stereo
        if ODD_BOND(text) or not COMMON.issuperset(small["element"][-len(atoms) :]):
            small["type"] += bytes(map(bond.GetBondType, bonds))
        else:
            small["type"] += bytes(map(of_order.__getitem__, map(bond.GetBondTypeAsDouble, bonds)))
        small["conjugated"] += bytes(map(bond.GetIsConjugated, bonds))
        large["charge"] += map(atom.GetFormalCharge, atoms)
        large["begin"] += map(bond.GetBeginAtomIdx, bonds)
        large["end"] += map(bond.GetEndAtomIdx, bonds)
        large["atoms"].append(len(atoms))
        large["bonds"].append(len(bonds))
    of = {name: np.array(values, np.int64) for name, values in large.items()}
    of |= {name: np.frombuffer(values, np.uint8).astype(np.int64) for name, values in small.items()}
    return _collated(of)


def _collated(of: dict[str, np.ndarray]) -> MoleculeGraphs:
    """Return the graphs of `molecule_graphs` from what was read of all atoms, bonds and molecules."""
    chem = import_rdkit("Chem")
    ptr, edge_ptr = pointers(torch.from_numpy(of["atoms"])), pointers(torch.from_numpy(2 * of["bonds"]))
    first = np.repeat(ptr[:-1].numpy(), of["bonds"])
    neighbours = np.bincount(np.concatenate([first + of["begin"], first + of["end"]]), minlength=len(of["element"]))
    columns = (
        (of["element"] - 1) % 119,  # 0, the wildcard `*`, becomes 118
        of["chirality"],
        np.minimum(neighbours + of["hydrogens"], 11),
        np.where(np.abs(of["charge"]) > 5, 11, of["charge"] + 5),
        np.minimum(of["hydrogens"], 9),
        np.minimum(of["radical"], 5),
        _lookup(chem.HybridizationType, HYBRIDISATION)[of["hybrid"]],
        of["aromatic"],
        of["ring"],
    )
    bond_columns = (_lookup(chem.BondType, BOND_TYPE)[of["type"]], of["stereo"], of["conjugated"])
    edges = np.stack([of["begin"], of["end"], of["end"], of["begin"]], axis=1)
    data = Data(
        x=torch.from_numpy(np.stack(columns, axis=1)),
        edge_index=torch.from_numpy(edges).view(-1, 2).t().contiguous(),
        edge_attr=torch.from_numpy(np.stack(bond_columns, axis=1)).repeat_interleave(2, dim=0),
    )
    return data, {"x": ptr, "edge_index": edge_ptr, "edge_attr": edge_ptr}


def concatenate(parts: Sequence[MoleculeGraphs]) -> MoleculeGraphs:
    """Return several collated sets of graphs as one; lists of texts are concatenated like tensors."""
    data, slices = Data(), {}
    for key in parts[0][1]:
        values = [part[key] for part, _ in parts]
        if isinstance(values[0], Tensor):
            data[key] = torch.cat(values, dim=1 if key == "edge_index" else 0)
        else:
            data[key] = [text for texts in values for text in texts]
        slices[key] = pointers(torch.cat([cut[key].diff() for _, cut in parts]))
    return data, slices


def _labels(molecule: Any) -> tuple[bytes, bytes]:
    """Return the categories of the atoms' chirality and of the bonds' stereo configuration."""
    chem, label = import_rdkit("Chem"), import_rdkit("Chem.rdCIPLabeler").AssignCIPLabels
    molecule = chem.Mol(molecule)
    atoms, bonds = list(molecule.GetAtoms()), list(molecule.GetBonds())
    for atom in atoms:
        atom.SetIsotope(0)
    try:
        label(molecule, maxRecursiveIterations=MAX_COMPARISONS)
    except RuntimeError:  # too many comparisons; some atoms have labels already
        return bytes(len(atoms)), bytes(len(bonds))
    any_of = chem.BondStereo.STEREOANY
    codes = [part.GetProp("_CIPCode") if part.HasProp("_CIPCode") else "" for part in (*atoms, *bonds)]
    chirality = bytes(CHIRALITY.get(code, 0) for code in codes[: len(atoms)])
    stereo = zip(codes[len(atoms) :], bonds, strict=True)
    return chirality, bytes(5 if bond.GetStereo() == any_of else STEREO.get(code, 0) for code, bond in stereo)


def _lookup(enum: Any, names: Sequence[str]) -> np.ndarray:
    """Return a lookup table: value of an RDKit enumeration -> index in `names`, or `len(names)` for other values."""
    table = np.full(max(enum.values) + 1, len(names))
    table[[int(enum.names[name]) for name in names]] = np.arange(len(names))
    return table


CHUNK = 4096
"""Number of rows that are parsed at a time."""
MAX_ATOMS = 2**14
"""Largest number of atoms of a molecule; RDKit's time to list the bonds grows with their square."""
HYDROGEN_ISOTOPE = re.compile(r"\[\d+H").search
"""Function that finds deuterium and tritium in a SMILES, which RDKit's parser does not remove."""


class InvalidRow(NamedTuple):
    """A row of a table that was left out: its index, its line in the file (else None), the text of its molecule, its
    id, and what is wrong.
    """

    row: int
    line: int | None
    smiles: str
    id: int | str | None = None
    reason: str = "no valid molecule"


class Chunk(NamedTuple):
    """Consecutive rows of a table, of which `start` is the first."""

    start: int
    molecules: Sequence[Any]
    standardise: bool
    coding: str = "ogb"


class Parsed(NamedTuple):
    """The graphs of the valid rows of a chunk, with their numbers and SMILES; `changed` counts `standardise`d ones.

    `invalid` holds the number and the text of each other row.
    """

    graphs: MoleculeGraphs
    rows: list[int]
    smiles: list[str]
    invalid: list[tuple[int, str]]
    changed: int


def parse(chunk: Chunk) -> Parsed:
    """Return the parsed rows of a chunk."""
    chem = import_rdkit("Chem")
    change = _standardiser(chem) if chunk.standardise else None
    rows, smiles, invalid, count = list[int](), list[str](), list[tuple[int, str]](), 0

    def molecules() -> Iterator[tuple[Any, str]]:
        nonlocal count
        for row, entry in enumerate(chunk.molecules, chunk.start):
            molecule, text = _molecule(entry, chem), entry if isinstance(entry, str) else None
            changed = None if molecule is None or change is None else change(molecule)
            if changed is not None:
                count += 1
                molecule, text = changed, chem.MolToSmiles(changed)
            if molecule is None:
                invalid.append((row, repr(entry) if text is None else text))
                continue
            rows.append(row)
            smiles.append(chem.MolToSmiles(molecule) if text is None else text)
            yield molecule, text or "|"

    with import_rdkit("rdBase").BlockLogs():  # RDKit would print each problem on stderr
        graphs = (tagged_graphs if chunk.coding == "hu" else molecule_graphs)(molecules())
    return Parsed(graphs, rows, smiles, invalid, count)


def parse_by(executor: Executor, folder: Path, chunks: list[Chunk]) -> Iterator[Parsed]:
    """Yield the chunks in order, parsed by many processes.

    Each parsed chunk is a file in `folder`, so that a kill loses few; chunks that have a file are not parsed again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial(folder)
    missing = [chunk for chunk in chunks if not _file(folder, chunk).exists()]
    with progress("parsing", sum(len(chunk.molecules) for chunk in missing)) as update:
        for chunk, _ in completed(functools.partial(_parse_into, folder), missing, executor):
            update(len(chunk.molecules))
    for chunk in chunks:
        (data, slices), *rest = torch.load(_file(folder, chunk), weights_only=True)
        yield Parsed((Data.from_dict(data), slices), *rest)


def _parse_into(folder: Path, chunk: Chunk) -> None:
    (data, slices), *rest = parse(chunk)
    write_torch_file(_file(folder, chunk), [(data.to_dict(), slices), *rest])


def _file(folder: Path, chunk: Chunk) -> Path:
    """Return the file of a parsed chunk, named by the rows that it holds."""
    name = hashlib.sha256(repr(chunk).encode()).hexdigest()[:16]
    return Path(os.path.abspath(folder)) / f"{chunk.start}-{name}.pt"


class Parser:
    """Iterable over the graphs of a table, in chunks of `CHUNK` rows; `parse_all` may parse them elsewhere, in order.

    Attributes:
        invalid: the rows that were left out so far.
        changed: number of molecules that `standardise` changed so far.

    Raises:
        InputError: no row holds a valid molecule, or one does not and `invalid` is "stop".
    """

    def __init__(
        self, table: Table, settings: Any, parse_all: Callable[[list[Chunk]], Iterable[Parsed]] | None = None
    ) -> None:
        self.table, self._settings, self._parse_all = table, settings, parse_all
        self.invalid: list[InvalidRow] = []
        self.changed = 0

    def __iter__(self) -> Iterator[MoleculeGraphs]:
        table, settings = self.table, self._settings
        molecules = [None if row in table.refused else molecule for row, molecule in enumerate(table.molecules)]
        starts = range(0, len(molecules), CHUNK)
        chunks = (
            Chunk(start, molecules[start : start + CHUNK], settings.standardise, settings.coding) for start in starts
        )
        parsed = map(parse, chunks) if self._parse_all is None else self._parse_all(list(chunks))
        with progress("molecules", len(molecules)) as update:
            for chunk in parsed:
                for row, text in chunk.invalid:
                    key = table.ids[row]
                    line = table.lines[row] if table.lines else None
                    invalid = InvalidRow(row, line, text, key if isinstance(key, str) else int(key))
                    if row in table.refused:
                        invalid = invalid._replace(smiles=str(table.molecules[row]), reason=table.refused[row])
                    self.invalid.append(invalid)
                self.changed += chunk.changed
                if self.invalid and settings.invalid == "stop":
                    raise InputError(f'{self._describe()}; correct the rows, or set `invalid` to "skip".')
                update(len(chunk.rows) + len(chunk.invalid))
                if chunk.rows:
                    yield self._with_columns(chunk)
        if len(self.invalid) == len(molecules):
            raise NoGraphLeftError(self._describe(), self.invalid)
        if self.invalid:
            warn(f"{self._describe()}; skipped.")

    def _with_columns(self, chunk: Parsed) -> MoleculeGraphs:
        """Return the graphs of rows with the attributes `smiles`, `id` and, if the table has them, `y` and `group`."""
        data, slices = chunk.graphs
        table, data.smiles, rows = self.table, chunk.smiles, torch.tensor(chunk.rows)
        data.id = [table.ids[row] for row in chunk.rows] if isinstance(table.ids, list) else table.ids[rows]
        if table.y is not None:
            y = table.y[rows]
            data.y = y.flatten().long() if is_classes(table.y) else y.float()
        if table.groups is not None:
            data.group = table.groups[rows]
        slices |= dict.fromkeys(set(data.keys()) - slices.keys(), torch.arange(len(chunk.rows) + 1))
        return data, slices

    def _describe(self) -> str:
        """Return a message on the invalid rows: their number, and the line and text of the first three."""
        table, messages = self.table, list[str]()
        for refused, rule in (
            (False, f"rows hold no valid molecule of at most {MAX_ATOMS} atoms"),
            (True, "rows have an invalid target"),
        ):
            rows = [invalid.row for invalid in self.invalid if (invalid.row in table.refused) == refused]
            texts = (table.refused[row] if refused else one_line(repr(table.molecules[row]), 60) for row in rows)
            shown = [f"{where(table.lines, row)} {text}" for row, text in zip(rows[:3], texts, strict=False)]
            if rows:
                count = f"{len(rows)} of {len(table.molecules)} {rule}"
                messages.append(f"{count}: {', '.join(shown)}{', ...' if len(rows) > 3 else ''}")
        return f"{table.name}: {'; '.join(messages)}"


def _molecule(entry: Any, chem: Any) -> Any:
    """Return the sanitised molecule of a SMILES, or a sanitised copy of a molecule; None if it is invalid.

    Hydrogens are implicit, isotopes of hydrogen too, except those that RDKit's `RemoveHs` keeps.
    """
    molecule = chem.MolFromSmiles(entry) if isinstance(entry, str) else entry
    if not isinstance(molecule, chem.Mol) or not 1 <= molecule.GetNumAtoms() <= MAX_ATOMS:
        return None
    if not isinstance(entry, str) or HYDROGEN_ISOTOPE(entry):
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

    def charges(molecule: Any) -> list[int]:
        return [atom.GetFormalCharge() for atom in molecule.GetAtoms()]

    def change(molecule: Any) -> Any:
        fragment = largest.choose(molecule)
        chem.Kekulize(fragment, clearAromaticFlags=True)  # a neutralised atom may be aromatic no longer
        changed = uncharger.uncharge(fragment)
        return None if charges(changed) == charges(molecule) else chem.MolFromSmiles(chem.MolToSmiles(changed))

    return change


def is_classes(y: Tensor) -> bool:
    """Return True if `y [n, tasks]` is one whole number per row."""
    return y.size(1) == 1 and bool(is_whole(y).all())
