"""Convert RDKit molecules to graphs with categorical atoms and bonds, in the coding of OGB's molecule data sets.

| column of `x` | category 0, 1, 2, ... | else |
|---|---|---|
| element | atomic number 1, 2, ..., 118 | 118: `*` |
| chirality | unspecified, tetrahedral clockwise, tetrahedral counterclockwise, other | 4 |
| degree | neighbours, with hydrogens: 0, 1, ..., 10 | 11 |
| charge | formal charge -5, -4, ..., 5 | 11 |
| hydrogens | implicit and written `[nH]`: 0, 1, ..., 8 | 9 |
| radical electrons | 0, 1, ..., 4 | 5 |
| hybridisation | sp, sp2, sp3, sp3d, sp3d2 | 5 |
| aromatic, in a ring | no, yes | - |

| column of `edge_attr` | category 0, 1, 2, ... | else |
|---|---|---|
| type | single, double, triple, aromatic | 4 |
| stereo configuration | none, Z, E, cis, trans, any | 5 |
| conjugated | no, yes | - |

The molecule is used as written: hydrogens stay implicit, salts keep all fragments, isotopes are ignored.

Source: Hu et al., "Open Graph Benchmark", NeurIPS 2020 (arXiv 2005.00687), appendix, and the documentation of
`ogb.utils.features`.

Differs: OGB's reader fails on atropisomeric bonds; here they count as `any`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.graphs.segment import pointers
from graphcl.system.optional import import_rdkit

Graphs = tuple[Data, dict[str, Tensor]]
"""Graphs in PyG's collated form: all values, and the start of each graph in each attribute."""
CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
HYBRIDISATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS")


def molecule_graphs(molecules: Sequence[Any]) -> Graphs:
    """Return sanitised RDKit molecules as graphs in PyG's collated form, with every bond in both directions.

    The properties of all atoms are first collected in flat lists, and then encoded together, for speed.

    Returns:
        `x [N, 9]`, `edge_index [2, E]` and `edge_attr [E, 3]` of int64, and their slices.
    """
    chem = import_rdkit("Chem")
    atom, bond = chem.Atom, chem.Bond
    (element, chirality, charge, hydrogens, radical, hybrid, aromatic, ring), atoms = _gather(
        (atom.GetAtomicNum, atom.GetChiralTag, atom.GetFormalCharge, atom.GetTotalNumHs, atom.GetNumRadicalElectrons,
         atom.GetHybridization, atom.GetIsAromatic, atom.IsInRing),
        ([each.GetAtomWithIdx(i) for i in range(each.GetNumAtoms())] for each in molecules),
    )  # fmt: skip
    (begin, end, kind, stereo, conjugated), bonds = _gather(
        (bond.GetBeginAtomIdx, bond.GetEndAtomIdx, bond.GetBondType, bond.GetStereo, bond.GetIsConjugated),
        ([each.GetBondWithIdx(i) for i in range(each.GetNumBonds())] for each in molecules),
    )
    ptr, edge_ptr = pointers(atoms), pointers(2 * bonds)
    first = ptr[:-1].repeat_interleave(bonds).numpy()
    neighbours = np.bincount(np.concatenate([first + begin, first + end]), minlength=len(element))
    columns = (
        (element - 1) % 119,  # 0, the wildcard `*`, becomes 118
        _lookup(chem.ChiralType, CHIRALITY)[chirality],
        np.minimum(neighbours + hydrogens, 11),
        np.where(np.abs(charge) > 5, 11, charge + 5),
        np.minimum(hydrogens, 9),
        np.minimum(radical, 5),
        _lookup(chem.HybridizationType, HYBRIDISATION)[hybrid],
        aromatic,
        ring,
    )
    bond_columns = (_lookup(chem.BondType, BOND_TYPE)[kind], _lookup(chem.BondStereo, STEREO)[stereo], conjugated)
    data = Data(
        x=torch.from_numpy(np.stack(columns, axis=1)),
        edge_index=torch.from_numpy(np.stack([begin, end, end, begin], axis=1)).view(-1, 2).t().contiguous(),
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
            data[key] = [text for each in values for text in each]
        slices[key] = pointers(torch.cat([cut[key].diff() for _, cut in parts]))
    return data, slices


def _gather(getters: Sequence[Callable[[Any], int]], groups: Iterable[list[Any]]) -> tuple[list[np.ndarray], Tensor]:
    """Return one int64 array per getter with its values for the items of all groups, and the sizes of the groups."""
    values: list[list[int]] = [[] for _ in getters]
    sizes = []
    for items in groups:  # one group at a time, as many live RDKit objects slow the garbage collector down
        sizes.append(len(items))
        for found, get in zip(values, getters, strict=True):
            found.extend(map(get, items))
    return [np.fromiter(each, dtype=np.int64) for each in values], torch.tensor(sizes)


def _lookup(enum: Any, names: Sequence[str]) -> np.ndarray:
    """Return a lookup table: value of an RDKit enumeration -> index in `names`, or `len(names)` for other values."""
    table = np.full(max(enum.values) + 1, len(names))
    table[[int(enum.names[name]) for name in names]] = np.arange(len(names))
    return table
