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
