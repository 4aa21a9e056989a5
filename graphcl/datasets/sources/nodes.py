"""Read sources whose nodes are contrasted."""

from __future__ import annotations

from typing import Any

from graphcl.datasets.names import is_node_name
from graphcl.datasets.nodes import load_nodes
from graphcl.datasets.sources import Request, Source
from graphcl.errors import InputError
from graphcl.registry import sources


@sources.register("nodes")
class Nodes(Source):
    """One graph or a few with a class per node: a name such as Cora, a `.pt` file, `Data`, or a PyG data set."""

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether nodes are wanted, or `source` is the name of a set of nodes."""
        return request.nodes or is_node_name(source)

    def read(self, source: Any, request: Request) -> object:
        """Return the `NodeDataset`."""
        if request.nodes:
            return load_nodes(source, request.data_root, request.mirror, request.settings)
        advice = "use graphcl run --method grace, or load_dataset(..., nodes=True)"
        raise InputError(f"{source} is one graph, whose nodes are contrasted; {advice}.")
