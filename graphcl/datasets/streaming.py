"""Batches of a data set that is larger than the device, cut ahead by a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch_geometric.data import Batch

from graphcl.datasets.order import WHOLE, Share
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError

T = TypeVar("T")


class StreamingLoader:
    """A `ResidentLoader` on the CPU whose batches are cut by a thread, up to `ahead` of them before they are asked for.

    The batches and their order are those of a `ResidentLoader` with the same generator. The data set stays where it is,
    in memory or mapped from disk. On CUDA the thread copies through pinned memory on a stream of its own, so that
    copying, too, goes on beside the training step.

    A thread lives while an iterator over it does: it ends with the epoch, with an exception (which the iterator
    raises), or when the iterator is closed or forgotten.

    Args:
        dataset: a PyG data set or a list of `Data`, as `ResidentLoader` takes it; mapped from disk, as a rule.
        batch_size: graphs in a batch, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: source of the orders, a CPU generator.
        device: where the batches are wanted.
        window: graphs that are shuffled together; default: all. See `batch_indices`.
        ahead: how many batches, or chunks of them, wait at most, >= 1.
        share: `(rank, ranks)`: which part of each batch is wanted. See `EpochOrder`.

    Raises:
        InputError: see `ResidentLoader`.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> [batch.num_graphs for batch in StreamingLoader(FakeDataset(num_graphs=10), batch_size=4)]
        [4, 4, 2]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        window: int | None = None,
        ahead: int = 2,
        share: Share = WHOLE,
    ) -> None:
        if ahead < 1:
            raise InputError(f"`ahead` must be at least 1, got {ahead}.")
        self._cutter = ResidentLoader(dataset, batch_size, shuffle, generator, "cpu", window, share)
        self.device, self.ahead = torch.device(device), ahead
        self.batch_sampler = self._cutter.batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        order = self.batch_sampler.draw()  # here, as the thread would draw from the generator at any time
        return (batch for batch, _ in self._moved((self._cutter.batch(graphs), []) for graphs in order))

    def chunks(self, least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """See `ResidentLoader.chunks`."""
        return self._moved(self._cutter.chunks_of(self.batch_sampler.draw(), least))

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
            batch.record_stream(current)  # its memory, owned by the side stream, is not reused before this one is done
            yield batch, sizes


def ahead_of(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, computed by a thread, at most `depth` of them before they are asked for.

    Args:
        items: consumed in the thread.
        depth: >= 1.

    Raises:
        Exception: whatever `items` raises, at the place where it does.
    """
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
