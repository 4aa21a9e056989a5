"""Turn a loader's batches into pairs of augmented views, the input of the training steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation, two_views
from graphcl.graphs.batching import check_batch, split


def augmented(
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator | None,
    device: torch.device,
) -> Iterator[tuple[Batch, Batch, Tensor | None]]:
    """Yield both views and the graph indices `[B]` of each batch; the indices are None if unknown.

    If the loader has `chunks()`, several batches are augmented at once, which launches fewer operations.

    Args:
        loader: batches of graphs.
        first: augmentation for the first views.
        second: augmentation for the second views.
        generator: generator for the augmentations, on `device`.
        device: device on which the batches are augmented.
    """
    chunks = getattr(loader, "chunks", None)
    number = 0
    for batch, sizes in chunks() if chunks else ((batch, None) for batch in loader):
        check_batch(batch)
        view1, view2 = two_views(batch.to(device), first, second, generator)
        pairs = zip(split(view1, sizes), split(view2, sizes), strict=True) if sizes else [(view1, view2)]
        for pair in pairs:
            yield *pair, graph_ids(loader, number, device)
            number += 1


def graph_ids(loader: Iterable[Batch], number: int, device: torch.device) -> Tensor | None:
    """Return the indices `[B]` of the graphs in batch `number` of the current epoch; None if they are unknown."""
    order = batches_of_epoch(loader)
    return torch.as_tensor(order[number]).to(device, non_blocking=True) if order else None


def batches_of_epoch(loader: Iterable[Batch]) -> Sequence[Tensor] | None:
    """Return the graph indices of each batch of the current epoch; None if `loader` does not expose them."""
    return getattr(getattr(loader, "batch_sampler", None), "current", None)
