"""Convert adjacency matrices of NumPy and SciPy to PyG's `Data`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphcl.errors import InputError


def is_matrix(graph: object) -> bool:
    """Return True if `graph` is a matrix of NumPy or a sparse one of SciPy, without importing SciPy."""
    sparse = sys.modules.get("scipy.sparse")
    return (isinstance(graph, np.ndarray) and graph.ndim == 2) or (sparse is not None and sparse.issparse(graph))


def convert_matrices(graphs: Iterable[Any], what: str) -> list[Any]:
    """Return `graphs` with each adjacency matrix converted to `Data`; entry (i, j) is an edge from i to j if not zero.

    Values become `edge_weight`, unless all values of all matrices are 1.

    Raises:
        InputError: a matrix is not square, or does not hold real numbers.
    """
    result = list[Any]()
    for number, graph in enumerate(graphs):
        if not is_matrix(graph):
            result.append(graph)
            continue
        if graph.shape[0] != graph.shape[1] or graph.dtype.kind not in "biuf":
            got = f"{list(graph.shape)} of {graph.dtype}"
            raise InputError(f"{what}: graph {number} must be a square adjacency matrix of real numbers, got {got}.")
        if isinstance(graph, np.ndarray):
            ends = np.nonzero(graph)
            values = np.asarray(graph)[ends]
        else:
            graph = graph.tocsr(copy=True)
            graph.sum_duplicates()
            graph.eliminate_zeros()
            graph = graph.tocoo()
            ends, values = (graph.row, graph.col), graph.data
        edges = torch.from_numpy(np.stack(ends).astype(np.int64))
        weight = torch.from_numpy(values.astype(np.float64))
        result.append(Data(edge_index=edges, edge_weight=weight, num_nodes=graph.shape[0]))
    made = [data for data, graph in zip(result, graphs, strict=True) if data is not graph]
    if all(bool((data.edge_weight == 1).all()) for data in made):
        for data in made:
            del data.edge_weight
    return result
