"""Load graphs whose nodes are contrasted and scored, instead of whole graphs."""

from graphcl.datasets.nodes.load import NodeDataset, load_nodes

__all__ = ["NodeDataset", "load_nodes"]
