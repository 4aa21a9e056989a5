"""What every augmentation is: a PyG transform that decides at random and then applies."""

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
"""A `Batch` or a `Data`; the same comes out as goes in."""


class Augmentation(BaseTransform):
    """An augmentation of all graphs of a batch at once.

    Called on a `Batch` it gives a `Batch` with the same graphs in the same order, each with at least one node; called
    on a `Data`, as `transform=` of a data set, it gives a `Data`. Its input is never changed.

    A subclass keeps its arguments as attributes of their own names and implements `decide`.
    """

    def __call__(
        self,
        data: Graphs,
        generator: torch.Generator | None = None,
        graphs: Tensor | None = None,
    ) -> Graphs:
        """Augment a batch or a single graph.

        Args:
            data: PyG `Batch` or `Data`.
            generator: source of randomness, on the device of `data`; torch's global one by default.
            graphs: mask `[B]` of the graphs to touch; all by default.

        Raises:
            InputTypeError: not a homogeneous PyG graph or batch.
            InputError: an attribute that is needed is missing.
        """
        batch = as_batch(data)
        view: Any = self.augment(batch, generator, graphs)
        if isinstance(data, Batch):
            return view
        out: Any = copy.copy(data)  # what belongs to the whole graph stays as it is
        for key, level in levels(view, Layout.of(view)).items():
            if level != "other":
                out[key] = view[key]  # the only graph of its batch: no index was shifted
        if "num_nodes" in view:
            out.num_nodes = view.num_nodes
        return out

    def forward(self, data: Graphs) -> Graphs:
        """The same as calling it; PyG's transforms have this name."""
        return self(data)

    def augment(self, batch: Batch, generator: torch.Generator | None, graphs: Tensor | None) -> Batch:
        """Decide and apply."""
        return apply(batch, self.decide(batch, generator, graphs))

    @abstractmethod
    def decide(self, batch: Batch, generator: torch.Generator | None = None, graphs: Tensor | None = None) -> Decision:
        """Draw what to change in a batch, without changing it; `graphcl.augment.apply` replays it."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({arguments})"
