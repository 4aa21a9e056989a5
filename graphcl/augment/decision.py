"""Decisions: the random draws of an augmentation. Applying a decision is deterministic and can be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.arguments import named_arguments
from graphcl.graphs.batching import Layout
from graphcl.graphs.select import select


@dataclass(frozen=True)
class Decision:
    """Changes to a batch of N nodes and E directed edges; a field that is None changes nothing.

    Args:
        keep_node: mask `[N]` of the nodes to keep.
        keep_edge: mask `[E]` of the edges to keep; edges of removed nodes are always removed.
        moved: indices `[K]` of the edges to rewire; the edges keep their attributes.
        moved_to: new sources and targets `[2, K]` of the rewired edges, within the same graph.
        masked: indices `[M]` of the nodes whose features are replaced.
        features: new features `[M, F]` of the masked nodes.
        then: decision to apply to the resulting batch; its indices refer to the resulting batch.
    """

    keep_node: Tensor | None = None
    keep_edge: Tensor | None = None
    moved: Tensor | None = None
    moved_to: Tensor | None = None
    masked: Tensor | None = None
    features: Tensor | None = None
    then: Decision | None = None


@named_arguments
def apply_decision(batch: Batch, decision: Decision) -> Batch:
    """Return `batch` changed by `decision`, with the same graphs in the same order. `batch` itself is not changed."""
    while decision.then is not None:
        batch, decision = apply_decision(batch, replace(decision, then=None)), decision.then
    if all(change is None for change in vars(decision).values()):
        return batch
    layout = Layout.of(batch)
    changed = {"edge_index": layout.edge_index}
    if decision.moved is not None and decision.moved_to is not None:
        changed["edge_index"] = layout.edge_index.clone()
        for ends, to in zip(changed["edge_index"], decision.moved_to, strict=True):
            ends.index_copy_(0, decision.moved, to)
    if decision.masked is not None and decision.features is not None:
        changed["x"] = batch.x.index_copy(0, decision.masked, decision.features)
    return select(batch, layout, decision.keep_node, decision.keep_edge, changed)


def join(decisions: Iterable[Decision]) -> Decision:
    """Return one decision that combines single-step `decisions`, which change different graphs of one batch."""
    found: dict[str, list[Tensor]] = {}
    for decision in decisions:
        for key, value in vars(decision).items():
            if value is not None:
                found.setdefault(key, []).append(value)
    joined: dict[str, Any] = {}
    for key, values in found.items():
        mask, dim = key in ("keep_node", "keep_edge"), 1 if key == "moved_to" else 0
        joined[key] = torch.stack(values).all(dim=0) if mask else torch.cat(values, dim)
    return Decision(**joined)


def chain(decisions: Iterable[Decision]) -> Decision:
    """Return one decision that applies `decisions` in order; each one refers to the result of the previous one."""
    first, *rest = decisions
    if not rest:
        return first
    following = chain(rest)
    return replace(first, then=following if first.then is None else chain([first.then, following]))
