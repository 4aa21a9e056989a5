"""Create two augmented views of every graph in a batch."""

from __future__ import annotations

import torch
from torch_geometric.data import Batch

from graphcl.arguments import named_arguments
from graphcl.augment.transform import Augmentation, as_augmentation


@named_arguments
def two_views(
    batch: Batch, first: Augmentation | str, second: Augmentation | str, generator: torch.Generator | None = None
) -> tuple[Batch, Batch]:
    """Return two views of `batch`; graph i of one view is the positive of graph i of the other.

    Args:
        batch: the graphs, which are not changed.
        first: augmentation of the first view, or its name; `Identity()` for the original graphs.
        second: augmentation of the second view, or its name.
        generator: source of randomness, on the device of `batch`.
    """
    return as_augmentation(first, "first")(batch, generator), as_augmentation(second, "second")(batch, generator)
