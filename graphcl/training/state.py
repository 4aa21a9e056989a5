"""Run training steps, and hold the state of a training run: counters, epoch records, the state dict of checkpoints."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation, as_augmentation
from graphcl.distributed import ranks
from graphcl.distributed.modules import GlobalBatchNorm, average_statistics, data_parallel, explain_unused_parameters
from graphcl.errors import InputError, warn
from graphcl.losses.rows import NonFiniteInputError
from graphcl.methods import KeyQueue, Method, Outcome
from graphcl.methods.method import explain_single_row
from graphcl.models.contrastive import ContrastiveModel
from graphcl.training.captured import Captured, check_capture
from graphcl.training.epoch import Epoch, augmented, batches_of_epoch, larger, measure
from graphcl.training.optimiser import Optimiser
from graphcl.training.randomness import Generators, warn_of_new_draws
from graphcl.training.settings import LENGTH, TrainingSettings

SCORE = "valid"
"""Name of the score in an epoch's diagnostics by which the best epoch is kept."""


class NonFiniteLossError(InputError):
    """The loss or the weights became NaN or infinite."""


class OtherTrainingError(InputError):
    """The checkpoint belongs to a training run with other settings; the message names the settings that differ."""


class Training:
    """A training run, with the arguments of `train`. A checkpoint holds its `state_dict()`."""

    def __init__(
        self,
        method: Method,
        loader: Iterable[Batch],
        first: Augmentation | str,
        second: Augmentation | str,
        generator: torch.Generator | None,
        settings: TrainingSettings,
    ) -> None:
        method.to(device := next(method.model.parameters()).device)  # the modules that the method added to the model
        if settings.micro_batch and generator is None:  # the pieces of views are drawn again from saved states
            generator = torch.Generator(device).manual_seed(int(torch.randint(2**62, ())))
        self.method, self.loader, self.settings, self._generator = method, loader, settings, generator
        _set_micro_batch(method, settings.micro_batch)
        self._parameters = [parameter for parameter in method.parameters() if parameter.requires_grad]
        if not self._parameters:
            raise InputError("all parameters of the method are frozen; let some of them require gradients.")
        self._device = self._parameters[0].device
        self._optimiser = Optimiser(settings, self._parameters)
        self._total_steps = _total_steps(settings, loader)
        self._parallel = data_parallel(method, self._device)
        self._skips = settings.non_finite == "skip"
        self._captured: Captured | None = None
        if settings.capture:
            check_capture(method, settings, self._device)
            self._captured = Captured(self._captured_step)
        views = as_augmentation(first, "first"), as_augmentation(second, "second")
        self._augmentations = method.augmentations(*views)
        order = getattr(getattr(loader, "batch_sampler", None), "generator", None) or getattr(loader, "generator", None)
        self._generators = Generators(self._device, order=order, views=generator)
        self.history: list[Epoch] = []
        self.epoch = self.steps = 0  # finished epochs, and steps in all epochs
        self._best: dict[str, Any] | None = None  # state of the method after the epoch of the highest score
        self._largest, self._has_warned = 0, False  # number of graphs in the largest batch, see `_is_single`
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._done = self._done_before = 0  # batches of this epoch so far, and before the last restart
        self._losses: list[Tensor] = []  # of the steps since the last restart, without skipped ones
        self._outcome: Outcome | None = None  # of the last of the largest batches among them
        self._earlier: tuple[list[float], dict[str, float]] = [], {}  # losses and metrics before the last restart
        self._seconds = self._data_seconds = 0.0

    @property
    def finished(self) -> bool:
        """Whether all is done, or the loss, or `SCORE` if there is one, has not improved for `patience` epochs."""
        if self._done:  # within an epoch
            return False
        epochs, steps, patience = self.settings.epochs, self.settings.steps, self.settings.patience
        spent = self.epoch >= epochs if steps is None else self.steps >= steps
        losses = [-epoch.diagnostics.get(SCORE, -epoch.loss) for epoch in self.history]
        since_lowest = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return spent or (patience is not None and since_lowest >= patience)

    def views(self) -> Iterator[tuple[Batch, Batch, Tensor | None]]:
        """Yield both views and the ids of the epoch's next batches, see `augmented`, and record the time.

        After a restart within an epoch, the loader draws a new order. The number of batches in the epoch is unchanged.
        """
        self._check_pairs()
        limits = [] if self.settings.steps is None else [self.settings.steps - self.steps]
        length = _length(self.loader)
        if self._done and length is not None:
            limits.append(length - self._done)
        self._done_before = self._done
        self.method.train()
        if self.settings.frozen_bn:
            for norm in (module for module in self.method.modules() if isinstance(module, _BatchNorm)):
                norm.eval()
        start = before = time.perf_counter()
        size = self.settings.micro_batch
        batches = augmented(self.loader, *self._augmentations, self._generator, self._device, size)
        for views in islice(batches, min(limits, default=None)):
            if self._is_single(views[0]):
                continue
            self._data_seconds += time.perf_counter() - before
            yield views
            before = time.perf_counter()
            self._seconds, start = self._seconds + before - start, before
        self._data_seconds += time.perf_counter() - before
        self._seconds += time.perf_counter() - start

    def _is_single(self, view: Batch) -> bool:
        """Return whether to skip a batch of one graph that follows larger ones, such as a DataLoader's last; warn once.

        On several ranks no batch is skipped, as the others would wait.
        """
        largest, self._largest = self._largest, max(self._largest, view.num_graphs)
        single = view.num_graphs == 1 < largest and ranks.size() == 1 and self.method.rows == "graphs"
        if single and not self._has_warned:
            self._has_warned = True
            warn(
                "batches of one graph are skipped, as it has no negatives; `drop_last=True` of DataLoader avoids them."
            )
        return single

    def step(self, view1: Batch, view2: Batch, ids: Tensor | None) -> None:
        """Encode and project both views, compute the loss and its gradient, update the weights; record the loss.

        A skipped step leaves all state unchanged.
        """
        self._set_rate()
        self._done, self.steps = self._done + 1, self.steps + 1
        before = _copies_before_forward(self.method) if self._skips else []
        if self._captured is not None:
            outcome = self._captured(view1, view2, ids)
        else:
            outcome = None
            try:
                with explain_unused_parameters(), explain_single_row(), self._amp():
                    outcome = self._parallel(view1, view2, ids=ids, generator=self._generator)  # encode, project, loss
            except NonFiniteInputError as error:
                self._explain_projections(error)
            outcome = self._update_weights(outcome)
        if outcome is None:
            for tensor, copy in before:
                tensor.copy_(copy)
            return
        self.method.after_step()  # momentum encoder, queue or memory bank
        self._losses.append(outcome.loss.detach())
        self._outcome = larger(self._outcome, outcome)

    def _captured_step(self, view1: Batch, view2: Batch, ids: Tensor | None) -> Outcome | None:
        """Take the part of a step that is captured: the same on views that are padded."""
        outcome = None
        try:
            with explain_single_row(), self._amp():
                outcome = self._parallel(view1, view2, ids=ids, generator=self._generator)
        except NonFiniteInputError as error:
            self._explain_projections(error)
        return self._update_weights(outcome)

    def _update_weights(self, outcome: Outcome | None) -> Outcome | None:
        """Compute the gradient of the loss, clip it and update the weights; return None if the step is skipped."""
        if not self._goes_on(None if outcome is None else outcome.loss) or outcome is None:
            return None
        self._optimiser.zero_grad()
        if not outcome.loss.requires_grad:
            raise InputError("the loss has no gradient; compute it from the projections, without .detach().")
        outcome.loss.backward()
        if self.settings.clip_norm is not None or self._skips:
            norm = nn.utils.clip_grad_norm_(self._parameters, self.settings.clip_norm or math.inf)
            if not self._goes_on(norm):
                return None
        self._optimiser.step()
        return outcome

    def _goes_on(self, value: Tensor | None) -> bool:
        """Return False to skip the step, as `value` is None or not finite on any rank; always True with "stop".

        All ranks must agree before a backward pass: if only some skipped it, the others would wait for them forever.
        """
        return not self._skips or ranks.any_rank(value is None or not bool(value.isfinite())) == [False]

    def _explain_projections(self, error: NonFiniteInputError) -> None:
        """Raise the error of projections that are not finite, unless the step is skipped."""
        if not self._skips:
            self._check_losses([*self._earlier[0], *map(float, self._losses)])
            raise self._error(f"the projections became NaN or infinite ({str(error)[:-1]})") from None

    def _amp(self) -> Any:
        if not self.settings.amp and not torch.is_autocast_enabled(self._device.type):
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16, self.settings.amp)

    def _set_rate(self) -> None:
        if self._total_steps:
            settings = self.settings
            factor = rate_factor(self.steps, self._total_steps, settings.schedule, settings.warmup)
            for group in self._optimiser.torch.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(factor * settings.lr)
                else:
                    group["lr"] = factor * settings.lr

    def end_epoch(self) -> Epoch:
        """End the epoch and return its record."""
        start = time.perf_counter()
        if not self._done:
            raise InputError(
                f"`loader` gave no batch in epoch {self.epoch + 1}; it must give all batches each time it is iterated."
            )
        losses, metrics = self._figures()  # the only wait for the device in an epoch
        if not losses:
            raise self._error(f"all {self._done} steps of the epoch were skipped, the loss or its gradient was")
        self._check_losses(losses)
        self._check_weights()
        metrics |= self.method.after_epoch()
        average_statistics(self.method)
        if self._skips:
            metrics["skipped"] = float(self._done - len(losses))
        main = {name: metrics.pop(name) for name in ("alignment", "uniformity")}
        main["loss"] = sum(losses) / len(losses)
        self.epoch += 1
        seconds = self._seconds + time.perf_counter() - start
        record = Epoch(self.epoch, **main, seconds=seconds, data_seconds=self._data_seconds, diagnostics=metrics)
        self.history.append(record)
        self._begin_epoch()
        return record

    def add_score(self, score: float) -> None:
        """Record a score of the last epoch, and keep the state of the method if no epoch has a higher one."""
        self.history[-1].diagnostics[SCORE] = score
        if self._best is None or score > self._best["score"]:
            self._best = {"score": score, "method": copy.deepcopy(self.method.state_dict())}

    def restore_best(self) -> None:
        """Restore the state of the method after the epoch of the highest score, if there are scores."""
        if self._best is not None:
            self.method.load_state_dict(self._best["method"])

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and tensors, not copied. All ranks must call this method together."""
        self._check_weights()
        losses, metrics = self._figures()
        return {
            "settings": self._fixed_settings(),
            "method": self.method.state_dict(),
            "optimiser": self._optimiser.torch.state_dict(),
            "epoch": self.epoch,
            "steps": self.steps,
            "history": [vars(epoch) for epoch in self.history],
            "unfinished": {
                "done": self._done,
                "seconds": [self._seconds, self._data_seconds],
                "losses": losses,
                "metrics": metrics,
            },
            "generators": ranks.all_gather_object(self._generators.state()),
            "negatives": getattr(self._relation(), "negatives", None),
            "best": self._best,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict()` of a training run with the same settings.

        Training resumes bit-identically from the end of an epoch. From within an epoch, the remaining steps use a new
        order and new views. If there are more ranks than when the state was saved, the additional ranks keep their own
        view generators, unless all ranks draw the same views.

        Raises:
            OtherTrainingError: the settings differ.
        """
        fixed = self._fixed_settings().items()
        if differing := [key for key, value in fixed if state["settings"].get(key) != value]:
            differences = ", ".join(f"`{key}` is {state['settings'].get(key)!r} there" for key in differing)
            raise OtherTrainingError(
                f"the checkpoint belongs to another training run: {differences}; use the same settings or another "
                "folder."
            )
        self.method.load_state_dict(state["method"])
        self._optimiser.load_state_dict(state["optimiser"])
        if self.settings.capture:  # recorded steps update the former state of the optimiser
            self._captured = Captured(self._captured_step)
        if (relation := self._relation()) is not None:
            sampler: Any = self.loader.batch_sampler  # type: ignore[attr-defined]
            sampler.relation = relation.with_negatives(state["negatives"])
        self.history, self._best = [Epoch(**epoch) for epoch in state["history"]], state.get("best")
        self.epoch, self.steps, unfinished = state["epoch"], state["steps"], state["unfinished"]
        self._done, self._earlier = unfinished["done"], (unfinished["losses"], unfinished["metrics"])
        self._seconds, self._data_seconds = unfinished["seconds"]
        every, same_views = state["generators"], self.method.divides_nodes
        rank = 0 if same_views else ranks.rank()
        if rank < len(every):
            self._generators.restore(every[rank])
        else:
            self._generators.restore_own({name: state for name, state in every[0]["own"].items() if name == "order"})
        if len(every) != ranks.size() and rank == 0 and not same_views:
            warn_of_new_draws(f"saved by {len(every)} ranks, resumed by {ranks.size()}")
        batches = _length(self.loader)
        if self._done and self._done != batches and ranks.rank() == 0:
            place = f"resumed within epoch {self.epoch + 1}, after step {self._done}"
            warn_of_new_draws(place, "the other steps of this epoch use a new order and new views")

    def _check_pairs(self) -> None:
        """Raise InputError if the method does not use the pairs that the loader draws, whose negatives may be new."""
        if getattr(getattr(self.loader, "batch_sampler", None), "rows", "graphs") in ("groups", "pairs"):
            relation = self._relation()
            held = [getattr(relation, name, None) is not None for name in ("weight", "negatives")]
            self.method.check_pairs(relation is not None, *held)

    def _relation(self) -> Any:
        """Return the pairs that the loader draws from, whose negatives may be mined anew; None of other loaders."""
        return getattr(getattr(self.loader, "batch_sampler", None), "relation", None)

    def _fixed_settings(self) -> dict[str, Any]:
        """Return the settings that must not change when training resumes."""
        return {**self.settings.model_dump(exclude=LENGTH), "total_steps": self._total_steps}

    def _figures(self) -> tuple[list[float], dict[str, float]]:
        """Return the losses of the epoch's steps, and the metrics of one batch by name, averaged over ranks."""
        losses, metrics = self._earlier
        if self._outcome is None:
            return losses, dict(metrics)
        measured = measure(self._outcome, self.settings.diagnostics, self.method)
        figures = torch.stack([*self._losses, *measured.values()])
        values = (ranks.sum_over_ranks(figures) / ranks.size()).tolist()
        steps = len(self._losses)
        return losses + values[:steps], dict(zip(measured, values[steps:], strict=True))

    def _check_losses(self, losses: Sequence[float]) -> None:
        for number, value in enumerate(losses):
            if not math.isfinite(value):
                raise self._error(f"the loss became {value}", number)

    @torch.no_grad()
    def _check_weights(self) -> None:
        # a rare check suffices: after one NaN gradient, weights stay NaN
        if not torch.stack(torch._foreach_norm([*self._parameters])).isfinite().all():
            raise self._error("the gradient, and with it the weights, became NaN or infinite")

    def _error(self, problem: str, number: int | None = None) -> NonFiniteLossError:
        """Return an error at batch `number` of the epoch, by default the last, with its first graphs and remedies."""
        number = self._done - 1 if number is None else number
        place = f"epoch {self.epoch + 1}, step {number + 1}"
        if batches := batches_of_epoch(self.loader):
            place += f" of {len(batches)}"
            if number >= self._done_before:
                batch = batches[number - self._done_before]
                graphs = torch.as_tensor(batch[0] if isinstance(batch, tuple) else batch).flatten()[:8].tolist()
                place += f", graphs {', '.join(map(str, graphs))}, ..."
        return NonFiniteLossError(
            f"{problem} at {place}; try a smaller learning rate, `clip_norm: 1.0`, a larger temperature, or "
            "`amp: false`, and look for extreme values in the node features."
        )


