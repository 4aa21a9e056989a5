"""Count isomorphic graphs: copies of test graphs in the training part, and copies with another label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graphcl.datasets.dataset import GraphDataset
from graphcl.graphs.wl import graph_numbers, numbered
from graphcl.references.wl import first_colours

DEPTH = 10
"""Depth of the colours by which graphs are compared; features and edges, not attributes of edges."""


@dataclass(frozen=True)
class Copies:
    """Numbers `[n]` that graphs share which the WL test does not tell apart.

    Attributes:
        number: number of each graph.
        ceiling: largest accuracy in percent of any function that is equal on copies; None without classes.
        conflicting: fraction of the graphs that have a copy of another class.
    """

    number: np.ndarray
    ceiling: float | None = None
    conflicting: float = 0.0

    @property
    def repeated(self) -> float:
        """Fraction of the graphs that have a copy."""
        return float(np.mean(np.bincount(self.number)[self.number] > 1))

    def in_training(self, tested: tuple[np.ndarray, ...], train: np.ndarray | None = None) -> np.ndarray:
        """Return a mask `[n]` of the test graphs with a copy among the training graphs.

        The training graphs of a fold are those of all others, or `train`.
        """
        number, found = self.number, np.zeros(len(self.number), bool)
        size = number.max() + 1
        every = np.bincount(number if train is None else number[train], minlength=size)
        for rows in tested:
            own = np.bincount(number[rows], minlength=size) if train is None else 0
            found[rows] = (every - own)[number[rows]] > 0
        return found


def count_copies(dataset: GraphDataset) -> Copies:
    """Return which graphs of a data set, and of its targets, are copies of each other; classes without targets only."""
    labels, edge_index, graph = first_colours(dataset, torch.arange(dataset.num_rows))
    colours, count = labels, 0
    for colours in numbered(labels, edge_index, DEPTH):
        if colours.max() + 1 == count:
            break
        count = colours.max() + 1
    number = graph_numbers(colours, graph)
    if not dataset.labelled or dataset.targets is not None:
        return Copies(number)
    table = np.zeros((number.max() + 1, dataset.num_classes), np.int64)
    np.add.at(table, (number, np.asarray(dataset.y).reshape(-1)), 1)
    conflicting = table[(table > 0).sum(1) > 1].sum() / len(number)
    return Copies(number, 100 * float(table.max(1).sum() / len(number)), float(conflicting))
