"""The training loop, and the embedding of a data set with what it has trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.graphs.batching import check_batch
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel, with_head
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.state import Epoch, NonFiniteLossError, Training

__all__ = ["Epoch", "NonFiniteLossError", "embed", "embed_batches", "train"]

AGREE = 8
"""Steps after which several ranks agree whether to save or to stop."""


def train(
    method: Method,
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    *,
    epochs: int = 20,
    steps: int | None = None,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    amp: bool = False,
    non_finite: Literal["stop", "skip"] = "stop",
    diagnostics: bool = False,
    generator: torch.Generator | None = None,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
    checkpoints: Checkpoints | None = None,
) -> list[Epoch]:
    """Train a method's model so that two views of a graph agree and those of different graphs do not.

    Labels are looked at only by a method that was told to.

    Args:
        method: model and loss (`TwoViews(model, Loss("adnce"))`), trained in place, on the device where it is.
        loader: batches of graphs, all of them once an epoch.
        first: augmentation that makes the first view; a method may put its own in its place.
        second: augmentation that makes the second view.
        epochs: passes over the data.
        steps: optimiser steps in all, instead of the epochs; the last epoch ends with the last of them.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        clip_norm: largest Euclidean norm of the gradient, or None for no clipping.
        amp: whether the model computes in bfloat16 (the loss stays in float32).
        non_finite: what to do about a loss or a gradient that is NaN or infinite. `stop` raises at the end of the
            epoch at the latest. `skip` leaves the step out, as if its batch had not been there, and counts it as
            `skipped` in `Epoch.diagnostics`; it asks the device after each step, which on CUDA costs time.
        diagnostics: whether to measure ranks, negatives and weights too, see `graphcl.training.diagnostics.diagnose`.
        generator: source of the views' randomness, and of what the method draws, on the model's device.
        callbacks: each is called with every finished `Epoch`.
        checkpoints: where to save the training on the way, and to go on from where that holds something.

    Returns:
        One record an epoch, those before a checkpoint too.

    Raises:
        NonFiniteLossError: the loss or the weights became NaN or infinite, or all steps of an epoch were skipped.
        InputError: the loader gave no batch, a checkpoint does not fit, or `non_finite` or `clip_norm` are none.
        Stopped: a signal asked to stop, see `Checkpoints`.
    """
    settings = {"lr": lr, "weight_decay": weight_decay, "clip_norm": clip_norm, "amp": amp, "non_finite": non_finite}
    training = Training(method, loader, first, second, generator, diagnostics, checkpoints is not None, settings)
    if checkpoints is not None:
        checkpoints.resume(training.restore)
    while training.under_way or (training.epoch < epochs if steps is None else training.steps < steps):
        for views in training.views(None if steps is None else steps - training.steps):
            training.step(*views)
            if checkpoints is not None:
                _save_if_due(checkpoints, training)
        record = training.end_epoch()
        for callback in callbacks:
            callback(record)
        if checkpoints is not None:
            finished = training.steps >= steps if steps is not None else training.epoch >= epochs
            _save_if_due(checkpoints, training, training.epoch, finished)
    return training.history


def _save_if_due(
    checkpoints: Checkpoints, training: Training, epochs: int | None = None, finished: bool = False
) -> None:
    if ranks.size() > 1 and epochs is None and training.steps % AGREE:
        return
    wanted, due = ranks.on_any(checkpoints.stop.wanted, checkpoints.due(epochs))
    if wanted or finished or due:
        saved = checkpoints.save(training.state(), training.steps)
        if wanted:
            raise checkpoints.stopped(saved)


def embed(model: nn.Module, loader: Iterable[Batch]) -> tuple[Tensor, Tensor | None]:
    """Embeddings of all graphs: evaluation mode, no gradient, no projector.

    Args:
        model: an encoder, or a `ContrastiveModel` with one; in evaluation mode, and in its own mode afterwards.
        loader: batches of graphs, in the order wanted (not shuffled).

    Returns:
        h `[n, H]` in float32 and labels y `[n]` (None if the graphs have none), both on the CPU.

    Raises:
        InputError: the loader gave no batch, or batches without features.
    """
    h, y = [], []
    for rows, batch in embed_batches(model, loader):
        h.append(rows)
        if batch.get("y") is not None:
            y.append(batch.y)
    if not h:
        raise InputError("`loader` gave no batch; it must give all batches each time it is iterated.")
    return torch.cat(h).cpu(), torch.cat(y).cpu() if y else None


@torch.no_grad()
def embed_batches(model: nn.Module, loader: Iterable[Batch]) -> Iterator[tuple[Tensor, Batch]]:
    """`embed` batch by batch: h `[B, H]` in float32 and the batch, both on the model's device."""
    model = model if isinstance(model, ContrastiveModel) else with_head(model)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        for batch in loader:
            check_batch(batch)
            batch = batch.to(device)
            yield model.encode(batch).float(), batch
    finally:
        model.train(was_training)