def _set_micro_batch(method: Method, size: int | None) -> None:
    """Let the models of `method` encode `size` graphs at a time; raise InputError if the method does not support it."""
    if size is not None and not method.in_pieces:
        raise InputError(
            f"`micro_batch` does not fit {type(method).__name__}, which needs a whole batch; leave it out."
        )
    if size is not None and any(isinstance(module, GlobalBatchNorm) for module in method.modules()):
        raise InputError("`micro_batch` gives each piece statistics of its own; leave out `sync_batchnorm`.")
    for module in method.modules():
        if isinstance(module, ContrastiveModel):
            module.micro_batch = size


def _copies_before_forward(method: Method) -> list[tuple[Tensor, Tensor]]:
    """Return each tensor that the forward pass may change (BatchNorm statistics, momentum encoders), with a copy.

    Queues are excluded, as only `Method.after_step` changes them.
    """
    changed: list[Tensor] = [tensor for tensor in method.parameters() if not tensor.requires_grad]
    for part in method.children():
        changed += [] if isinstance(part, KeyQueue) else part.buffers()
    return [(tensor, tensor.clone()) for tensor in changed]


def _total_steps(settings: TrainingSettings, loader: Iterable[Batch]) -> int | None:
    """Return the number of steps over which the learning rate changes; None if it is constant."""
    if settings.schedule == "constant" and not settings.warmup:
        return None
    if settings.steps is not None:
        return settings.steps
    batches = _length(loader)
    if batches is None:
        raise InputError("`schedule` and `warmup` need a loader with a length; pass `steps` instead of `epochs`.")
    return settings.epochs * batches


def _length(loader: Any) -> int | None:
    """Return the number of batches in an epoch; None if the loader does not tell."""
    try:
        return len(loader)
    except (TypeError, ValueError):  # PyG's samplers raise ValueError
        return None


def rate_factor(step: int, total: int, schedule: str, warmup: float) -> float:
    """Return the factor of the learning rate in step `step`, counted from 0, of `total` steps.

    The factor rises linearly to 1 over the first `warmup * total` steps. Then it stays 1 (`constant`), or falls to 0
    along half a cosine (`cosine`).

    Example:
        >>> [round(rate_factor(step, 8, "cosine", 0.25), 2) for step in range(8)]
        [0.5, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    rising = warmup * total
    if step < rising:
        return min(1.0, (step + 1) / rising)
    if schedule == "constant":
        return 1.0
    return (1 + math.cos(math.pi * min(1.0, (step - rising) / (total - rising)))) / 2
