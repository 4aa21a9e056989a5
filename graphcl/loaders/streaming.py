"""Define the loader for a data set that is larger than the device's memory; a thread prepares its batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import torch
from torch_geometric.data import Batch

from graphcl.errors import InputError
from graphcl.graphs.compact import Compact
from graphcl.loaders.resident import ResidentLoader


class StreamingLoader:
    """Loader that prepares batches ahead of time in a thread, with a `ResidentLoader` on the CPU.

    The data set stays in host memory or in memory-mapped files. With CUDA the thread copies batches through pinned
    memory on a separate stream, so that copying overlaps with the training step. The thread ends with the epoch, when
    the iterator is closed or garbage-collected, or with an exception, which the iterator raises.

    Args:
        loader: loader that makes the batches, on the CPU.
        device: device of the batches.
        ahead: number of batches (or chunks, see `chunks`) that are prepared ahead, >= 1.

    Raises:
        InputError: `ahead` is below 1, or the loader is not on the CPU.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> loader = ResidentLoader(FakeDataset(num_graphs=10), batch_size=4)
        >>> [batch.num_graphs for batch in StreamingLoader(loader)]
        [4, 4, 2]
    """

    def __init__(self, loader: ResidentLoader, device: torch.device | str = "cpu", ahead: int = 2) -> None:
        if ahead < 1:
            raise InputError(f"`ahead` must be at least 1, got {ahead}.")
        if loader.device.type != "cpu":
            raise InputError(f"`loader` must be on the CPU, got {loader.device}.")
        self.resident, self.device, self.ahead = loader, torch.device(device), ahead
        self.batch_sampler = loader.batch_sampler
        self._cutter, targets = copy(loader), copy(loader.targets)
        self._cutter.targets = targets
        for cutter in filter(None, (self._cutter, targets)):
            cutter.expands = self.device.type != "cuda"  # else on the device, so that fewer bytes are sent

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        order = self.batch_sampler.draw()  # not in the thread, which would use the generator at any time
        return (batch for batch, _ in self._moved((self._cutter.batch(graphs), []) for graphs in order))

    def chunks(self, least: int = 1024) -> Iterator[tuple[Any, list[int]]]:
        """Yield the batches of a new epoch in chunks, see `ResidentLoader.chunks`."""
        return self._moved(self._cutter.chunks(least, self.batch_sampler.draw()))

    def _moved(self, cut: Iterator[tuple[Any, list[int]]]) -> Iterator[tuple[Any, list[int]]]:
        if self.device.type != "cuda":
            yield from ahead_of(cut, self.ahead)
            return
        side = torch.cuda.Stream(self.device)

        def sent() -> Iterator[tuple[Any, list[int], torch.cuda.Event]]:
            for batch, sizes in cut:
                with torch.cuda.stream(side):
                    batch = _each(batch, lambda part: part.pin_memory().to(self.device, non_blocking=True))
                yield batch, sizes, side.record_event()

        for batch, sizes, arrived in ahead_of(sent(), self.ahead):
            current = torch.cuda.current_stream(self.device)
            current.wait_event(arrived)
            # else the side stream, which allocated the batch, could reuse its memory
            yield _each(batch, lambda part: _expanded(part.record_stream(current))), sizes  # noqa: B023, called at once


def _each(batch: Any, function: Callable[[Batch], Batch]) -> Any:
    """Return `function(batch)`, or its results for both batches of a pair."""
    return tuple(map(function, batch)) if isinstance(batch, tuple) else function(batch)


def _expanded(batch: Batch) -> Batch:
    """Expand the compact columns of a batch in place, and return the batch."""
    for key, value in batch._store.items():
        if isinstance(value, Compact):
            batch[key] = value.form.expand(value.raw)
    return batch


def ahead_of(items: Iterator[Any], depth: int = 2) -> Iterator[Any]:
    """Yield the items of `items`, computed by a thread up to `depth` items ahead; raise the thread's exceptions."""
    end = object()
    pool = ThreadPoolExecutor(1, "graphcl-loader")
    ready = deque(pool.submit(next, items, end) for _ in range(depth))
    try:
        while (item := ready.popleft().result()) is not end:
            ready.append(pool.submit(next, items, end))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
