"""The rows of classical fingerprints of molecules."""

from __future__ import annotations

from torch import Tensor

from graphcl.datasets.molecules import fingerprints
from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("ecfp4", label="ECFP4 fingerprints", needs="smiles", place="08")
def ecfp4(inputs: Inputs) -> Tensor:
    """Return bits, see `graphcl.datasets.molecules.fingerprints.ecfp4`."""
    return fingerprints.ecfp4(inputs.smiles)


@references.register("ecfp4_counts", label="ECFP4 counts", needs="smiles", place="09")
def ecfp4_counts(inputs: Inputs) -> Tensor:
    """Return log counts, see `graphcl.datasets.molecules.fingerprints.ecfp4_counts`."""
    return fingerprints.ecfp4_counts(inputs.smiles)
