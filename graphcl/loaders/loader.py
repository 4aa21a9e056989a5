"""Choose the loader for a data set and a device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import DataLoader

from graphcl.arguments import named_arguments
from graphcl.datasets.disk.on_disk import MappedDataset
from graphcl.datasets.store import not_resident
from graphcl.loaders.order import WHOLE, Shard
from graphcl.loaders.pairs import Singles, epoch_batches
from graphcl.loaders.resident import ResidentLoader, num_bytes
from graphcl.loaders.streaming import StreamingLoader


@named_arguments
def make_loader(
    dataset: Any,
    batch_size: int,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    window: int | None = None,
    shard: Shard = WHOLE,
    like: object = None,
    groups: Sequence[Any] | Tensor | None = None,
    singles: Singles = "drop",
    members: int = 2,
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
    order = batch_size, shuffle, generator
    if isinstance(like, ResidentLoader):
        loader = copy.copy(like)
        loader.batch_sampler = epoch_batches(len(dataset), *order, window, shard, groups, singles, members)
        return loader
    if not_resident(dataset):
        sampler = epoch_batches(len(dataset), *order, window, shard, groups, singles, members)
        return DataLoader(dataset if groups is None else _Pairs(dataset), batch_sampler=sampler)
    cuda = device.type == "cuda"
    streams = num_bytes(dataset) > _free_memory(device) / 2 if cuda else isinstance(dataset, MappedDataset)
    loader = ResidentLoader(dataset, *order, "cpu" if streams else device, window, shard, groups, singles, members)
    return StreamingLoader(loader, device) if streams else loader


class _Pairs(torch.utils.data.Dataset):
    """The pairs of graphs of a data set: entry (i, j) is graph i with graph j; PyG collates both separately."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, pair: Sequence[int]) -> tuple[Any, Any]:
        return self._dataset[pair[0]], self._dataset[pair[1]]


def _free_memory(device: torch.device) -> int:
    """Return the bytes of GPU memory that PyTorch can still allocate, including those that it has cached."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + cached)
