"""The training loop, and the embedding of a data set with what it has trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.batching import check_batch
from graphcl.checkpoint import Checkpoints, OtherTrainingError
from graphcl.diagnostics import alignment, diagnose, uniformity
from graphcl.errors import InputError
from graphcl.losses.checks import NonFiniteInputError
from graphcl.methods import KeyQueue, Method, Outcome
from graphcl.model import ContrastiveModel, with_head
from graphcl.stream import ViewStream, order_of


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
        diagnostics: whether to measure ranks, negatives and weights too, see `graphcl.diagnostics.diagnose`.
        generator: source of the views' randomness, and of what the method draws, on the model's device.
        callbacks: each is called with every finished `Epoch`.
        checkpoints: where to save the training on the way, and to go on from where that holds something.

    Returns:
        One record an epoch, those before a checkpoint too.

    Raises:
        NonFiniteLossError: the loss or the weights became NaN or infinite, or all steps of an epoch were skipped.
        InputError: the loader gave no batch, or a checkpoint does not fit.
        Stopped: a signal asked to stop, see `Checkpoints`.
    """
    settings = {"lr": lr, "weight_decay": weight_decay, "clip_norm": clip_norm, "amp": amp, "non_finite": non_finite}
    training = _Training(method, loader, first, second, generator, diagnostics, checkpoints is not None, settings)
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
    checkpoints: Checkpoints, training: _Training, epochs: int | None = None, finished: bool = False
) -> None:
    wanted = checkpoints.stop.wanted
    if wanted or finished or checkpoints.due(epochs):
        saved = checkpoints.save(training.state(), training.steps)
        if wanted and not finished:
            raise checkpoints.stopped(saved)


