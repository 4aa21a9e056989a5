"""Create two augmented views of every graph in a batch."""

from __future__ import annotations

import torch
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation


def two_views(
    batch: Batch, first: Augmentation, second: Augmentation, generator: torch.Generator | None = None
) -> tuple[Batch, Batch]:
    """Return two views of `batch`; graph i of one view is the positive of graph i of the other.

    Args:
        batch: the graphs, which are not changed.
        first: augmentation of the first view; `Identity()` for the original graphs.
        second: augmentation of the second view.
        generator: source of randomness, on the device of `batch`.
    """
    return first(batch, generator), second(batch, generator)
