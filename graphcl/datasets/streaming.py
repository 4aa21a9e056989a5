"""Loader for a data set that is larger than the device's memory: a thread prepares the batches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch_geometric.data import Batch

from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError

T = TypeVar("T")


class StreamingLoader:
    """Loader for which a thread prepares batches ahead of time, using a `ResidentLoader` on the CPU.

    The data set stays in host memory or memory-mapped. With CUDA the thread copies batches through pinned memory on a
    separate stream, so that copying overlaps with the training step.

    The thread ends with the epoch, with an exception (which the iterator then raises), or when the iterator is closed
    or garbage-collected.

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
        self._loader, self.device, self.ahead = loader, torch.device(device), ahead
        self.batch_sampler = loader.batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        order = self.batch_sampler.draw()  # not in the thread, so that the draw has a fixed place in the run
        return (batch for batch, _ in self._moved((self._loader.batch(graphs), []) for graphs in order))

    def chunks(self, least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the batches of a new epoch in chunks, see `ResidentLoader.chunks`."""
        return self._moved(self._loader.chunks_of(self.batch_sampler.draw(), least))

    def _moved(self, cut: Iterator[tuple[Batch, list[int]]]) -> Iterator[tuple[Batch, list[int]]]:
        if self.device.type != "cuda":
            yield from ahead_of(cut, self.ahead)
            return
        side = torch.cuda.Stream(self.device)

        def sent() -> Iterator[tuple[Batch, list[int], torch.cuda.Event]]:
            for batch, sizes in cut:
                with torch.cuda.stream(side):
                    batch = batch.pin_memory().to(self.device, non_blocking=True)
                yield batch, sizes, side.record_event()

        for batch, sizes, arrived in ahead_of(sent(), self.ahead):
            current = torch.cuda.current_stream(self.device)
            current.wait_event(arrived)
            batch.record_stream(current)  # else the side stream, which allocated it, could reuse its memory too early
            yield batch, sizes


def ahead_of(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """Yield the items of `items`, which a thread computes at most `depth` ahead; raise the thread's exceptions."""
    ready: queue.Queue[Callable[[], T] | None] = queue.Queue(depth)
    stopped = threading.Event()

    def put(result: Callable[[], T] | None) -> bool:
        while not stopped.is_set():
            try:
                ready.put(result, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(lambda item=item: item):  # type: ignore[misc]
                    return
            put(None)
        except BaseException as error:
            put(lambda error=error: _raise(error))  # type: ignore[misc]

    thread = threading.Thread(target=work, name="graphcl-loader", daemon=True)
    thread.start()
    try:
        while (result := ready.get()) is not None:
            yield result()
    finally:
        stopped.set()
        thread.join()


def _raise(error: BaseException) -> Any:
    raise error
