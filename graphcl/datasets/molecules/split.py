"""Split molecules into training, validation and test parts: at random, stratified, or by scaffold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.system.optional import import_rdkit

TRAIN, VALID = 0.8, 0.1
"""Fractions of the graphs in the training and the validation part."""


def split_molecules(smiles: Sequence[str], y: Tensor, how: str) -> dict[str, Tensor]:
    """Return the indices of the graphs in the parts `train` (80 %), `valid` (10 %) and `test` (10 %), ascending.

    The split depends on the molecules alone, so it is the same for every run and seed.

    | `how` | molecules of a part |
    |---|---|
    | `random` | drawn at random |
    | `stratified` | drawn from every ten molecules in the order of the target, so the parts have similar targets |
    | `scaffold` | whole groups of `scaffold_groups`: large groups for training, small ones for the other parts |

    Args:
        smiles: n valid SMILES.
        y: targets `[n, tasks]`; "stratified" needs one task.
        how: a name in the table.

    Raises:
        InputError: "stratified" is used with several tasks, or a part would be empty.

    Reference: Wu et al., "MoleculeNet: a benchmark for molecular machine learning", 2018 (arXiv 1703.00564).
    """
    n = len(smiles)
    part = np.full(n, 2)
    order = np.random.default_rng(0).permutation(n)
    if how == "random":
        part[order[: int(TRAIN * n)]] = 0
        part[order[int(TRAIN * n) : int((TRAIN + VALID) * n)]] = 1
    elif how == "stratified":
        if y.size(1) > 1:
            raise InputError(f"`split` stratified takes one target, got {y.size(1)}; pass random or scaffold.")
        order = order[np.argsort(y[order, 0].numpy(), kind="stable")]
        place = np.lexsort((np.random.default_rng(1).random(n), np.arange(n) // 10))  # a random order within each ten
        part[order[place]] = np.array([0] * 8 + [1, 2])[np.arange(n) % 10]
    else:
        sizes = [0, 0, 0]
        for group in scaffold_groups(smiles):
            valid_or_test = 1 if sizes[0] + sizes[1] + len(group) <= (TRAIN + VALID) * n else 2
            chosen = 0 if sizes[0] + len(group) <= TRAIN * n else valid_or_test
            part[group] = chosen
            sizes[chosen] += len(group)
    found = {name: torch.from_numpy(np.flatnonzero(part == i)) for i, name in enumerate(("train", "valid", "test"))}
    if empty := [name for name, graphs in found.items() if not len(graphs)]:
        raise InputError(f"`split` {how} of {n} molecules leaves the part {empty[0]} empty; give more molecules.")
    return found


def scaffold_groups(smiles: Sequence[str]) -> list[list[int]]:
    """Return the indices of molecules with the same Bemis-Murcko scaffold, the largest group first.

    A scaffold consists of the rings and the chains between them, without stereochemistry. All molecules without rings
    share the empty scaffold. Groups of equal size are sorted by their first molecule, descending, as in MoleculeNet.

    Reference: Bemis and Murcko, "The properties of known drugs. 1. Molecular frameworks", J. Med. Chem. 39, 1996.
    """
    scaffold = import_rdkit("Chem.Scaffolds.MurckoScaffold").MurckoScaffoldSmiles
    groups = defaultdict(list)
    with import_rdkit("rdBase").BlockLogs():
        for number, each in enumerate(smiles):
            groups[scaffold(smiles=each, includeChirality=False)].append(number)
    return sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)
