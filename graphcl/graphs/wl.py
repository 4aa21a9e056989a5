"""Compute Weisfeiler-Leman colours of nodes, and the feature vectors of two kernels of graphs.

Colours are equal for equal patterns in any data set, on any machine and device.

All numbers are 64-bit integers with wrap-around; `mix` is the finaliser of SplitMix64. With constants K, G and E:

- The first colour of a node is mix(K + the sum over its non-zero features x_f of mix(bits(x_f) + G (f + 1))), where
  bits are those of the value in float64.
- The colour at the next depth is mix(K colour + the sum over incoming edges of mix(colour of the source + label)).
  The label of an edge is mix(E + the first colour of its attributes), or 0 without attributes. Without E, nodes and
  edges would have the same colours, and (source of category i, edge of category j) would equal (source j, edge i).

A colour includes the node's colours at all smaller depths, so colours of different depths differ. Two different
patterns have the same colour with probability about 2^-64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.graphs.segment import nonzero

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""G, the increment of SplitMix64, as a signed number."""
OWN = 0xD1342543DE82EF95 - 2**64
"""K, the factor of a node's own colour."""
OUTGOING = 0x2545F4914F6CDD1D
"""Added to the colours of the targets of outgoing edges."""
EDGE = 0xA0761D6478BD642F - 2**64
"""E, added to the first colours of edges, so that the colours of edges are none of nodes."""


def mix(z: Tensor) -> Tensor:
    """Return the finaliser of SplitMix64, a bijection of 64-bit integers, for each element of `z`.

    Example:
        >>> mix(torch.tensor([1])).tolist()
        [6238072747940578789]
    """
    z = (z ^ _shift(z, 30)).mul_(0xBF58476D1CE4E5B9 - 2**64)
    z = z.bitwise_xor_(_shift(z, 27)).mul_(0x94D049BB133111EB - 2**64)
    return z.bitwise_xor_(_shift(z, 31))


def _shift(z: Tensor, bits: int) -> Tensor:
    """Return `z`, taken as unsigned, shifted to the right."""
    return (z >> bits).bitwise_and_(2 ** (64 - bits) - 1)


def first_colours(values: Tensor, step: float | None = None) -> Tensor:
    """Return the colour `[N]` of each row of features or edge attributes `[N, F]`; zeros do not count.

    Args:
        values: categories, or any numbers; equal rows have equal colours.
        step: width of bins: numbers are divided by it and rounded first. By default, numbers are compared exactly.

    Example:
        >>> one, two, three = first_colours(torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
        >>> bool(one == two), bool(one == three)
        (True, False)
    """
    values = values[:, None] if values.dim() == 1 else values
    if step is not None:
        values = (values.double() / step).round()
    places = nonzero(values.flatten() != 0)
    row, column = places // values.size(1), places % values.size(1)
    bits = values.flatten()[places].double().view(torch.int64)
    total = torch.full((values.size(0),), OWN, device=values.device)
    return mix(total.index_add_(0, row, mix(bits + (column + 1) * GOLDEN)))


def refine(first: Tensor, edge_index: Tensor, depth: int, edges: Tensor | None = None, both: bool = False) -> Tensor:
    """Return the colours of all nodes at each depth, `[depth + 1, N]`.

    Args:
        first: first colours `[N]`, see `first_colours`.
        edge_index: directed edges `[2, E]`; a node sees the sources of its incoming edges.
        depth: number of iterations.
        edges: colour of each edge `[E]`, see `first_colours`.
        both: whether a node also sees the targets of its outgoing edges, and tells them from the sources. This changes
            nothing for graphs that hold each edge in both directions.
    """
    colours = [first]
    source, target = edge_index
    labels = None if edges is None else mix(edges + EDGE)
    ends = [(source, target, 0), (target, source, OUTGOING)] if both else [(source, target, 0)]
    for _ in range(depth):
        before = colours[-1]
        total = before * OWN
        for of, to, salt in ends:
            # without labels, mix the nodes' colours once, not those of every edge
            seen = mix(before + salt)[of] if labels is None else mix(before[of] + labels + salt)
            total.index_add_(0, to, seen)
        colours.append(mix(total))
    return torch.stack(colours)


def numbered(labels: np.ndarray, edge_index: np.ndarray, depth: int) -> Iterator[np.ndarray]:
    """Yield the WL colours of all nodes at each depth from 0 to `depth`, numbered from 0.

    Args:
        labels: first colours `[N]`, any integers.
        edge_index: directed edges `[2, E]`; the colour of a node depends on the sources of its incoming edges.
        depth: number of iterations.

    Example:
        >>> path = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> before, after = numbered(np.zeros(3, int), path, depth=1)
        >>> before.tolist(), bool(after[0] == after[2] != after[1])
        ([0, 0, 0], True)

    Reference: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 2011.
    """
    first = first_colours(torch.from_numpy(labels))
    for colours in refine(first, torch.from_numpy(edge_index), depth):
        yield np.unique(colours.numpy(), return_inverse=True)[1]


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
        colours: colour of each node `[N]`, see `numbered`.
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
