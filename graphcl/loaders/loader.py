"""Choose the loader for a data set and a device."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.loader import DataLoader

from graphcl.arguments import named_arguments
from graphcl.datasets.disk.on_disk import MappedDataset
from graphcl.datasets.store import not_resident
from graphcl.loaders.order import WHOLE, EpochBatches, Shard
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
) -> ResidentLoader | StreamingLoader | DataLoader:
    """Return the loader that suits `dataset` and `device`; all loaders yield the same batches in the same order.

    | loader | on a GPU | on the CPU |
    |---|---|---|
    | `ResidentLoader` | data sets of at most half of the GPU's free memory | data sets in memory |
    | `StreamingLoader` | larger data sets | memory-mapped data sets |
    | PyG's `DataLoader` | data sets that `not_resident` rejects; batches are on the CPU | the same |

    Args:
        dataset: a PyG data set or a list of `Data`.
        batch_size: number of graphs in a batch, summed over all ranks, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: CPU generator that draws the orders; all ranks need the same seed.
        device: device of the batches; PyG's `DataLoader` ignores it.
        window: number of graphs that are shuffled together; default: all. See `EpochBatches`.
        shard: `(rank, ranks)`: the number of this process and the number of processes that share each batch.
        like: a loader of the same data set on the same device. If it is a `ResidentLoader`, the new loader shares its
            tensors, so that the device holds the data set once.

    Raises:
        InputError: a size is out of range, or a rank would get fewer than two graphs of a batch.
    """
    device = torch.device(device)
    batches = EpochBatches(len(dataset), batch_size, shuffle, generator, window, shard)
    if isinstance(like, ResidentLoader):
        return like.with_batches(batches)
    if not_resident(dataset):
        return DataLoader(dataset, batch_sampler=batches)
    if device.type == "cuda":
        streams = num_bytes(dataset) > _free_memory(device) / 2
    else:
        streams = isinstance(dataset, MappedDataset)
    place = "cpu" if streams else device
    loader = ResidentLoader(dataset, batch_size, shuffle, generator, place, window, shard)
    return StreamingLoader(loader, device) if streams else loader


def _free_memory(device: torch.device) -> int:
    """Return the bytes of GPU memory that PyTorch can still allocate, including those that it has cached."""
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free: int = torch.cuda.mem_get_info(device)[0] + cached
    return free
