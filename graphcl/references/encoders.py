"""The rows of the encoder: untrained, with calibrated BatchNorm, and trained."""

from __future__ import annotations

from torch import Tensor

from graphcl.references.rows import Inputs
from graphcl.registry import references
from graphcl.training.loop import embed


@references.register("untrained", label="untrained encoder", after="bag")
def untrained(inputs: Inputs) -> Tensor:
    """Return embeddings by random weights."""
    return embed(inputs.untrained or inputs.model, inputs.batches)[0]


@references.register("initial", label="initial weights", needs="init", after="untrained")
def initial(inputs: Inputs) -> Tensor:
    """Return embeddings by the weights that training starts from, those of another run."""
    return embed(inputs.model, inputs.batches)[0]


@references.register("calibrated", label="untrained, calibrated", needs="batchnorm", after="initial")
def calibrated(inputs: Inputs) -> Tensor:
    """Return embeddings by the initial weights, with BatchNorm statistics of all graphs."""
    return embed(inputs.calibrate(), inputs.batches)[0]


@references.register("trained", label="trained encoder", needs="trained")
def trained(inputs: Inputs) -> Tensor:
    """Return embeddings by the trained encoder."""
    assert inputs.trained is not None
    return inputs.trained


@references.register("bag_trained", label="bag, trained", needs="graphs numbers dense groups search trained")
def bag_trained(inputs: Inputs) -> Tensor:
    """Return embeddings by the encoder `deep_sets`, which ignores edges, trained with the settings of the run."""
    assert inputs.train_other is not None
    return inputs.train_other("deep_sets")
