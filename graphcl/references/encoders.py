"""The rows of the encoder: untrained, with calibrated BatchNorm, and trained."""

from __future__ import annotations

from torch import Tensor

from graphcl.references.rows import Inputs
from graphcl.registry import references
from graphcl.training.loop import embed


@references.register("untrained", label="untrained encoder", place="06")
def untrained(inputs: Inputs) -> Tensor:
    """Return embeddings by the initial weights."""
    return embed(inputs.model, inputs.batches)[0]


@references.register("calibrated", label="untrained, calibrated", needs="batchnorm", place="07")
def calibrated(inputs: Inputs) -> Tensor:
    """Return embeddings by the initial weights, with BatchNorm statistics of all graphs."""
    return embed(inputs.calibrate(), inputs.batches)[0]


@references.register("trained", label="trained encoder", needs="trained", place="99")
def trained(inputs: Inputs) -> Tensor:
    """Return embeddings by the trained encoder."""
    assert inputs.trained is not None
    return inputs.trained
