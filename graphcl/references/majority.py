"""The rows without information: equal embeddings of all graphs or nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("majority", label="majority class", task="predict", place="00")
def majority(inputs: Inputs) -> Tensor:
    """Return zeros, for which a classifier predicts the largest class of its training part."""
    return torch.zeros(inputs.dataset.num_rows, 1)


@references.register("random", label="random order", task="search", place="01")
def random_order(inputs: Inputs) -> Tensor:
    """Return zeros, by which all candidates of a query are equal."""
    return majority(inputs)
