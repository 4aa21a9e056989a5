"""Augmentations of all graphs of a batch at once: one file each, every one of them a PyG transform too.

Each decides at random and then applies: `apply(batch, NodeDrop(0.2).decide(batch, generator))` is the same as
`NodeDrop(0.2)(batch, generator)`, and a decision can be replayed. `graphcl.registry.augmentations` knows every name.
"""

from graphcl.augment.attribute_mask import AttributeMask
from graphcl.augment.compose import Compose, OneOf, random2, random3, random4
from graphcl.augment.decision import Decision, apply
from graphcl.augment.edge_perturb import EdgePerturb
from graphcl.augment.identity import Identity
from graphcl.augment.node_drop import NodeDrop
from graphcl.augment.subgraph import Subgraph
from graphcl.augment.transform import Augmentation
from graphcl.augment.views import two_views

__all__ = [
    "AttributeMask",
    "Augmentation",
    "Compose",
    "Decision",
    "EdgePerturb",
    "Identity",
    "NodeDrop",
    "OneOf",
    "Subgraph",
    "apply",
    "random2",
    "random3",
    "random4",
    "two_views",
]