class _Training:
    """A training under way: what it does at each step, and all that it has come to.

    Attributes:
        epoch: finished epochs.
        steps: of the optimiser, in all.
        history: the finished epochs' records.
    """

    def __init__(
        self,
        method: Method,
        loader: Iterable[Batch],
        first: Augmentation,
        second: Augmentation,
        generator: torch.Generator | None,
        diagnostics: bool,
        resumable: bool,
        settings: dict[str, Any],
    ) -> None:
        self.method, self.loader, self.generator = method, loader, generator
        self.diagnostics, self.settings = diagnostics, settings
        self.parameters = [each for each in method.parameters() if each.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = torch.optim.Adam(
            self.parameters, lr=settings["lr"], weight_decay=settings["weight_decay"], fused=True
        )
        first, second = method.augmentations(first, second)
        self.stream = ViewStream(loader, first, second, generator, self.device, resumable)
        self.history: list[Epoch] = []
        self.epoch = self.steps = 0
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._measured: list[dict[str, Tensor]] = []
        self._skipped = 0
        self._seconds = self._data_seconds = 0.0

    @property
    def under_way(self) -> bool:
        """Whether an epoch has begun and is not over."""
        return bool(self._measured or self._skipped)

    def views(self, most: int | None) -> Iterator[tuple[Batch, Batch]]:
        """What is left of the epoch's pairs of views, at most so many; the time is taken along."""
        self.method.train()
        start = before = time.perf_counter()
        pairs = iter(self.stream)
        for views in islice(pairs, most):
            self._data_seconds += time.perf_counter() - before
            yield views
            before = time.perf_counter()
            self._seconds, start = self._seconds + before - start, before
        self._data_seconds += time.perf_counter() - before
        self._seconds += time.perf_counter() - start

    def step(self, view1: Batch, view2: Batch) -> None:
        """Of the optimiser, or a skipped one."""
        skips = self.settings["non_finite"] == "skip"
        kept = [(each, each.clone()) for each in _changed_by_forward(self.method)] if skips else []
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings["amp"]):
                outcome = self.method(view1, view2, ids=self.stream.ids(), generator=self.generator)
        except NonFiniteInputError as error:
            if skips:
                self._skip(kept)
                return
            self._refuse_non_finite([step["loss"].item() for step in self._measured])
            raise self._non_finite(f"the projections became NaN or infinite ({str(error)[:-1]})") from None
        self.optimiser.zero_grad(set_to_none=True)
        outcome.loss.backward()
        norm = None
        if (clip_norm := self.settings["clip_norm"]) is not None or skips:
            norm = nn.utils.clip_grad_norm_(self.parameters, math.inf if clip_norm is None else clip_norm)
        if skips and norm is not None and not bool(torch.isfinite(outcome.loss.detach()) & torch.isfinite(norm)):
            self._skip(kept)
            return
        self.optimiser.step()
        self.method.after_step()
        self._measured.append(measure(outcome, self.diagnostics, self.method))
        self.steps += 1

    def _skip(self, kept: list[tuple[Tensor, Tensor]]) -> None:
        """Leave the step out: all is as it was before it."""
        for each, before in kept:
            each.copy_(before)
        self._skipped += 1
        self.steps += 1

    def end_epoch(self) -> Epoch:
        """The record of the epoch, which is over."""
        start = time.perf_counter()
        if not self.under_way:
            raise InputError(
                f"`loader` gave no batch in epoch {self.epoch + 1}; it must give all batches each time it is iterated."
            )
        if not self._measured:
            raise self._non_finite(f"all {self._skipped} steps of the epoch were skipped, the loss or its gradient was")
        # Here alone an epoch waits for the device.
        table = torch.stack([torch.stack(list(step.values())) for step in self._measured]).cpu()
        self._refuse_non_finite(table[:, 0].tolist())
        self._refuse_non_finite_weights()
        means = dict(zip(self._measured[0], table.mean(dim=0).tolist(), strict=True))
        means |= self.method.after_epoch()
        if self.settings["non_finite"] == "skip":
            means["skipped"] = float(self._skipped)
        main = {name: means.pop(name) for name in ("loss", "alignment", "uniformity")}
        self.epoch += 1
        seconds = self._seconds + time.perf_counter() - start
        record = Epoch(self.epoch, **main, seconds=seconds, data_seconds=self._data_seconds, diagnostics=means)
        self.history.append(record)
        self._begin_epoch()
        self.stream.end_epoch()
        return record

    def state(self) -> dict[str, Any]:
        """All that a checkpoint holds: plain values and tensors on the CPU."""
        measured = self._measured
        names = list(measured[0]) if measured else []
        return {
            "settings": self.settings,
            "method": _on_cpu(self.method.state_dict()),
            "optimiser": _on_cpu(self.optimiser.state_dict()),
            "stream": self.stream.state(),
            "epoch": self.epoch,
            "steps": self.steps,
            "skipped": self._skipped,
            "seconds": [self._seconds, self._data_seconds],
            "measured": {name: torch.stack([step[name] for step in measured]).cpu() for name in names},
            "history": [vars(each) for each in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where a training with the same settings stood.

        Raises:
            OtherTrainingError: settings differ.
        """
        if differing := [key for key, value in self.settings.items() if state["settings"].get(key) != value]:
            found = ", ".join(f"`{key}` is {state['settings'].get(key)!r} there" for key in differing)
            raise OtherTrainingError(
                f"the checkpoint is of another training: {found}; use the same, or another folder."
            )
        self.method.load_state_dict(state["method"])
        self.optimiser.load_state_dict(state["optimiser"])
        for parameter, found in self.optimiser.state.items():
            if any(found[key].shape != parameter.shape for key in ("exp_avg", "exp_avg_sq")):
                raise InputError("the optimiser's moments do not fit the weights")
        self.history = [Epoch(**each) for each in state["history"]]
        self.epoch, self.steps, self._skipped = state["epoch"], state["steps"], state["skipped"]
        self._seconds, self._data_seconds = state["seconds"]
        columns = {name: each.to(self.device).unbind() for name, each in state["measured"].items()}
        self._measured = [dict(zip(columns, step, strict=True)) for step in zip(*columns.values(), strict=True)]
        self.stream.restore(state["stream"])

    def _refuse_non_finite(self, losses: list[float]) -> None:
        for number, value in enumerate(losses):
            if not math.isfinite(value):
                raise self._non_finite(f"the loss became {value}", number)

    def _refuse_non_finite_weights(self) -> None:
        """Adam never recovers from a gradient that is not finite, so the end of an epoch is soon enough to look."""
        weights: list[Tensor] = list(self.parameters)
        if not all(map(math.isfinite, torch.stack(torch._foreach_norm(weights)).tolist())):
            raise self._non_finite("the gradient, and with it the weights, became NaN or infinite")

    def _non_finite(self, what: str, step: int | None = None) -> NonFiniteLossError:
        step = self.stream.step - 1 if step is None else step
        order = order_of(self.loader)
        steps = f" of {len(order)}" if order else ""
        graphs = f", graphs {', '.join(map(str, torch.as_tensor(order[step][:8]).tolist()))}, ..." if order else ""
        return NonFiniteLossError(
            f"{what} at epoch {self.epoch + 1}, step {step + 1}{steps}{graphs}; "
            f"try a smaller learning rate, `clip_norm: 1.0`, a larger temperature, or `amp: false`, "
            f"and look for extreme values in the node features."
        )


def _changed_by_forward(method: Method) -> list[Tensor]:
    """What a step changes before the optimiser does: statistics, and slow copies. Queues and banks come after it."""
    found: list[Tensor] = [each for each in method.parameters() if not each.requires_grad]
    for part in method.children():
        found += [] if isinstance(part, KeyQueue) else part.buffers()
    return found


def _on_cpu(values: Any) -> Any:
    """The same mapping, its tensors on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if isinstance(values, Mapping):
        return {key: _on_cpu(each) for key, each in values.items()}
    return type(values)(map(_on_cpu, values)) if isinstance(values, list | tuple) else values


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


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """What is logged of a step: loss, alignment and uniformity, and more where diagnostics are wanted."""
    # Uniformity compares all pairs; a thousand rows estimate it well enough.
    h, a, b = outcome.h[:1024], outcome.z1[:1024], outcome.z2[:1024]
    found = {"loss": outcome.loss.detach(), "alignment": alignment(a, b), "uniformity": uniformity(a)}
    if diagnostics:
        found |= diagnose(h, a, b, method.setting("temperature", 0.2))
    return found
