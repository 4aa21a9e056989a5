"""Compute Weisfeiler-Leman colours of nodes and the feature vectors of two kernels of graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from graphcl.graphs import colours as hashed


def refine(labels: np.ndarray, edge_index: np.ndarray, depth: int) -> Iterator[np.ndarray]:
    """Yield the WL colours of all nodes at each depth from 0 to `depth`, numbered from 0.

    Args:
        labels: first colours `[N]`, any integers.
        edge_index: directed edges `[2, E]`; the colour of a node depends on the sources of its incoming edges.
        depth: number of iterations.

    Example:
        >>> path = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> before, after = refine(np.zeros(3, int), path, depth=1)
        >>> before.tolist(), bool(after[0] == after[2] != after[1])
        ([0, 0, 0], True)

    Reference: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011.
    """
    first = hashed.first_colours(torch.from_numpy(labels))
    for each in hashed.refine(first, torch.from_numpy(edge_index), depth):
        yield np.unique(each.numpy(), return_inverse=True)[1]


def histogram(colours: np.ndarray, graph: np.ndarray) -> Any:
    """Return how often each graph has each colour, a sparse integer matrix `[graphs, colours]`.

    The inner product of two rows, summed over depths, is the WL subtree kernel.

    Args:
        colours: colour of each node `[N]`.
        graph: graph of each node `[N]`.
    """
    from scipy.sparse import csr_array

    counts = csr_array((np.ones(len(colours), np.int64), (graph, colours)))
    counts.sum_duplicates()
    return counts


def graph_numbers(colours: np.ndarray, graph: np.ndarray) -> np.ndarray:
    """Return a number of each graph `[graphs]`: equal for graphs with equally many nodes of each colour.

    With colours of isomorphic graphs, these have the same number. Graphs of the same number are not told apart by the
    WL test of the depth of the colours, so they are isomorphic with few exceptions, such as regular graphs.

    Args:
        colours: colour of each node `[N]`, see `refine`.
        graph: graph of each node `[N]`.

    Example:
        >>> graph_numbers(np.array([0, 1, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])).tolist()
        [1, 1, 0]
    """
    random = np.random.default_rng(1).integers(2**64, size=(colours.max() + 1, 2), dtype=np.uint64)
    sums = np.zeros((graph.max() + 1, 2), np.uint64)
    np.add.at(sums, graph, random[colours])
    return np.unique(sums, axis=0, return_inverse=True)[1].reshape(-1)


def unary(counts: Any) -> Any:
    """Return the unary expansion of a sparse matrix: column (c, t), t >= 1, is 1 where `counts[i, c] >= t`.

    The inner product of two rows of it is the intersection of the two histograms, the sum over c of the minimum.
    Summed over depths, it is the WL optimal assignment kernel.

    Reference: Kriege et al., "On Valid Optimal Assignment Kernels and Applications to Graph Classification", NIPS 2016.
    """
    from scipy.sparse import csr_array

    ends = np.concatenate([[0], np.cumsum(counts.data)])
    first = np.concatenate([[0], np.cumsum(counts.max(axis=0).toarray())])
    step = np.arange(ends[-1]) - np.repeat(ends[:-1], counts.data)
    columns = np.repeat(first[counts.indices], counts.data) + step
    return csr_array((np.ones(ends[-1], np.int64), columns, ends[counts.indptr]), shape=(counts.shape[0], first[-1]))
