"""Score retrieval by Weisfeiler-Leman kernels, rows that need no training."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import FoldScores
from graphcl.evaluate.graphs.retrieval import retrieval_on_parts
from graphcl.evaluate.ranking import Similarity
from graphcl.experiment.split import grouped_parts
from graphcl.graphs.wl import histogram, refine, unary
from graphcl.loaders.loader import make_loader

DEPTH = 5
"""Largest depth of the colours; the validation part chooses one from 0."""


def kernel_scores(dataset: GraphDataset, seed: int) -> dict[str, FoldScores]:
    r"""Return row -> scores of retrieval by the kernels `wl` and `wl_oa`, for a data set with groups.

    $$s(G_i, G_j) = \frac{k(G_i, G_j)}{\sqrt{k(G_i, G_i) \, k(G_j, G_j)}}$$

    where k is the WL subtree kernel or the WL optimal assignment kernel up to a depth, see `graphcl.graphs.wl`. The
    first colour of a node is its row of features. The validation part chooses the depth. Edge attributes are not used.
    """
    return {name: dataclasses.replace(score, seed=seed) for name, score in _scores(dataset).items()}


@functools.lru_cache(maxsize=1)  # equal for all seeds of a run
def _scores(dataset: GraphDataset) -> dict[str, FoldScores]:
    parts, group = grouped_parts(dataset), dataset.groups
    assert parts is not None
    assert group is not None
    graphs = np.sort(np.concatenate([parts["valid"], parts["test"]]))
    place = np.full(len(dataset), -1)
    place[graphs] = np.arange(len(graphs))
    labels, edge_index, batch = first_colours(dataset, torch.from_numpy(graphs))
    counts = [histogram(colours, batch) for colours in refine(labels, edge_index, DEPTH)]
    rows = {"wl": counts, "wl_oa": [unary(each) for each in counts]}
    return {
        name: retrieval_on_parts(kernel(columns, place), range(DEPTH + 1), group, parts)
        for name, columns in rows.items()
    }


def kernel(columns: list[Any], place: np.ndarray) -> Any:
    """Return the function from a depth, and training rows that it ignores, to the normalised kernel of graphs.

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

    return of_depth


def first_colours(dataset: GraphDataset, graphs: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first colour `[N]` of the nodes of `graphs`, their edges `[2, E]`, and the graph of each node `[N]`.

    Two nodes have the same first colour if their rows of `x` are equal.
    """
    loader = make_loader(dataset, 1024)
    loader.batch_sampler.restrict_to(graphs)
    known: dict[bytes, int] = {}
    labels, edges, batches = [], [], []
    first = done = 0
    for batch in loader:
        rows, number = np.unique(batch.x.numpy(), axis=0, return_inverse=True)
        numbers = [known.setdefault(row.tobytes(), len(known)) for row in rows]
        labels.append(np.asarray(numbers)[number.reshape(-1)])
        edges.append(batch.edge_index.numpy() + first)
        batches.append(batch.batch.numpy() + done)
        first, done = first + batch.num_nodes, done + batch.num_graphs
    return np.concatenate(labels), np.concatenate(edges, axis=1), np.concatenate(batches)
