"""Compose augmentations: apply them in sequence, or draw one for each graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import NonNegative, Ratio
from graphcl.augment.edge_perturb import EdgeDrop, EdgePerturb
from graphcl.augment.mask import AttributeMask, FeatureMask
from graphcl.augment.node_drop import NodeDrop
from graphcl.augment.subgraph import Subgraph
from graphcl.augment.transform import Augmentation, Decision, apply_decision, as_augmentation
from graphcl.errors import InputError
from graphcl.graphs.batching import Layout
from graphcl.graphs.segment import cumulative
from graphcl.registry import augmentations


@augmentations.register("compose")
class Compose(Augmentation):
    """Apply several augmentations in sequence.

    Args:
        members: the augmentations, or their names, in order.

    Example:
        >>> Compose([NodeDrop(0.1), AttributeMask(0.1)]).members[0]
        NodeDrop(ratio=0.1)
    """

    def __init__(self, members: Sequence[Augmentation | str]) -> None:
        self.members = _checked(members)

    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a decision of several steps; each member decides on the result of the previous member."""
        decisions = []
        for member in self.members:
            decisions.append(member.decide(batch, generator, graphs))
            batch = apply_decision(batch, decisions[-1])
        return chain(decisions)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Return the batch after applying all members in sequence."""
        for member in self.members:
            batch = member.augment(batch, generator, graphs)
        return batch


@augmentations.register("one_of")
class OneOf(Augmentation):
    """Apply one of several augmentations, drawn independently for each graph.

    Args:
        members: the augmentations to draw from, or their names.
        weights: weight of each member, >= 0, proportional to its probability; equal by default.

    Example:
        >>> OneOf([NodeDrop(0.1), Subgraph(0.1)]).members[1]
        Subgraph(ratio=0.1, growth='boundary')
        >>> OneOf([NodeDrop(0.1), Subgraph(0.1)], weights=[3, 1]).weights  # NodeDrop has probability 3/4
        [3, 1]
    """

    def __init__(self, members: Sequence[Augmentation | str], weights: list[NonNegative] | None = None) -> None:
        self.members = _checked(members)
        if weights is not None and (len(weights) != len(members) or sum(weights) == 0):
            raise InputError(f"`weights` must be {len(members)} numbers, one per member and not all 0, got {weights}.")
        self.weights = None if weights is None else list(weights)

    def draw(self, num_graphs: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
        """Return the index of a drawn member for each graph, `[B]`."""
        if self.weights is None:
            return torch.randint(len(self.members), (num_graphs,), generator=generator, device=device)
        weights = torch.tensor(self.weights, dtype=torch.float64).to(device, non_blocking=True)
        return weighted_draw(weights, num_graphs, generator)

    def decide(
        self,
        batch: Batch,
        generator: torch.Generator | None = None,
        graphs: Tensor | None = None,
        drawn: Tensor | None = None,
    ) -> Decision:
        """Return the combined decision in which member drawn[g] changes graph g; `drawn [B]` is drawn by default."""
        if drawn is None:
            ptr = Layout.of(batch).ptr
            drawn = self.draw(ptr.numel() - 1, generator, ptr.device)
        masks = [drawn == position for position in range(len(self.members))]
        masks = masks if graphs is None else [mask & graphs for mask in masks]
        # Members change different graphs, so single-step decisions can be joined. Multi-step members follow one by one
        # and decide again, because the batch has changed.
        first = [member.decide(batch, generator, mask) for member, mask in zip(self.members, masks, strict=True)]
        decisions = [join(decision for decision in first if decision.then is None)]
        for member, mask, decision in zip(self.members, masks, first, strict=True):
            if decision.then is not None:
                batch = apply_decision(batch, decisions[-1])
                decisions.append(member.decide(batch, generator, mask))
        return chain(decisions)


@augmentations.register("random2")
def random2(ratio: Ratio = 0.2) -> OneOf:
    """Return a `OneOf` of node drop and subgraph (GraphCL's pool of two).

    Args:
        ratio: `ratio` of each member, in [0, 1).

    Example:
        >>> len(random2(0.1).members)
        2

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random2`.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio)])


@augmentations.register("random3")
def random3(ratio: Ratio = 0.2) -> OneOf:
    """Return a `OneOf` of node drop, subgraph and edge perturbation (GraphCL's pool of three).

    Args:
        ratio: `ratio` of each member, in [0, 1).

    Example:
        >>> len(random3(0.1).members)
        3

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random3`.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio)])


@augmentations.register("random4")
def random4(ratio: Ratio = 0.2) -> OneOf:
    """Return a `OneOf` of node drop, subgraph, edge perturbation and attribute masking (GraphCL's pool of four).

    Args:
        ratio: `ratio` of each member, in [0, 1).

    Example:
        >>> len(random4(0.1).members)
        4

    References:
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020 (arXiv 2010.13902): `--aug random4`.
    """
    return OneOf([NodeDrop(ratio), Subgraph(ratio), EdgePerturb(ratio), AttributeMask(ratio)])


@augmentations.register("drop_and_mask")
def drop_and_mask(edges: Ratio = 0.2, features: Ratio = 0.3) -> Compose:
    """Return a `Compose` of edge dropping and feature masking (GRACE's view); every node stays.

    Args:
        edges: `ratio` of `edge_drop`, in [0, 1).
        features: `ratio` of `feature_mask`, in [0, 1).

    Example:
        >>> drop_and_mask(0.4).members
        [EdgeDrop(ratio=0.4), FeatureMask(ratio=0.3)]

    References:
        Zhu et al., "Deep Graph Contrastive Representation Learning", 2020, Section 3.2.2 (arXiv 2006.04131).
    """
    return Compose([EdgeDrop(edges), FeatureMask(features)])


def weighted_draw(weights: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Return `count` indices drawn with probabilities proportional to `weights [n]`, by inverse transform sampling."""
    levels = cumulative(weights.double())
    # Draws lie below the last level, which is exactly 1, so a trailing entry of weight 0 is never drawn.
    where = torch.rand(count, generator=generator, dtype=torch.float64, device=weights.device)
    return torch.searchsorted(levels / levels[-1], where, right=True)


def _checked(members: Sequence[Augmentation | str]) -> list[Augmentation]:
    made = [as_augmentation(member, "members") for member in members] if isinstance(members, list | tuple) else []
    if not made or not all(isinstance(member, Augmentation) for member in made):
        raise InputError(f"`members` must be a list of one or more augmentations, got {members!r}.")
    return made


def join(decisions: Iterable[Decision]) -> Decision:
    """Return one decision that combines single-step `decisions`, which change different graphs of one batch."""
    steps = [*decisions]
    joined: dict[str, Any] = {}
    for field in fields(Decision):
        values = [getattr(step, field.name) for step in steps if getattr(step, field.name) is not None]
        if values and field.name in ("keep_node", "keep_edge"):
            joined[field.name] = reduce(torch.logical_and, values)
        elif len(values) == 1:
            joined[field.name] = values[0]
        elif values:
            joined[field.name] = torch.cat(values, 1 if field.name == "moved_to" else 0)
    return Decision(**joined)


def chain(decisions: Iterable[Decision]) -> Decision:
    """Return one decision that applies `decisions` in order; each one refers to the result of the previous one."""
    first, *rest = decisions
    if not rest:
        return first
    following = chain(rest)
    return replace(first, then=following if first.then is None else chain([first.then, following]))
