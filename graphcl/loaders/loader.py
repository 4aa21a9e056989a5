"""Choose the loader for a data set and a device; `StreamingLoader` is for data sets larger than the device's memory."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from graphcl.arguments import named_arguments
from graphcl.datasets.collate import not_resident
from graphcl.datasets.on_disk import MappedDataset
from graphcl.errors import InputError
from graphcl.graphs.compact import Compact
from graphcl.loaders.resident import ResidentLoader, check_sampler, num_bytes
from graphcl.loaders.samplers import EpochBatches, EpochPairs, ListedPairs


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
        InputError: the loader is not on the CPU.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> loader = ResidentLoader(FakeDataset(num_graphs=10), batch_size=4)
        >>> [batch.num_graphs for batch in StreamingLoader(loader)]
        [4, 4, 2]
    """

    def __init__(self, loader: ResidentLoader, device: torch.device | str = "cpu", ahead: int = 2) -> None:
        if loader.device.type != "cpu":
            raise InputError(f"`loader` must be on the CPU, got {loader.device}.")
        self.resident, self.device, self.ahead = loader, torch.device(device), ahead
        self.batch_sampler = loader.batch_sampler
        self._cutter, targets = copy.copy(loader), copy.copy(loader.targets)
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


@named_arguments
def make_loader(
    dataset: Any,
    batch_size: int = 1,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    *,
    like: object = None,
    batch_sampler: EpochBatches | None = None,
    targets: Any = None,
) -> ResidentLoader | StreamingLoader | DataLoader:
    """Return the loader that suits `dataset` and `device`; all loaders yield the same batches in the same order.

    | loader | on a GPU | on the CPU |
    |---|---|---|
    | `ResidentLoader` | data sets of at most half of the GPU's free memory | data sets in memory |
    | `StreamingLoader` | larger data sets | memory-mapped data sets |
    | PyG's `DataLoader` | data sets that `not_resident` rejects; batches are on the CPU | the same |

    For the other arguments, see `ResidentLoader`.

    Args:
        device: device of the batches; PyG's `DataLoader` ignores it.
        like: a loader of the same data set on the same device. If it is a `ResidentLoader`, the new loader shares its
            tensors, so that the device holds the data set once.

    Raises:
        InputError: a size is out of range, or a rank would get fewer than two graphs of a batch.
    """
    device = torch.device(device)
    sampler = batch_sampler or EpochBatches(len(dataset), batch_size, shuffle, generator)
    check_sampler(sampler, dataset)
    if isinstance(like, ResidentLoader):
        loader = copy.copy(like)
        loader.batch_sampler = sampler
        return loader
    if not_resident(dataset) or (targets is not None and not_resident(targets)):
        if targets is not None or isinstance(sampler, ListedPairs):
            why = not_resident(dataset) or not_resident(targets)
            raise InputError(f"listed pairs need data sets in plain tensors, but one has another form: {why}.")
        return DataLoader(_Pairs(dataset) if isinstance(sampler, EpochPairs) else dataset, batch_sampler=sampler)
    sides = [dataset] if targets is None else [dataset, targets]
    if device.type == "cuda":
        streams = sum(map(num_bytes, sides)) > _free_memory(device) / 2
    else:
        streams = any(isinstance(side, MappedDataset) for side in sides)
    loader = ResidentLoader(dataset, device="cpu" if streams else device, batch_sampler=sampler, targets=targets)
    return StreamingLoader(loader, device) if streams else loader


class _Pairs(torch.utils.data.Dataset):
    """The pairs of graphs of a data set: entry (i, j) is graph i with graph j; PyG collates both separately."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, pair: tuple[int, int]) -> tuple[Any, Any]:
        return self._dataset[pair[0]], self._dataset[pair[1]]


def _free_memory(device: torch.device) -> int:
    """Return the bytes of GPU memory that PyTorch can still allocate, including those that it has cached."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + cached)
