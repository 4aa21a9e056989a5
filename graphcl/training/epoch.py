"""Turn the batches of an epoch into pairs of augmented views, and compute the metrics of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation, Identity, alike, two_views
from graphcl.graphs.batching import members_of, split, twice, with_entries
from graphcl.losses.rows import normalize
from graphcl.methods import Method, Outcome
from graphcl.models.pieces import LazyBatch, piece_sizes
from graphcl.training.diagnostics import alignment, diagnose, uniformity

_ROWS = 1024
"""Rows of a batch used for metrics: uniformity costs O(rows^2), and about a thousand rows estimate it well enough."""


@dataclass(frozen=True)
class Epoch:
    """The metrics and times of one epoch.

    All metrics but the loss are measured on up to 1,024 graphs of one batch: the last that has as many.

    Args:
        epoch: number of the epoch, from 1.
        loss: training loss, the mean over the epoch's steps.
        alignment: alignment of the two views' projections, see `graphcl.training.diagnostics.alignment`.
        uniformity: uniformity of the first views' projections, see `graphcl.training.diagnostics.uniformity`.
        seconds: wall time of the epoch.
        data_seconds: part of `seconds` spent on loading and augmenting batches (on CUDA, this may contain waiting for
            the steps of earlier chunks).
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
def larger(kept: Outcome | None, new: Outcome) -> Outcome:
    """Return the rows of `new` that `measure` reads, or `kept` if it has more: an epoch's last batch may be small."""
    if kept is not None and kept.z1.size(0) > min(new.z1.size(0), _ROWS):
        return kept
    h, z1, z2 = (rows[:_ROWS].clone() if len(rows) > _ROWS else rows.detach() for rows in (new.h, new.z1, new.z2))
    return Outcome(new.loss.detach(), h, z1, z2)  # without the rest, which fills memory until the epoch ends


@torch.no_grad()
def measure(outcome: Outcome, diagnostics: bool, method: Method) -> dict[str, Tensor]:
    """Return the metrics of one batch: alignment, uniformity, a learned temperature and the result of `diagnose`.

    The last one only with `diagnostics`.
    """
    h, z1, z2 = outcome.h, outcome.z1, outcome.z2
    unit1, unit2 = normalize(torch.cat([z1, z2])).split(len(z1))
    metrics = {"alignment": alignment(unit1, unit2, unit=True), "uniformity": uniformity(unit1, unit=True)}
    temperature = method.setting("temperature", 0.2)
    if isinstance(temperature, Tensor):  # a learned one
        metrics["temperature"] = temperature
    if diagnostics:
        metrics |= diagnose(h, z1, z2, temperature)
    return metrics


def augmented(
    loader: Any,
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
    micro_batch: int | None = None,
) -> Iterator[tuple[Any, Any, Tensor | None]]:
    """Yield both views and the ids `[B]` of each batch, see `graph_ids`; a batch may be a pair, see `two_views`.

    If the loader has `chunks()`, several batches are augmented at once, which launches fewer operations. With
    `micro_batch`, the views of such a loader are lazy, see `_lazy_views`.
    """
    chunks: Any = getattr(loader, "chunks", None)
    if chunks and micro_batch and generator is not None and loader.batch_sampler.batch_size > micro_batch:
        yield from _lazy_views(loader, (first, second), generator, device, micro_batch)
        return
    views = _of_chunks(loader, first, second, generator, device)
    if device.type != "cuda" or not chunks:
        for of_chunk in views:
            yield from of_chunk
        return
    # Make views on a separate stream, so that reading their sizes does not wait for the steps just launched.
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    _wait_for_each_other(side, current)
    chunk: list[Any] | None = []
    try:
        while chunk is not None:
            yield from chunk
            with torch.cuda.stream(side):
                following = next(views, None)  # keep `chunk` until then, as steps may still read it
            _wait_for_each_other(side, current)  # the side stream may then reuse the memory of `chunk`
            chunk = following
    finally:  # the caller may stop early, or `views` raise
        _wait_for_each_other(side, current)


