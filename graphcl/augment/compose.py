"""Augmentations made of others: one after the other, or one drawn for each graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.datapipes import functional_transform

from graphcl.arguments import NonNegative, Ratio
from graphcl.augment.attribute_mask import AttributeMask
from graphcl.augment.decision import Decision, apply, chain, join
from graphcl.augment.edge_perturb import EdgePerturb
from graphcl.augment.node_drop import NodeDrop
from graphcl.augment.subgraph import Subgraph
from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError
from graphcl.graphs.batching import Layout
from graphcl.registry import augmentations

F = TypeVar("F", bound=Callable[..., Augmentation])


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
    """Apply one of several augmentations, drawn independently for each graph.

    Args:
        members: the augmentations to draw from.
        weights: of each member, >= 0; its share of their sum is its probability. All equal by default.

    Example:
        >>> OneOf([NodeDrop(0.1), Subgraph(0.1)]).members[1]
        Subgraph(ratio=0.1, growth='boundary')
        >>> OneOf([NodeDrop(0.1), Subgraph(0.1)], weights=[3, 1]).weights  # three graphs of four lose nodes
        [3, 1]
    """

    def __init__(self, members: list[Augmentation], weights: list[NonNegative] | None = None) -> None:
        self.members = _checked(members)
        if weights is not None and (len(weights) != len(members) or sum(weights) == 0):
            raise InputError(f"`weights` must be {len(members)} numbers, one a member and not all 0, got {weights}.")
        self.weights = None if weights is None else list(weights)

    def draw(self, num_graphs: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Which member each graph gets, `[B]`."""
        if self.weights is None:
            return torch.randint(len(self.members), (num_graphs,), generator=generator, device=device)
        return weighted_draw(torch.tensor(self.weights, dtype=torch.float64, device=device), num_graphs, generator)

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Draw a member for each graph, then what each member draws for its graphs."""
        ptr = Layout.of(batch).ptr
        return self.decide_drawn(batch, self.draw(ptr.numel() - 1, generator, ptr.device), generator, graphs)

    def decide_drawn(
        self, batch: Batch, drawn: Tensor, generator: torch.Generator | None = None, graphs: Tensor | None = None
    ) -> Decision:
        """What the members draw on graphs that have drawn them already, `[B]`."""
        mine = [drawn == position for position in range(len(self.members))]
        if graphs is not None:
            mine = [mask & graphs for mask in mine]
        # Members touch different graphs, so those that take one step do it together. Those that take several follow one
        # by one, and decide anew on what is there then.
        first = [member.decide(batch, generator, mask) for member, mask in zip(self.members, mine, strict=True)]
        decisions = [join(decision for decision in first if decision.then is None)]
        for member, mask, decision in zip(self.members, mine, first, strict=True):
            if decision.then is not None:
                batch = apply(batch, decisions[-1])
                decisions.append(member.decide(batch, generator, mask))
        return chain(decisions)


def _functional(name: str) -> Callable[[F], F]:
    """PyG's `functional_transform`, which has no types: what it decorates keeps its own."""
    decorate: Callable[[F], F] = functional_transform(name)
    return decorate


@_functional("graphcl_random2")
@augmentations.register("random2")
def random2(ratio: Ratio = 0.2) -> OneOf:
    """Node drop or subgraph, drawn for each graph (GraphCL's pool of two).

    Args:
        ratio: fraction that each member changes, in [0, 1).

    Example:
        >>> len(random2(0.1).members)
        2

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random2` of
        the released code.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio)])


@_functional("graphcl_random3")
@augmentations.register("random3")
def random3(ratio: Ratio = 0.2) -> OneOf:
    """Node drop, subgraph or edge perturbation, drawn for each graph (GraphCL's pool of three).

    Args:
        ratio: fraction that each member changes, in [0, 1).

    Example:
        >>> len(random3(0.1).members)
        3

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random3` of
        the released code.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio)])


@_functional("graphcl_random4")
@augmentations.register("random4")
def random4(ratio: Ratio = 0.2) -> OneOf:
    """Node drop, subgraph, edge perturbation or attribute masking, drawn for each graph (GraphCL's pool of four).

    Args:
        ratio: fraction that each member changes, in [0, 1).

    Example:
        >>> len(random4(0.1).members)
        4

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random4` of
        the released code.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio), AttributeMask(ratio)])


def weighted_draw(weights: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Positions `[count]`, each drawn with its share of `weights [n]`, >= 0; by the inverse of the distribution."""
    levels = weights.double().cumsum(0)
    # The last level is 1 exactly and a draw lies below it, so nothing of weight 0 is drawn.
    where = torch.rand(count, generator=generator, dtype=torch.float64, device=weights.device)
    return torch.searchsorted(levels / levels[-1], where, right=True)


def _checked(members: list[Augmentation]) -> list[Augmentation]:
    sound = isinstance(members, (list, tuple)) and len(members) > 0
    if not sound or not all(isinstance(member, Augmentation) for member in members):
        raise InputError(f"`members` must be a list of one or more augmentations, got {members!r}.")
    return list(members)
