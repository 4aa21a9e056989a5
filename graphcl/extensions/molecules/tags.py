"""Convert RDKit molecules to graphs with two columns of atoms and two of bonds, as in Hu et al. (ICLR 2020).

| column | category |
|---|---|
| `x` 0, element | atomic number - 1; 118: `*` |
| `x` 1, chirality | RDKit's tag: 0 none, 1 clockwise, 2 counterclockwise, in the order in which the atoms are written |
| `edge_attr` 0, type | 0 single, 1 double, 2 triple, 3 aromatic; 5: another, the row of masked bonds |
| `edge_attr` 1, direction | of the single bonds beside a double bond: 0 none, 1 up (`/`), 2 down |

Source: Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (arXiv 1905.12265), appendix.

Differs: their code fails on `*` and on other bonds, and has no row for other chirality tags, which count as none here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.graphs.segment import pointers

TAGS = {"CHI_TETRAHEDRAL_CW": 1, "CHI_TETRAHEDRAL_CCW": 2}
TYPES = {"SINGLE": 0, "DOUBLE": 1, "TRIPLE": 2, "AROMATIC": 3}
OTHER_TYPE = 5
DIRECTIONS = {"ENDUPRIGHT": 1, "ENDDOWNRIGHT": 2}


def tagged_graphs(molecules: Iterable[tuple[Any, str]]) -> tuple[Data, dict[str, Tensor]]:
    """Return sanitised RDKit molecules as graphs in PyG's collated form; arguments as for `molecule_graphs`.

    Returns:
        `x [N, 2]`, `edge_index [2, E]` and `edge_attr [E, 2]` of int64, and their slices.
    """
    atoms, edges, bonds = list[tuple[int, int]](), list[tuple[int, int]](), list[tuple[int, int]]()
    sizes, counts = list[int](), list[int]()
    for molecule, _ in molecules:
        sizes.append(molecule.GetNumAtoms())
        counts.append(2 * molecule.GetNumBonds())
        for atom in molecule.GetAtoms():
            atoms.append(((atom.GetAtomicNum() - 1) % 119, TAGS.get(str(atom.GetChiralTag()), 0)))
        for bond in molecule.GetBonds():
            ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
            edges += [ends, ends[::-1]]
            coded = TYPES.get(str(bond.GetBondType()), OTHER_TYPE), DIRECTIONS.get(str(bond.GetBondDir()), 0)
            bonds += [coded, coded]
    x, edge_index, edge_attr = (torch.tensor(rows, dtype=torch.long).view(-1, 2) for rows in (atoms, edges, bonds))
    ptr, edge_ptr = pointers(torch.tensor(sizes)), pointers(torch.tensor(counts))
    data = Data(x=x, edge_index=edge_index.t().contiguous(), edge_attr=edge_attr)
    return data, {"x": ptr, "edge_index": edge_ptr, "edge_attr": edge_ptr}
