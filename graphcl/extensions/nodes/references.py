"""The rows of nodes without an encoder: their features, alone and averaged over neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.extensions.nodes.models import propagate
from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("raw", label="raw features", needs="nodes", after="bag")
def raw(inputs: Inputs) -> Tensor:
    """Return the features of the nodes."""
    return torch.cat([batch.x for batch in inputs.batches]).cpu()


@references.register("propagated", label="propagated features", needs="nodes", after="raw")
def propagated(inputs: Inputs) -> Tensor:
    """Return the features after two hops of the normalised adjacency."""
    return torch.cat([propagate(batch.x, batch.edge_index) for batch in inputs.batches]).cpu()
