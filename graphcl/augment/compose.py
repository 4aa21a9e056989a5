"""Augmentations made of others: one after the other, or one drawn for each graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.datapipes import functional_transform

from graphcl.arguments import Ratio
from graphcl.augment.attribute_mask import AttributeMask
from graphcl.augment.decision import Decision, apply, chain, join
from graphcl.augment.edge_perturb import EdgePerturb
from graphcl.augment.node_drop import NodeDrop
from graphcl.augment.subgraph import Subgraph
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError
from graphcl.registry import augmentations


@functional_transform("graphcl_compose")
@augmentations.register("compose")
class Compose(Augmentation):
    """Apply several augmentations, one after the other.

    Args:
        members: the augmentations, in order.

    Example:
        >>> Compose([NodeDrop(0.1), AttributeMask(0.1)]).members[0]
        NodeDrop(ratio=0.1)
    """

    def __init__(self, members: list[Augmentation]) -> None:
        self.members = _checked(members)

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """What each member draws on what the ones before it left."""
        decisions = []
        for member in self.members:
            decisions.append(member.decide(batch, generator, graphs))
            batch = apply(batch, decisions[-1])
        return chain(decisions)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Decide and apply, member by member."""
        for member in self.members:
            batch = member.augment(batch, generator, graphs)
        return batch


@functional_transform("graphcl_one_of")
@augmentations.register("one_of")
class OneOf(Augmentation):
    """Apply one of several augmentations, drawn uniformly and independently for each graph.

    Args:
        members: the augmentations to draw from.

    Example:
        >>> OneOf([NodeDrop(0.1), Subgraph(0.1)]).members[1]
        Subgraph(ratio=0.1, growth='boundary')
    """

    def __init__(self, members: list[Augmentation]) -> None:
        self.members = _checked(members)

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Draw a member for each graph, then what each member draws for its graphs."""
        size, device = (batch.num_graphs,), batch.edge_index.device
        draw = torch.randint(len(self.members), size, generator=generator, device=device)
        mine = [draw == position for position in range(len(self.members))]
        if graphs is not None:
            mine = [mask & graphs for mask in mine]
        # Members touch different graphs. Those that take one step do so together; the others follow one by one.
        together = [
            member.decide(batch, generator, mask)
            for member, mask in zip(self.members, mine, strict=True)
            if not isinstance(member, (Compose, OneOf))
        ]
        decisions = [join(together)]
        for member, mask in zip(self.members, mine, strict=True):
            if isinstance(member, (Compose, OneOf)):
                batch = apply(batch, decisions[-1])
                decisions.append(member.decide(batch, generator, mask))
        return chain(decisions)


@functional_transform("graphcl_random2")
@augmentations.register("random2")
def random2(ratio: Ratio = 0.2) -> OneOf:
    """Node drop or subgraph, drawn for each graph (GraphCL's pool of two).

    Args:
        ratio: fraction that each member changes, in [0, 1).
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio)])


@functional_transform("graphcl_random3")
@augmentations.register("random3")
def random3(ratio: Ratio = 0.2) -> OneOf:
    """Node drop, subgraph or edge perturbation, drawn for each graph (GraphCL's pool of three).

    Args:
        ratio: fraction that each member changes, in [0, 1).
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio)])


@functional_transform("graphcl_random4")
@augmentations.register("random4")
def random4(ratio: Ratio = 0.2) -> OneOf:
    """Node drop, subgraph, edge perturbation or attribute masking, drawn for each graph (GraphCL's pool of four).

    Args:
        ratio: fraction that each member changes, in [0, 1).
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio), AttributeMask(ratio)])


def _checked(members: list[Augmentation]) -> list[Augmentation]:
    if not members or not all(isinstance(member, Augmentation) for member in members):
        raise InputError(f"`members` must be a list of one or more augmentations, got {members!r}.")
    return list(members)
