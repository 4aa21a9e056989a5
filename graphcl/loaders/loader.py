"""Choose the loader for a data set and a device."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch_geometric.loader import DataLoader

from graphcl.arguments import named_arguments
from graphcl.datasets.disk.on_disk import MappedDataset
from graphcl.datasets.store import not_resident
from graphcl.errors import InputError
from graphcl.loaders.listed import ListedPairs
from graphcl.loaders.order import EpochBatches
from graphcl.loaders.pairs import EpochPairs
from graphcl.loaders.resident import ResidentLoader, check_sampler, num_bytes
from graphcl.loaders.streaming import StreamingLoader


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