def _wait_for_each_other(one: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
    """Let the later work of each stream wait for the earlier work of the other."""
    other.wait_stream(one)
    one.wait_stream(other)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream for views on `device`; each new stream would cache memory of its own."""
    return torch.cuda.Stream(device)


def _of_chunks(
    loader: Any,
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
) -> Iterator[list[tuple[Any, Any, Tensor | None]]]:
    """Yield a list for each chunk: both views and the ids of each batch."""
    chunks: Any = getattr(loader, "chunks", None)
    # On a GPU, operations on few graphs cost as much time as those on many, so one call makes both views.
    changes = isinstance(first, Augmentation) and not isinstance(first, Identity)
    at_once = device.type == "cuda" and changes and alike(first, second)
    number = 0
    undivided = chunks() if chunks else ((batch, [1]) for batch in loader)  # one batch, of any size
    for batch, sizes in undivided:
        one, two = (member.to(device) for member in members_of(batch))
        del batch  # a large batch takes as much memory as its views
        if at_once and one is two and len(sizes) > 1:  # a chunk of one batch may fill the memory
            one = two = twice(one)
            views, of_views = [first(one, generator)], [sizes + sizes]
        else:
            views = list(two_views((one, two), first, second, generator))
            of_views = list(sizes) if isinstance(sizes[0], list) else [sizes, sizes]
        del one, two
        parts = list(chain.from_iterable(map(split, views, of_views)))
        del views
        half = len(parts) // 2
        pairs = list(zip(parts[:half], parts[half:], strict=True))
        if weights := getattr(getattr(loader, "batch_sampler", None), "weights", None):
            of_chunk = zip(pairs, weights[number : number + len(pairs)], strict=True)
            pairs = [(with_entries(one, "pair_weight", weight.to(device)), two) for (one, two), weight in of_chunk]
        ids = graph_ids(loader, number, len(pairs), device)
        yield [(*pair, of_pair) for pair, of_pair in zip(pairs, ids, strict=True)]
        number += len(ids)


def _lazy_views(
    loader: Any, augmentations: Sequence[Augmentation], generator: torch.Generator, device: torch.device, size: int
) -> Iterator[tuple[LazyBatch, LazyBatch, Tensor | None]]:
    """Yield both views and the ids of each batch of an epoch; the views are cut and augmented in pieces of `size`."""
    resident = getattr(loader, "resident", loader)
    sources = resident, resident.targets or resident
    for number, batch in enumerate(loader.batch_sampler.draw()):
        weights = loader.batch_sampler.weights
        weight = None if weights is None else weights[number].to(device)
        views = []
        members = batch if isinstance(batch, tuple) else (batch, batch)
        for source, graphs, augmentation in zip(sources, members, augmentations, strict=True):
            parts = graphs.split(piece_sizes(len(graphs), size))
            pieces = [_Piece(source, part, augmentation, generator, device) for part in parts]
            views.append(LazyBatch(pieces, len(graphs), pair_weight=weight))
        yield views[0], views[1], graph_ids(loader, number, 1, device)[0]


class _Piece:
    """Piece of a view, which every call draws with the state that the generator had at the first."""

    def __init__(
        self, loader: Any, graphs: Tensor, augmentation: Augmentation, generator: torch.Generator, device: torch.device
    ) -> None:
        self._make = lambda draws: augmentation(loader.batch(graphs).to(device), draws)
        self._generator = generator
        self._state: Tensor | None = None

    def __call__(self) -> Batch:
        draws = self._generator
        if self._state is None:
            self._state = draws.get_state()
        else:
            draws = torch.Generator(draws.device)
            draws.set_state(self._state)
        return self._make(draws)


def graph_ids(
    loader: Iterable[Batch], number: int, count: int, device: torch.device
) -> Sequence[Tensor] | Sequence[None]:
    """Return the indices `[B]` of the graphs in `count` batches of the current epoch, from batch `number`.

    Of pairs, they are the indices of the groups, so that methods with a queue or a bank have one entry per group. They
    are None if the loader does not give them.
    """
    order = getattr(getattr(loader, "batch_sampler", None), "ids", None) or batches_of_epoch(loader)
    if not order:
        return [None] * count
    batches = [torch.as_tensor(graphs) for graphs in order[number : number + count]]
    return torch.cat(batches).to(device, non_blocking=True).split([graphs.numel() for graphs in batches])


def batches_of_epoch(loader: Iterable[Batch]) -> Sequence[Tensor] | None:
    """Return the graph indices of each batch of the epoch, `[B]` or a pair; None if `loader` has none."""
    return getattr(getattr(loader, "batch_sampler", None), "current", None)
