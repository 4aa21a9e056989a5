"""Augmentations of all graphs of a batch at once. Every augmentation is also a PyG transform.

An augmentation first draws a decision and then applies it, so that a decision can be replayed:
`apply_decision(batch, NodeDrop(0.2).decide(batch, generator))` equals `NodeDrop(0.2)(batch, generator)`. All names
are registered in `graphcl.registry.augmentations`.
"""

from graphcl.augment.compose import Compose, OneOf, drop_and_mask, random2, random3, random4
from graphcl.augment.edge_perturb import EdgeDrop, EdgePerturb
from graphcl.augment.mask import AttributeMask, FeatureMask
from graphcl.augment.node_drop import NodeDrop
from graphcl.augment.per_graph import PerGraph
from graphcl.augment.subgraph import Subgraph
from graphcl.augment.transform import Augmentation, Decision, Identity, apply_decision, two_views

__all__ = ["AttributeMask", "Augmentation", "Compose", "Decision", "EdgeDrop", "EdgePerturb", "FeatureMask", "Identity"]
__all__ += ["NodeDrop", "OneOf", "PerGraph", "Subgraph", "apply_decision", "drop_and_mask", "random2", "random3"]
__all__ += ["random4", "two_views"]
