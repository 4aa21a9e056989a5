"""What an augmentation has drawn: decided once at random, then applied deterministically, as often as wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.graphs.batching import Layout, select
from graphcl.graphs.segment import pick, positions


@dataclass(frozen=True)
class Decision:
    """A change to a batch of N nodes and E directed edges; `None` changes nothing.

    Args:
        keep_node: nodes that stay, mask `[N]`.
        keep_edge: edges that stay, mask `[E]`; edges that lose an end go in any case.
        moved: edges that get other ends, positions `[K]`; they keep their attributes.
        moved_to: the other ends, `[2, K]`, nodes of the same graph.
        masked: nodes whose features are replaced, positions `[M]`.
        features: what replaces them, `[M, F]`.
        then: what is done to the outcome, in its numbering of nodes and edges.
    """

    keep_node: Tensor | None = None
    keep_edge: Tensor | None = None
    moved: Tensor | None = None
    moved_to: Tensor | None = None
    masked: Tensor | None = None
    features: Tensor | None = None
    then: Decision | None = None


def apply(batch: Batch, decision: Decision) -> Batch:
    """The batch after `decision`: the same graphs in the same order. `batch` is not changed."""
    while decision.then is not None:
        batch, decision = apply(batch, replace(decision, then=None)), decision.then
    if all(change is None for change in vars(decision).values()):
        return batch
    layout = Layout.of(batch)
    edge_index, masked, features = layout.edge_index, decision.masked, decision.features
    if decision.moved is not None and decision.moved_to is not None:
        edge_index = edge_index.clone()
        for ends, to in zip(edge_index, decision.moved_to, strict=True):
            ends.index_copy_(0, decision.moved, to)
    out = select(batch, layout, decision.keep_node, decision.keep_edge, edge_index)
    if masked is not None and features is not None:
        if decision.keep_node is None:
            out.x = batch.x.index_copy(0, masked, features)
        else:  # the rows are new already, and have other numbers
            there = positions(pick(decision.keep_node, masked))
            number = pick(decision.keep_node.cumsum(0), pick(masked, there)) - 1
            out.x.index_copy_(0, number, pick(features, there))
    return out


def join(decisions: Iterable[Decision]) -> Decision:
    """One decision out of several on the same batch that touch different graphs and take one step each."""
    parts = list(decisions)
    return Decision(
        keep_node=_all(part.keep_node for part in parts),
        keep_edge=_all(part.keep_edge for part in parts),
        moved=_cat((part.moved for part in parts), dim=0),
        moved_to=_cat((part.moved_to for part in parts), dim=1),
        masked=_cat((part.masked for part in parts), dim=0),
        features=_cat((part.features for part in parts), dim=0),
    )


def chain(decisions: Iterable[Decision]) -> Decision:
    """One decision that applies several in order, each in the numbering that the ones before it leave."""
    first, *rest = decisions
    if not rest:
        return first
    following = chain(rest)
    return replace(first, then=following if first.then is None else chain([first.then, following]))


def _all(masks: Iterable[Tensor | None]) -> Tensor | None:
    given = [mask for mask in masks if mask is not None]
    return torch.stack(given).all(dim=0) if given else None


def _cat(tensors: Iterable[Tensor | None], dim: int) -> Tensor | None:
    given = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(given, dim) if given else None
