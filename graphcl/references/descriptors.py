"""The rows of RDKit's descriptors of molecules, alone and with the trained encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.datasets.molecules import fingerprints
from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("descriptors", label="RDKit descriptors", needs="smiles", place="10")
def descriptors(inputs: Inputs) -> Tensor:
    """Return descriptors, see `graphcl.datasets.molecules.fingerprints.descriptors`."""
    return fingerprints.descriptors(inputs.smiles)


@references.register("descriptors+trained", label="descriptors + trained", needs="smiles trained", place="98")
def descriptors_and_trained(inputs: Inputs) -> Tensor:
    """Return descriptors and embeddings by the trained encoder side by side."""
    assert inputs.trained is not None
    return side_by_side(descriptors(inputs), inputs.trained[: len(inputs.dataset)])


def side_by_side(*embeddings: Tensor) -> Tensor:
    """Return embeddings `[n, columns]` side by side, each column standardised over the graphs, in float64."""
    h = torch.cat(embeddings, dim=1).double()
    deviation = h.std(0, correction=0)
    return (h - h.mean(0)) / deviation.where(deviation > 0, 1)
