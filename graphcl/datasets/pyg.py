"""Use data-set classes of PyG and OGB without console output, and without running code from the files they read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

Collated = tuple[Data, dict[str, Tensor] | None]
"""A data set as in PyG's `InMemoryDataset`: all graphs in one `Data`, and the slices for each attribute."""


class Reader:
    """Mixin for PyG's data-set classes: `_prepare` decides whether raw files are fetched and processed, or only read.

    PyG itself decides by the files that exist, so it cannot repair a damaged one; and it unpickles `pre_transform.pt`.
    """

    _prepare = False

    def _download(self: Any) -> None:
        if self._prepare and not all(map(os.path.exists, self.raw_paths)):
            os.makedirs(self.raw_dir, exist_ok=True)
            self.download()

    def _process(self: Any) -> None:
        if self._prepare:
            os.makedirs(self.processed_dir, exist_ok=True)
            self.process()


@contextmanager
def no_pickles() -> Iterator[None]:
    """Within the block, raise an error where PyG would unpickle a file, which could run code."""
    allow_pyg_containers()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Weights only load failed")  # PyG unpickles after this warning
        yield


def allow_pyg_containers() -> None:
    """Allow `torch.load(weights_only=True)` to create PyG's plain containers, for the rest of the process.

    The context manager `torch.serialization.safe_globals` would also revoke classes that PyG itself has allowed.
    """
    torch.serialization.add_safe_globals([Data, HeteroData, GlobalStorage, DataEdgeAttr, DataTensorAttr])
