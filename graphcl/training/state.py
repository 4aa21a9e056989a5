"""A training under way: what it does at each step, what it measures, and all that it has come to."""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.distributed import ranks
from graphcl.distributed.batchnorm import average_statistics, running_statistics
from graphcl.errors import InputError
from graphcl.losses.engine.checks import NonFiniteInputError, check_choice
from graphcl.methods import KeyQueue, Method, Outcome
from graphcl.training.checkpoint import OtherTrainingError
from graphcl.training.diagnostics import alignment, diagnose, uniformity
from graphcl.training.stream import ViewStream, order_of


class NonFiniteLossError(InputError):
    """The loss became NaN or infinite; the message says where and what to try."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch did: means over its steps.

    Args:
        epoch: counted from 1.
        loss: the training loss.
        alignment: of the two views' projections, see `graphcl.training.diagnostics`.
        uniformity: of the first view's projections.
        seconds: wall time of the epoch.
        data_seconds: the part of it spent on cutting out batches and augmenting them (on CUDA: on launching that).
        diagnostics: where they were asked for, see `graphcl.training.diagnostics.diagnose`; and what the method logs.
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


class Training:
    """A training under way, which `train` moves on step by step, and whose `state` a checkpoint holds.

    Args:
        method: trained in place.
        loader: batches of graphs.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view.
        generator: source of the views, and of what the method draws.
        diagnostics: whether to measure more.
        resumable: whether `state` will be asked for.
        settings: of `train`: lr, weight_decay, clip_norm, amp, non_finite.

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
        check_choice("non_finite", settings["non_finite"], ("stop", "skip"))
        clip_norm = settings["clip_norm"]
        if clip_norm is not None and not clip_norm > 0:  # below 0 it would turn the gradient round
            raise InputError(f"`clip_norm` must be above 0, or None, got {clip_norm}.")
        self._skips = settings["non_finite"] == "skip"
        self.parameters = [each for each in method.parameters() if each.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = torch.optim.Adam(
            self.parameters, lr=settings["lr"], weight_decay=settings["weight_decay"], fused=True
        )
        self._parallel = _parallel(method, self.device)
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
        """Of the optimiser, or a skipped one, which leaves all as it was before."""
        kept = [(each, each.clone()) for each in _changed_by_forward(self.method)] if self._skips else []
        outcome = self._backward(view1, view2)
        if outcome is None:
            for each, before in kept:
                each.copy_(before)
            self._skipped += 1
        else:
            self.optimiser.step()
            self.method.after_step()
            self._measured.append(measure(outcome, self.diagnostics, self.method))
        self.steps += 1

    def _backward(self, view1: Batch, view2: Batch) -> Outcome | None:
        """What the method makes of two views, its gradient at the parameters; None where the step is to be skipped."""
        outcome = self._forward(view1, view2)
        # Before the backward pass, in which ranks wait for each other.
        sick = self._skips and ranks.on_any(outcome is None)[0]
        if outcome is None or sick:
            return None
        self.optimiser.zero_grad(set_to_none=True)
        outcome.loss.backward()
        clip_norm = self.settings["clip_norm"]
        if clip_norm is not None or self._skips:
            norm = nn.utils.clip_grad_norm_(self.parameters, math.inf if clip_norm is None else clip_norm)
            finite = torch.isfinite(outcome.loss.detach()) & torch.isfinite(norm)
            if self._skips and ranks.on_any(not bool(finite))[0]:
                return None
        return outcome

    def _forward(self, view1: Batch, view2: Batch) -> Outcome | None:
        """What the method makes of two views; None where its projections are not finite and the step is skipped."""
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings["amp"]):
                return self._parallel(view1, view2, ids=self.stream.ids(), generator=self.generator)
        except NonFiniteInputError as error:
            if self._skips:
                return None
            self._refuse_non_finite([step["loss"].item() for step in self._measured])
            raise self._non_finite(f"the projections became NaN or infinite ({str(error)[:-1]})") from None
        except RuntimeError as error:
            if "Expected to have finished reduction" not in str(error):
                raise
            raise InputError(
                "over several ranks every parameter must have a part in each step's loss; leave out layers that have "
                "none, or freeze them by requires_grad_(False)."
            ) from None

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
        own = torch.stack([torch.stack(list(step.values())) for step in self._measured])
        table = (ranks.sum_over_ranks(own) / ranks.size()).cpu()
        self._refuse_non_finite(table[:, 0].tolist())
        self._refuse_non_finite_weights()
        means = dict(zip(self._measured[0], table.mean(dim=0).tolist(), strict=True))
        means |= self.method.after_epoch()
        average_statistics(self.method)
        if self._skips:
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
        """All that a checkpoint holds: plain values and tensors on the CPU. All ranks ask for it together.

        Raises:
            NonFiniteLossError: there is nothing left to save.
        """
        self._refuse_non_finite_weights()
        measured = self._measured
        names = list(measured[0]) if measured else []
        own = {
            "stream": self.stream.state(),
            "skipped": self._skipped,
            "seconds": [self._seconds, self._data_seconds],
            "measured": {name: torch.stack([step[name] for step in measured]).cpu() for name in names},
            "statistics": _on_cpu(running_statistics(self.method)),
        }
        return {
            "settings": self.settings,
            "method": _on_cpu(self.method.state_dict()),
            "optimiser": _on_cpu(self.optimiser.state_dict()),
            "epoch": self.epoch,
            "steps": self.steps,
            "history": [vars(each) for each in self.history],
            "ranks": ranks.collect(own),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where a training with the same settings stood.

        With another number of ranks the order of the graphs and all else goes on, but views are drawn anew.

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
        self.epoch, self.steps = state["epoch"], state["steps"]
        same = len(state["ranks"]) == ranks.size()
        own = state["ranks"][ranks.rank() if same else 0]
        self._skipped = own["skipped"]
        self._seconds, self._data_seconds = own["seconds"]
        for name, each in running_statistics(self.method).items():
            each.copy_(own["statistics"][name])
        columns = {name: each.to(self.device).unbind() for name, each in own["measured"].items()}
        self._measured = [dict(zip(columns, step, strict=True)) for step in zip(*columns.values(), strict=True)]
        if same:
            self.stream.restore(own["stream"])
            return
        if ranks.rank() == 0:
            print(
                f"graphcl: saved by {len(state['ranks'])} ranks, goes on with {ranks.size()}: the same graphs in the "
                "same batches, but views are drawn anew, so not bit for bit.",
                file=sys.stderr,
            )
        self.stream.restore_elsewhere(own["stream"], _mixed(self.generator, self.steps))

    def _refuse_non_finite(self, losses: list[float]) -> None:
        for number, value in enumerate(losses):
            if not math.isfinite(value):
                raise self._non_finite(f"the loss became {value}", number)

    def _refuse_non_finite_weights(self) -> None:
        """Adam never recovers from a gradient that is not finite, so it is soon enough to look before a checkpoint."""
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


def _parallel(method: Method, device: torch.device) -> nn.Module:
    """The method, its gradients averaged over ranks where there are several."""
    if (group := ranks.current()) is None:
        return method
    # Statistics are each rank's own until the end of the epoch; queues and banks are equal by themselves.
    known = inspect.signature(DistributedDataParallel).parameters
    buffers: dict[str, Any] = {
        "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
    }
    devices = [device] if device.type == "cuda" else None
    parallel = DistributedDataParallel(method, device_ids=devices, process_group=group.group, **buffers)
    # (In a lambda, as DDP compares annotations, which are texts in this file.)
    parallel.register_comm_hook(group, lambda group, bucket: _averaged(group, bucket))
    return parallel


def _averaged(group: ranks.Ranks, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A bucket of gradients, averaged: its numbers' sums do not hang on where in it they lie.

    `DistributedDataParallel` lays its buckets out anew after the first step, and a ring adds up in an order that hangs
    on the place, so the last bits of a resumed training would be others.
    """
    flat = bucket.buffer()
    done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[flat.device] if flat.is_cuda else None)
    done.set_result(group.summed_in_order(flat).div_(group.size))
    return done


def _mixed(generator: torch.Generator | None, steps: int) -> int:
    """A seed for a rank's views after so many steps, far from all others."""
    first = generator.initial_seed() if generator is not None else torch.initial_seed()
    digest = hashlib.sha256(f"{first} {steps} {ranks.rank()} {ranks.size()}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


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


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """What is logged of a step: loss, alignment and uniformity, and more where diagnostics are wanted."""
    # Uniformity compares all pairs; a thousand rows estimate it well enough.
    h, a, b = outcome.h[:1024], outcome.z1[:1024], outcome.z2[:1024]
    found = {"loss": outcome.loss.detach(), "alignment": alignment(a, b), "uniformity": uniformity(a)}
    if diagnostics:
        found |= diagnose(h, a, b, method.setting("temperature", 0.2))
    return found
