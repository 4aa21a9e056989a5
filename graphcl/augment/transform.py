"""Base class of augmentations: a PyG transform that draws a random decision and then applies it."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.transforms import BaseTransform

from graphcl.augment.decision import Decision, apply
from graphcl.graphs.batching import Layout, as_batch, levels

Graphs = TypeVar("Graphs")
"""`Batch` or `Data`; an augmentation returns the type that it was given."""


class Augmentation(BaseTransform):
    """Random augmentation of all graphs in a batch.

    Called on a `Batch`, it returns a `Batch` with the same graphs in the same order, each with at least one node.
    Called on a `Data`, for example as `transform=` of a data set, it returns a `Data`. The input is never changed.

    A subclass implements `decide` and stores each argument of its constructor as an attribute of the same name.
    """

    def __call__(
        self,
        data: Graphs,
        generator: torch.Generator | None = None,
        graphs: Tensor | None = None,
    ) -> Graphs:
        """Return an augmented copy of `data`, a batch or a single graph.

        Args:
            data: PyG `Batch` or `Data`.
            generator: source of randomness, on the device of `data`; torch's global generator by default.
            graphs: mask `[B]` of the graphs to augment; all by default.

        Raises:
            InputTypeError: `data` is not a homogeneous PyG graph or batch.
            InputError: `data` lacks an attribute that the augmentation needs.
        """
        batch = as_batch(data)
        view: Any = self.augment(batch, generator, graphs)
        if isinstance(data, Batch):
            return view
        out: Any = copy.copy(data)  # graph-level attributes do not change
        for key, level in levels(view, Layout.of(view)).items():
            if level != "other":
                out[key] = view[key]  # batching a single graph shifts no indices, so none need to be shifted back
        if "num_nodes" in view:
            out.num_nodes = view.num_nodes
        return out

    def forward(self, data: Graphs) -> Graphs:
        """Return an augmented copy of `data`; PyG's `BaseTransform` requires this method."""
        return self(data)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Return `batch` after a decision has been drawn and applied."""
        return apply(batch, self.decide(batch, generator, graphs))

    @abstractmethod
    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Return a random decision for `batch`, to be applied by `graphcl.augment.apply`. `batch` is not changed."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"
