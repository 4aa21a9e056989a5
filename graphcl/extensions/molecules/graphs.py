"""Convert RDKit molecules to graphs with categorical atoms and bonds, in the columns of OGB's molecule data sets.

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

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.extensions.molecules import import_rdkit
from graphcl.graphs.segment import pointers

Graphs = tuple[Data, dict[str, Tensor]]
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


def molecule_graphs(molecules: Iterable[tuple[Any, str]]) -> Graphs:
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


def _collated(of: dict[str, np.ndarray]) -> Graphs:
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


def concatenate(parts: Sequence[Graphs]) -> Graphs:
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
