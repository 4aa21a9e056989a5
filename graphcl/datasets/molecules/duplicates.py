"""Find rows that repeat a molecule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.molecules.graphs import Graphs
from graphcl.system.optional import import_rdkit

DEPTH = 3
"""Radius in bonds of the atoms' surroundings that keys compare."""


def duplicates(graphs: Graphs, smiles: Sequence[str]) -> list[tuple[int, int]]:
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


def keys(graphs: Graphs) -> Tensor:
    """Return an int64 key per molecule, `[n]`, which does not depend on the order of its atoms.

    It is a sum of hashes of the atoms' surroundings without stereochemistry, so different molecules may share it.
    """
    data, slices = graphs
    ptr, edge_ptr = slices["x"], slices["edge_index"]
    source, target = data.edge_index + ptr[:-1].repeat_interleave(edge_ptr.diff())
    numbers = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63, data.x.size(1) + 1))
    colour = (data.x.index_fill(1, torch.tensor(1), 0) + 1) @ numbers[:-1]
    for _ in range(DEPTH):
        message = _mixed(colour[source] + data.edge_attr[:, 0] * numbers[-1])
        colour = _mixed(colour).index_add_(0, target, message)
    graph = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())
    return torch.zeros(len(ptr) - 1, dtype=torch.long).index_add_(0, graph, _mixed(colour))


def _mixed(values: Tensor) -> Tensor:
    """Return a hash of each int64 (half a round of splitmix64)."""
    values = (values ^ (values >> 30)) * -4658895280553007687
    return values ^ (values >> 27)
