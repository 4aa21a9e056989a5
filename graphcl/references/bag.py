"""The row of node labels without edges."""

from __future__ import annotations

from torch import Tensor

from graphcl.graphs.statistics import bag_of_labels
from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("bag", label="bag of node labels", needs="graphs columns search", place="03")
def bag(inputs: Inputs) -> Tensor:
    """Return the sum of each graph's node features."""
    return bag_of_labels(inputs.batches)


@references.register("bag_trained", label="bag, trained", needs="graphs columns groups search trained", place="97")
def bag_trained(inputs: Inputs) -> Tensor:
    """Return embeddings by the encoder `deep_sets`, which ignores edges, trained with the settings of the run."""
    assert inputs.train_other is not None
    return inputs.train_other("deep_sets")
