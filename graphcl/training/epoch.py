"""Turn the batches of an epoch into pairs of augmented views, and compute the metrics of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation, two_views
from graphcl.graphs.batching import check_batch, split
from graphcl.methods import Method, Outcome
from graphcl.training.diagnostics import alignment, diagnose, uniformity

_ROWS = 1024
"""Rows of a batch used for metrics: uniformity costs O(rows^2), and about a thousand rows estimate it well enough."""


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch: means over the epoch's steps, and times.

    Args:
        epoch: number of the epoch, from 1.
        loss: training loss.
        alignment: alignment of the two views' projections, see `graphcl.training.diagnostics.alignment`.
        uniformity: uniformity of the first views' projections, see `graphcl.training.diagnostics.uniformity`.
        seconds: wall time of the epoch.
        data_seconds: part of `seconds` spent on loading and augmenting batches (on CUDA, this contains waiting for
            earlier steps).
        diagnostics: the method's own metrics, the number of `skipped` steps and, with `diagnostics=True`, the metrics
            of `graphcl.training.diagnostics.diagnose`.
    """

    epoch: int
    loss: float
    alignment: float
    uniformity: float
    seconds: float
    data_seconds: float
    diagnostics: dict[str, float] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Return all metrics by name, including the diagnostics, without the epoch's number."""
        main = {name: value for name, value in vars(self).items() if name not in ("epoch", "diagnostics")}
        return main | self.diagnostics


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """Return the metrics of one step: loss, alignment, uniformity and, with `diagnostics`, the result of `diagnose`."""
    h, z1, z2 = outcome.h[:_ROWS], outcome.z1[:_ROWS], outcome.z2[:_ROWS]
    found = {"loss": outcome.loss.detach(), "alignment": alignment(z1, z2), "uniformity": uniformity(z1)}
    if diagnostics:
        found |= diagnose(h, z1, z2, method.setting("temperature", 0.2))
    return found


def augmented(
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
) -> Iterator[tuple[Batch, Batch, Tensor | None]]:
    """Yield both views and the graph indices `[B]` of each batch; the indices are None if unknown.

    If the loader has `chunks()`, several batches are augmented at once, which launches fewer operations.
    """
    chunks = getattr(loader, "chunks", None)
    number = 0
    for batch, sizes in chunks() if chunks else ((batch, None) for batch in loader):
        check_batch(batch)
        view1, view2 = two_views(batch.to(device), first, second, generator)
        pairs = zip(split(view1, sizes), split(view2, sizes), strict=True) if sizes else [(view1, view2)]
        for pair in pairs:
            yield *pair, graph_ids(loader, number, device)
            number += 1


def graph_ids(loader: Iterable[Batch], number: int, device: torch.device) -> Tensor | None:
    """Return the indices `[B]` of the graphs in batch `number` of the current epoch; None if they are unknown."""
    order = batches_of_epoch(loader)
    return torch.as_tensor(order[number]).to(device, non_blocking=True) if order else None


def batches_of_epoch(loader: Iterable[Batch]) -> Sequence[Tensor] | None:
    """Return the graph indices of each batch of the current epoch; None if `loader` does not expose them."""
    return getattr(getattr(loader, "batch_sampler", None), "current", None)
