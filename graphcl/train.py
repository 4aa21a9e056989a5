"""The training loop, and the embedding of a data set with what it has trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.augment.views import two_views
from graphcl.batching import split
from graphcl.diagnostics import alignment, uniformity
from graphcl.errors import InputError
from graphcl.model import ContrastiveModel


class NonFiniteLossError(InputError):
    """The loss became NaN or infinite; the message says where and what to try."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch did: means over its steps.

    Args:
        epoch: counted from 1.
        loss: the training loss.
        alignment: of the two views' projections, see `graphcl.diagnostics`.
        uniformity: of the first view's projections.
        seconds: wall time of the epoch.
        data_seconds: the part of it spent on cutting out batches and augmenting them (on CUDA: on launching that).
    """

    epoch: int
    loss: float
    alignment: float
    uniformity: float
    seconds: float
    data_seconds: float


def train(
    model: ContrastiveModel,
    loader: Iterable[Batch],
    loss: Callable[[Tensor, Tensor], Tensor],
    first: Augmentation,
    second: Augmentation,
    *,
    epochs: int = 20,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    amp: bool = False,
    generator: torch.Generator | None = None,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
) -> list[Epoch]:
    """Train a model so that two views of a graph agree and those of different graphs do not.

    Labels are never looked at.

    Args:
        model: encoder and projector, trained in place, on the device where it is.
        loader: batches of graphs, all of them once an epoch.
        loss: of the two views' projections, each `[N, D]`.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view.
        epochs: passes over the data.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        clip_norm: largest Euclidean norm of the gradient, or None for no clipping.
        amp: whether the model computes in bfloat16 (the loss stays in float32).
        generator: source of the views' randomness, on the model's device.
        callbacks: each is called with every finished `Epoch`.

    Returns:
        One record an epoch.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
        InputError: the loader gave no batch.
    """
    device = next(model.parameters()).device
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
    history = []
    for epoch in range(1, epochs + 1):
        model.train()
        start, data_seconds, steps = time.perf_counter(), 0.0, []
        pairs = _view_pairs(loader, first, second, generator, device)
        while True:
            before = time.perf_counter()
            views = next(pairs, None)
            data_seconds += time.perf_counter() - before
            if views is None:
                break

            with torch.autocast(device.type, torch.bfloat16, enabled=amp):
                z1, z2 = model(views[0]), model(views[1])
            value = loss(z1, z2)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimiser.step()
            steps.append(_measure(value, z1, z2))

        if not steps:
            raise InputError(
                f"`loader` gave no batch in epoch {epoch}; it must give all batches each time it is iterated."
            )
        # The only place where an epoch waits for the device.
        means = torch.stack(steps).cpu()
        _refuse_non_finite(means[:, 0], epoch, loader)
        mean_loss, aligned, uniform = means.mean(dim=0).tolist()
        record = Epoch(epoch, mean_loss, aligned, uniform, time.perf_counter() - start, data_seconds)
        history.append(record)
        for callback in callbacks:
            callback(record)
    return history


@torch.no_grad()
def embed(model: ContrastiveModel, loader: Iterable[Batch]) -> tuple[Tensor, Tensor | None]:
    """Embeddings of all graphs: evaluation mode, no gradient, no projector.

    Args:
        model: its encoder is used, in evaluation mode; its mode is restored afterwards.
        loader: batches of graphs, in the order wanted (not shuffled).

    Returns:
        h `[n, H]` in float32 and labels y `[n]` (None if the graphs have none), both on the CPU.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    h, y = [], []
    for batch in loader:
        batch = batch.to(device)
        h.append(model.encode(batch).float())
        if batch.get("y") is not None:
            y.append(batch.y)
    model.train(was_training)
    return torch.cat(h).cpu(), torch.cat(y).cpu() if y else None


def _view_pairs(
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
) -> Iterator[tuple[Batch, Batch]]:
    """Two views of each batch; where the loader gives several batches at a time, those are augmented at once."""
    chunks = getattr(loader, "chunks", None)
    for batch, sizes in chunks() if chunks else ((batch, [batch.num_graphs]) for batch in loader):
        view1, view2 = two_views(batch.to(device), first, second, generator)
        yield from zip(split(view1, sizes), split(view2, sizes), strict=True)


@torch.no_grad()
def _measure(value: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    a, b = z1[:1024], z2[:1024]  # uniformity compares all pairs; a thousand rows estimate it well enough
    return torch.stack([value, alignment(a, b), uniformity(a)]).detach()


def _refuse_non_finite(losses: Tensor, epoch: int, loader: Iterable[Batch]) -> None:
    bad = (~losses.isfinite()).nonzero().flatten().tolist()
    if not bad:
        return
    order = getattr(getattr(loader, "batch_sampler", None), "current", None)
    graphs = f", graphs {', '.join(map(str, order[bad[0]][:8]))}, ..." if order else ""
    raise NonFiniteLossError(
        f"the loss became {losses[bad[0]].item()} at epoch {epoch}, step {bad[0] + 1} of {losses.numel()}{graphs}; "
        f"try a smaller learning rate, `clip_norm: 1.0`, a larger temperature, or `amp: false`, "
        f"and look for extreme values in the node features."
    )
