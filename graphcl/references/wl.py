"""The rows of Weisfeiler-Leman kernels."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import Kernel
from graphcl.evaluate.ranking import Similarity
from graphcl.graphs.wl import histogram, numbered, unary
from graphcl.loaders.loader import make_loader
from graphcl.references.rows import Inputs
from graphcl.registry import references

DEPTH = 5
"""Largest depth of the colours; the validation part chooses one from 0."""


@references.register("wl", label="WL kernel", needs="columns groups", task="search", after="calibrated")
def wl(inputs: Inputs) -> Kernel:
    r"""Return the WL subtree kernel of the graphs in the validation and the test part.

    $$s(G_i, G_j) = \frac{k(G_i, G_j)}{\sqrt{k(G_i, G_i) \, k(G_j, G_j)}}$$

    where k is the kernel up to a depth, see `graphcl.graphs.wl`. The first colour of a node is its row of features. The
    validation part, or the inner folds, choose the depth. Edge attributes are not used.
    """
    return _kernels(inputs.dataset, *_held_out(inputs))[0]


@references.register("wl_oa", label="WL-OA kernel", needs="columns groups", task="search", after="wl")
def wl_oa(inputs: Inputs) -> Kernel:
    """Return the WL optimal assignment kernel, for the rest like `wl`."""
    return _kernels(inputs.dataset, *_held_out(inputs))[1]


def _held_out(inputs: Inputs) -> tuple[int, ...]:
    if inputs.parts is None:  # scored on folds
        return tuple(range(inputs.dataset.num_rows))
    return tuple(np.sort(np.concatenate([inputs.parts["valid"], inputs.parts["test"]])).tolist())


@functools.lru_cache(maxsize=1)  # equal for all seeds of a run
def _kernels(dataset: GraphDataset, *graphs: int) -> tuple[Kernel, Kernel]:
    """Return the WL and the WL-OA kernel of the `graphs` with these indices."""
    place = np.full(dataset.num_rows, -1)
    place[list(graphs)] = np.arange(len(graphs))
    labels, edge_index, batch = first_colours(dataset, torch.tensor(graphs))
    counts, largest = list[Any](), -1
    for colours in numbered(labels, edge_index, DEPTH):
        if colours.max() == largest:  # deeper ones would be equal
            break
        largest = colours.max()
        counts.append(histogram(colours, batch))
    return kernel(counts, place), kernel([unary(columns) for columns in counts], place)


def kernel(columns: list[Any], place: np.ndarray) -> Kernel:
    """Return the normalised kernel of graphs; its setting is the depth.

    Args:
        columns: sparse matrix `[graphs, columns]` of each depth, whose rows have the kernel as inner product.
        place: row of each graph of the data set in these matrices `[n]`.
    """
    from scipy.sparse import hstack

    @functools.lru_cache(maxsize=1)
    def up_to(depth: int) -> tuple[Any, np.ndarray]:
        joined = hstack(columns[: depth + 1], format="csr")
        return joined, np.sqrt(joined.multiply(joined).sum(axis=1).astype(float))

    def of_depth(depth: int, train: np.ndarray) -> Similarity:
        joined, norm = up_to(depth)

        def similarity(queries: Tensor, candidates: Tensor) -> Tensor:
            one, two = place[queries.numpy()], place[candidates.numpy()]
            return torch.from_numpy((joined[one] @ joined[two].T).toarray() / np.outer(norm[one], norm[two]))

        return similarity

    return Kernel(of_depth, range(len(columns)), len(place))


def first_colours(dataset: GraphDataset, graphs: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first colour `[N]` of the nodes of the rows `graphs`, the edges `[2, E]`, and each node's graph `[N]`.

    Two nodes have the same first colour if their rows of `x` are equal.
    """
    loaders, start = [], 0
    for side in dataset.sides:
        rows = graphs[(graphs >= start) & (graphs < start + len(side))] - start
        start += len(side)
        if len(rows):
            loader = make_loader(side, 1024)
            loader.batch_sampler.restrict_to(rows)
            loaders.append(loader)
    colour_of: dict[bytes, int] = {}
    labels, edges, of_graph = [], [], []
    first = done = 0
    for batch in itertools.chain(*loaders):
        values, number = np.unique(batch.x.numpy(), axis=0, return_inverse=True)
        numbers = [colour_of.setdefault(row.tobytes(), len(colour_of)) for row in values]
        labels.append(np.asarray(numbers)[number.reshape(-1)])
        edges.append(batch.edge_index.numpy() + first)
        of_graph.append(batch.batch.numpy() + done)
        first, done = first + batch.num_nodes, done + batch.num_graphs
    return np.concatenate(labels), np.concatenate(edges, axis=1), np.concatenate(of_graph)
