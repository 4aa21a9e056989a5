"""The training loop, and the embedding of a data set with what it has trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.augment.views import two_views
from graphcl.batching import check_batch, split
from graphcl.diagnostics import alignment, diagnose, uniformity
from graphcl.errors import InputError
from graphcl.losses.checks import NonFiniteInputError
from graphcl.methods import Method, Outcome
from graphcl.model import ContrastiveModel, with_head


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
        diagnostics: where they were asked for, see `graphcl.diagnostics.diagnose`; and what the method logs.
    """

    epoch: int
    loss: float
    alignment: float
    uniformity: float
    seconds: float
    data_seconds: float
    diagnostics: dict[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """All that was measured, by name, diagnostics too; without the epoch's number."""
        return {
            "loss": self.loss,
            "alignment": self.alignment,
            "uniformity": self.uniformity,
            "seconds": self.seconds,
            "data_seconds": self.data_seconds,
            **self.diagnostics,
        }


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
    diagnostics: bool = False,
    generator: torch.Generator | None = None,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
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
        diagnostics: whether to measure ranks, negatives and weights too, see `graphcl.diagnostics.diagnose`.
        generator: source of the views' randomness, and of what the method draws, on the model's device.
        callbacks: each is called with every finished `Epoch`.

    Returns:
        One record an epoch.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
        InputError: the loader gave no batch.
    """
    first, second = method.augmentations(first, second)
    parameters = [each for each in method.parameters() if each.requires_grad]
    device = parameters[0].device
    optimiser = torch.optim.Adam(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    history: list[Epoch] = []
    epoch = done = 0
    while epoch < epochs if steps is None else done < steps:
        epoch += 1
        method.train()
        start, data_seconds = time.perf_counter(), 0.0
        measured: list[dict[str, Tensor]] = []
        pairs = _view_pairs(loader, first, second, generator, device)
        while steps is None or done < steps:
            before = time.perf_counter()
            views = next(pairs, None)
            data_seconds += time.perf_counter() - before
            if views is None:
                break

            ids = graph_ids(loader, len(measured), device)
            try:
                with torch.autocast(device.type, torch.bfloat16, enabled=amp):
                    outcome = method(*views, ids=ids, generator=generator)
            except NonFiniteInputError as error:
                _refuse_non_finite([step["loss"].item() for step in measured], epoch, loader)
                what = f"the projections became NaN or infinite ({str(error)[:-1]})"
                raise _non_finite(what, epoch, len(measured), loader) from None
            optimiser.zero_grad(set_to_none=True)
            outcome.loss.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimiser.step()
            method.after_step()
            measured.append(measure(outcome, diagnostics, method))
            done += 1

        if not measured:
            raise InputError(
                f"`loader` gave no batch in epoch {epoch}; it must give all batches each time it is iterated."
            )
        # Here alone an epoch waits for the device.
        table = torch.stack([torch.stack(list(step.values())) for step in measured]).cpu()
        _refuse_non_finite(table[:, 0].tolist(), epoch, loader)
        means = dict(zip(measured[0], table.mean(dim=0).tolist(), strict=True))
        means |= method.after_epoch()
        main = {name: means.pop(name) for name in ("loss", "alignment", "uniformity")}
        record = Epoch(epoch, **main, seconds=time.perf_counter() - start, data_seconds=data_seconds, diagnostics=means)
        history.append(record)
        for callback in callbacks:
            callback(record)
    return history


def embed(model: nn.Module, loader: Iterable[Batch]) -> tuple[Tensor, Tensor | None]:
    """Embeddings of all graphs: evaluation mode, no gradient, no projector.

    Args:
        model: an encoder, or a `ContrastiveModel` with one; in evaluation mode, and in its own mode afterwards.
        loader: batches of graphs, in the order wanted (not shuffled).

    Returns:
        h `[n, H]` in float32 and labels y `[n]` (None if the graphs have none), both on the CPU.
    """
    h, y = [], []
    for rows, batch in embed_batches(model, loader):
        h.append(rows)
        if batch.get("y") is not None:
            y.append(batch.y)
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


def _view_pairs(
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
) -> Iterator[tuple[Batch, Batch]]:
    """Two views of each batch; where the loader gives several batches at a time, those are augmented at once."""
    chunks = getattr(loader, "chunks", None)
    for batch, sizes in chunks() if chunks else ((batch, None) for batch in loader):
        check_batch(batch)
        view1, view2 = two_views(batch.to(device), first, second, generator)
        yield from zip(split(view1, sizes), split(view2, sizes), strict=True) if sizes else [(view1, view2)]


def _order(loader: Iterable[Batch]) -> Sequence[Tensor] | None:
    """The batches of the epoch under way, where the loader tells."""
    return getattr(getattr(loader, "batch_sampler", None), "current", None)


def graph_ids(loader: Iterable[Batch], step: int, device: torch.device) -> Tensor | None:
    """Which graphs the batch of a step holds, where the loader tells."""
    order = _order(loader)
    return torch.as_tensor(order[step]).to(device, non_blocking=True) if order else None


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """What is logged of a step: loss, alignment and uniformity, and more where diagnostics are wanted."""
    # Uniformity compares all pairs; a thousand rows estimate it well enough.
    h, a, b = outcome.h[:1024], outcome.z1[:1024], outcome.z2[:1024]
    found = {"loss": outcome.loss.detach(), "alignment": alignment(a, b), "uniformity": uniformity(a)}
    if diagnostics:
        found |= diagnose(h, a, b, method.setting("temperature", 0.2))
    return found


def _refuse_non_finite(losses: list[float], epoch: int, loader: Iterable[Batch]) -> None:
    for number, value in enumerate(losses):
        if not math.isfinite(value):
            raise _non_finite(f"the loss became {value}", epoch, number, loader)


def _non_finite(what: str, epoch: int, step: int, loader: Iterable[Batch]) -> NonFiniteLossError:
    order = _order(loader)
    steps = f" of {len(order)}" if order else ""
    graphs = f", graphs {', '.join(map(str, torch.as_tensor(order[step][:8]).tolist()))}, ..." if order else ""
    return NonFiniteLossError(
        f"{what} at epoch {epoch}, step {step + 1}{steps}{graphs}; "
        f"try a smaller learning rate, `clip_norm: 1.0`, a larger temperature, or `amp: false`, "
        f"and look for extreme values in the node features."
    )
