"""Train a method on a data set, and embed a data set with a trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_geometric.data import Batch

from graphcl.arguments import Arguments, Count, NonNegative, Positive, Ratio, named_arguments
from graphcl.augment.transform import Augmentation
from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError, Stopped
from graphcl.graphs.batching import check_batch
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel, with_projector
from graphcl.training.checkpoint import Checkpoints
from graphcl.training.epoch import Epoch
from graphcl.training.non_finite import NonFiniteLossError
from graphcl.training.optimiser import OptimizerName, Schedule
from graphcl.training.state import Training

__all__ = ["Epoch", "NonFiniteLossError", "embed", "embed_batches", "train"]

F = TypeVar("F", bound=Callable[..., Any])
_AGREE = 8
"""Number of steps between two collective decisions of the ranks on saving and stopping."""


def _validated(function: F) -> F:
    return Arguments(function).guard(function)


@_validated
def train(
    method: Method,
    loader: Iterable[Batch],
    first: Augmentation | str,
    second: Augmentation | str,
    *,
    epochs: int = 20,
    steps: Count | None = None,
    optimizer: OptimizerName = "adam",
    lr: Positive = 0.01,
    schedule: Schedule = "constant",
    warmup: Ratio = 0.0,
    patience: Count | None = None,
    weight_decay: NonNegative = 0.0,
    clip_norm: Positive | None = None,
    amp: bool = False,
    non_finite: Literal["stop", "skip"] = "stop",
    diagnostics: bool = False,
    deterministic: bool = False,
    generator: torch.Generator | None = None,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
    checkpoints: Checkpoints | None = None,
) -> list[Epoch]:
    """Train the model of `method` and return one record per epoch.

    Labels are used only if `method` was created with `labels=True`.

    Args:
        method: method to train in place, such as `TwoViews(model, Loss("adnce"))`; moved to the model's device.
        loader: batches of graphs; one iteration is one epoch.
        first: augmentation of the first view, or its name; a method may replace it.
        second: augmentation of the second view, or its name.
        epochs: number of passes over the data.
        steps: number of optimiser steps, which replaces `epochs`; the last epoch may then be shorter.
        optimizer: `adam`, `adamw`, or `sgd` with a momentum of 0.9.
        lr: learning rate; its maximum if `schedule` or `warmup` changes it.
        schedule: `constant`, or `cosine` for a cosine decay of the learning rate to 0.
        warmup: fraction of the steps in which the learning rate rises linearly from 0, in [0, 1).
        patience: training stops after this many epochs without a new lowest loss; None disables early stopping.
        weight_decay: L2 penalty of `adam` and `sgd`; decoupled weight decay of `adamw`.
        clip_norm: largest Euclidean norm of the gradient, or None for no clipping.
        amp: whether the model computes in bfloat16; the loss stays in float32.
        non_finite: reaction to a NaN or infinite loss or gradient. `stop` raises an error, at the end of the epoch at
            the latest. `skip` skips the step, leaves all state unchanged, and counts the step as `skipped` in
            `Epoch.diagnostics`; it synchronises with the device after each step, which is slow on CUDA.
        diagnostics: whether to record also the metrics of `graphcl.training.diagnostics.diagnose`.
        deterministic: whether ranks sum gradients in a fixed order, so that training on more than two ranks resumes
            bit-identically. CUDA kernels also need `torch.use_deterministic_algorithms(True)`.
        generator: random generator for the augmentations and the method, on the model's device.
        callbacks: functions that are called with each finished `Epoch`.
        checkpoints: where to save checkpoints; training resumes from an existing checkpoint.

    Returns:
        The records of all epochs, including the epochs before training resumed.

    Raises:
        NonFiniteLossError: the loss or the weights became NaN or infinite, or all steps of an epoch were skipped.
        InputError: the loader gave no batch, a checkpoint does not fit, an argument is invalid, or `schedule` or
            `warmup` needs the number of steps but the loader has no length.
        Stopped: a stop signal was received, see `Checkpoints`.
    """
    if not isinstance(method, Method):
        hint = 'pass a method, such as TwoViews(model, "infonce")'
        raise InputTypeError(f"`method` must be a Method, got {type(method).__name__}; {hint}.")
    settings: dict[str, Any] = {
        "optimizer": optimizer, "lr": lr, "schedule": schedule, "warmup": warmup, "weight_decay": weight_decay,
        "clip_norm": clip_norm, "amp": amp, "non_finite": non_finite,
    }  # fmt: skip
    if schedule != "constant" or warmup:
        settings["total_steps"] = _total_steps(loader, epochs) if steps is None else steps
    training = Training(method, loader, first, second, generator, diagnostics, deterministic, settings)
    if checkpoints is not None:
        checkpoints.resume(training.load_state_dict)

    def finished() -> bool:
        spent = training.epoch >= epochs if steps is None else training.steps >= steps
        return spent or (patience is not None and training.stale >= patience)

    while training.in_epoch or not finished():
        left = None if steps is None else steps - training.steps
        for view1, view2, ids in training.views(left):  # the next batch, augmented twice
            training.step(view1, view2, ids)  # encode, project, loss (method); optimiser (step.py)
            if checkpoints is not None and (ranks.size() == 1 or training.steps % _AGREE == 0):
                _save(training, checkpoints, checkpoints.stops_within_epoch(), checkpoints.due_within_epoch())
        record = training.end_epoch()
        for callback in callbacks:
            callback(record)
        if checkpoints is not None:
            due = checkpoints.due_after_epoch(training.epoch) or finished()
            _save(training, checkpoints, checkpoints.stop.requested, due)
    return training.history


def _total_steps(loader: Iterable[Batch], epochs: int) -> int:
    if not isinstance(loader, Sized):
        raise InputError("`schedule` and `warmup` need a loader with a length; pass `steps` instead of `epochs`.")
    return epochs * len(loader)


def _save(training: Training, checkpoints: Checkpoints, stop: bool, due: bool) -> None:
    """Save a checkpoint if `due` or `stop` is true on any rank; raise `Stopped` if `stop` is true on any rank."""
    stop, due = ranks.any_rank(stop, due)
    if stop or due:
        saved = checkpoints.save(training.state_dict(), training.steps)
        if stop:
            raise Stopped("everything is saved" if saved else f"the last checkpoint in {checkpoints.folder} is kept")


@named_arguments
def embed(model: nn.Module, loader: Iterable[Batch]) -> tuple[Tensor, Tensor | None]:
    """Return the embeddings and labels of all graphs. The encoder runs in evaluation mode without gradients.

    Args:
        model: an encoder or a `ContrastiveModel`; its training mode is restored afterwards.
        loader: batches of graphs, not shuffled; rows are returned in the same order.

    Returns:
        h `[n, H]` in float32 and labels y `[n]` (None if the graphs have none), both on the CPU.

    Raises:
        InputError: `loader` gave no batch, a batch has no node features, or an embedding is NaN or infinite.
    """
    h, y = [], []
    for part, batch in embed_batches(model, loader):
        h.append(part.cpu())
        if batch.get("y") is not None:
            y.append(batch.y.cpu())
    if not h:
        raise InputError("`loader` gave no batch; it must give all batches each time it is iterated.")
    rows = torch.cat(h)
    if not rows.isfinite().all():
        first = int((~rows.isfinite().all(dim=1)).nonzero()[0])
        raise InputError(
            f"the embedding of graph {first} is NaN or infinite; look for NaN or very large values in its features."
        )
    return rows, torch.cat(y) if y else None


@torch.no_grad()
def embed_batches(model: nn.Module, loader: Iterable[Batch]) -> Iterator[tuple[Tensor, Batch]]:
    """Yield each batch's embeddings `[B, H]` in float32 and the batch, both on the model's device; see `embed`."""
    if isinstance(loader, Dataset):
        hint = "use ResidentLoader(dataset, 1024)"
        raise InputTypeError(f"`loader` must give batches, got {type(loader).__name__}; {hint}.")
    model = model if isinstance(model, ContrastiveModel) else with_projector(model)
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
