"""The rows of classical descriptions of molecules: fingerprints, and descriptors alone or with the trained encoder."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from graphcl.extensions.molecules import import_rdkit
from graphcl.references.rows import Inputs
from graphcl.registry import references

NEEDS = "graph.smiles module.rdkit"


@references.register("ecfp4", label="ECFP4 fingerprints", needs=NEEDS, after="calibrated")
def ecfp4_row(inputs: Inputs) -> Tensor:
    """Return `ecfp4` of the molecules."""
    return ecfp4(_smiles(inputs))


@references.register("ecfp4_counts", label="ECFP4 counts", needs=NEEDS, after="ecfp4")
def ecfp4_counts_row(inputs: Inputs) -> Tensor:
    """Return `ecfp4_counts` of the molecules."""
    return ecfp4_counts(_smiles(inputs))


@references.register("descriptors", label="RDKit descriptors", needs=NEEDS, after="ecfp4_counts")
def descriptors_row(inputs: Inputs) -> Tensor:
    """Return `descriptors` of the molecules."""
    return descriptors(_smiles(inputs))


@references.register(
    "descriptors+trained", label="descriptors + trained", needs=f"{NEEDS} dense trained", after="bag_trained"
)
def descriptors_and_trained(inputs: Inputs) -> Tensor:
    """Return descriptors and embeddings by the trained encoder side by side."""
    assert inputs.trained is not None
    return side_by_side(descriptors(_smiles(inputs)), inputs.trained[: len(inputs.dataset)])


def _smiles(inputs: Inputs) -> tuple[str, ...]:
    smiles: list[str] = inputs.dataset._data.smiles
    return tuple(smiles[index] for index in inputs.dataset.indices())


def side_by_side(*embeddings: Tensor) -> Tensor:
    """Return embeddings `[n, columns]` side by side, each column standardised over the graphs, in float64."""
    h = torch.cat(embeddings, dim=1).double()
    deviation = h.std(0, correction=0)
    return (h - h.mean(0)) / deviation.where(deviation > 0, 1)


@functools.lru_cache(maxsize=1)
def ecfp4(smiles: tuple[str, ...]) -> Tensor:
    """Return the extended-connectivity fingerprints of radius 2 with 2048 bits, `[n, 2048]` of 0 and 1.

    Args:
        smiles: n valid SMILES.

    Reference: Rogers and Hahn, "Extended-Connectivity Fingerprints", J. Chem. Inf. Model. 50, 2010.
    """
    return _morgan(smiles, "GetFingerprintAsNumPy")


@functools.lru_cache(maxsize=1)
def ecfp4_counts(smiles: tuple[str, ...]) -> Tensor:
    r"""Return the extended-connectivity count fingerprints of radius 2, `[n, 2048]`.

    $$\log(1 + c)$$

    where c is the number of times that an environment of the column occurs in the molecule. The logarithm keeps
    frequent environments from dominating a linear probe; a forest depends on the order of the counts only.

    Args:
        smiles: n valid SMILES.
    """
    return _morgan(smiles, "GetCountFingerprintAsNumPy").log1p()


def _morgan(smiles: tuple[str, ...], kind: str) -> Tensor:
    chem = import_rdkit("Chem")
    generator = import_rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(radius=2, fpSize=2048)
    with import_rdkit("rdBase").BlockLogs():
        rows = [getattr(generator, kind)(chem.MolFromSmiles(text)) for text in smiles]
    return torch.from_numpy(np.stack(rows)).float()


@functools.lru_cache(maxsize=1)
def descriptors(smiles: tuple[str, ...]) -> Tensor:
    r"""Return all of RDKit's descriptors, about 200 columns: masses, counts, surfaces, charges, lipophilicity.

    $$\operatorname{sign}(d) \log(1 + |d|)$$

    where d is the value of a descriptor; the logarithm is needed because some values span many orders of magnitude. A
    descriptor that RDKit cannot compute is 0. The computation takes a few milliseconds per molecule.

    Args:
        smiles: n valid SMILES.
    """
    chem, calculator = import_rdkit("Chem"), import_rdkit("Chem.Descriptors")
    with import_rdkit("rdBase").BlockLogs():
        rows = [list(calculator.CalcMolDescriptors(chem.MolFromSmiles(text)).values()) for text in smiles]
    values = np.nan_to_num(np.array(rows, dtype=np.float64), posinf=0, neginf=0)
    return torch.from_numpy(np.sign(values) * np.log1p(np.abs(values))).float()
