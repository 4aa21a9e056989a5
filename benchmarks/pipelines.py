"""The compared pipelines by name."""

from __future__ import annotations

from ours import Ours
from per_graph import PerGraphLists
from per_graph_dense import PerGraphDense
from pyg_pipeline import PyGPipeline

PIPELINES = {"ours": Ours, "pyg": PyGPipeline, "lists": PerGraphLists, "dense": PerGraphDense}
