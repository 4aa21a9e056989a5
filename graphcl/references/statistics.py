"""The row of simple statistics of graphs."""

from __future__ import annotations

from torch import Tensor

from graphcl.graphs.statistics import graph_statistics
from graphcl.references.rows import Inputs
from graphcl.registry import references


@references.register("statistics", label="graph statistics", needs="graphs columns", place="02")
def statistics(inputs: Inputs) -> Tensor:
    """Return sizes and histograms of each graph, see `graphcl.graphs.statistics.graph_statistics`."""
    found = graph_statistics(inputs.batches, inputs.max_degree)
    # without the columns that are zero for all graphs, but not for all copies
    return found[:, (found[: len(inputs.dataset)] != 0).any(dim=0)]
