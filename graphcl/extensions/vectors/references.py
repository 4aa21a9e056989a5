"""The rows without training of graphs and vectors: ridge regression from one to the other, and nearest neighbours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import Kernel
from graphcl.evaluate.ranking import Similarity
from graphcl.graphs.wl import histogram, numbered
from graphcl.references.rows import Inputs
from graphcl.references.wl import first_colours
from graphcl.registry import references

DEPTH = 3
"""Depth of the colours that are counted."""
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Penalties of the ridge regression, as multiples of the mean square of a centred training row."""
MOST = 3000
"""Largest number of training pairs of a regression, whose time grows with its cube; of more, a random part is used."""
NEEDS, MOLECULES = "vectors groups", "vectors groups query.smiles module.rdkit"
Weights = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]
"""Function of the inner products of training rows `[P, P]` and of held-out rows with these `[m, P]`, and of a setting:
the weights `[m, P]` of the training pairs in the prediction for each held-out row."""


@references.register("ridge_wl", label="ridge, WL counts", needs=NEEDS, task="search", after="calibrated")
def ridge_wl(inputs: Inputs) -> Kernel:
    r"""Return cosines of graphs with what ridge regression predicts from vectors, or the other way round.

    $$\hat Y = K_{\cdot t} (K_{tt} + \lambda I)^{-1} Y_t$$

    where K are inner products of centred vectors, t the training pairs, and $Y_t$ the centred log(1 + count) of the WL
    colours of their graphs. A graph is compared with the prediction for each vector by the cosine; backwards, K is of
    graphs and Y of vectors. The validation part chooses the direction, $\lambda$, and whether columns of vectors are
    standardised. Rows of a training pair that repeats count repeatedly.
    """
    return _kernels(inputs, _wl_counts)[0]


@references.register("nearest_wl", label="nearest neighbour, WL counts", needs=NEEDS, task="search", after="ridge_wl")
def nearest_wl(inputs: Inputs) -> Kernel:
    """Return cosines of graphs with the graph of the nearest training vector, or the other way round.

    The validation part chooses as in `ridge_wl`.
    """
    return _kernels(inputs, _wl_counts)[1]


@references.register("ridge_ecfp4", label="ridge, ECFP4 counts", needs=MOLECULES, task="search", after="nearest_wl")
def ridge_ecfp4(inputs: Inputs) -> Kernel:
    """Return the kernel of `ridge_wl` with ECFP4 counts of molecules."""
    return _kernels(inputs, _ecfp4_counts)[0]


@references.register(
    "nearest_ecfp4", label="nearest neighbour, ECFP4 counts", needs=MOLECULES, task="search", after="ridge_ecfp4"
)
def nearest_ecfp4(inputs: Inputs) -> Kernel:
    """Return the kernel of `nearest_wl` with ECFP4 counts of molecules."""
    return _kernels(inputs, _ecfp4_counts)[1]


def _wl_counts(dataset: GraphDataset) -> Any:
    """Return log(1 + count) of the WL colours of each graph, a sparse matrix."""
    from scipy.sparse import hstack

    labels, edge_index, batch = first_colours(dataset, torch.arange(len(dataset)))
    return hstack([histogram(colours, batch) for colours in numbered(labels, edge_index, DEPTH)], "csr").log1p()


def _ecfp4_counts(dataset: GraphDataset) -> Any:
    """Return log(1 + count) of the environments in each molecule, a sparse matrix."""
    from scipy.sparse import csr_array

    from graphcl.extensions.molecules.encoder import ecfp4_counts

    smiles = tuple(dataset._data.smiles[index] for index in dataset.indices())
    return csr_array(ecfp4_counts(smiles).double().numpy())


class _Side:
    """Rows `[n, C]` of one side, an array or a sparse matrix: of the training pairs, and those that are held out.

    Attributes:
        train: inner products of the training rows from their mean `[P, P]`.
        both: inner products of the held-out rows and the training rows from this mean `[m, P]`.
        lengths: norm of each held-out row from this mean `[m]`.
    """

    def __init__(self, rows: Any, train: np.ndarray, held: np.ndarray) -> None:
        self._rows, self._train, self._held = rows, train, held
        self._mean = np.asarray(rows[train].mean(0)).ravel()

    @functools.cached_property
    def train(self) -> np.ndarray:
        return self._products(self._rows[self._train], self._rows[self._train])

    @functools.cached_property
    def both(self) -> np.ndarray:
        return self._products(self._rows[self._held], self._rows[self._train])

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        held = self._rows[self._held]
        squares = (held * held).sum(1) if isinstance(held, np.ndarray) else held.multiply(held).sum(1)
        return _root(np.asarray(squares).ravel() - 2 * (held @ self._mean) + self._mean @ self._mean)

    def _products(self, one: Any, two: Any) -> np.ndarray:
        inner = one @ two.T
        dense: np.ndarray = inner if isinstance(inner, np.ndarray) else inner.toarray()
        return dense - (one @ self._mean)[:, None] - two @ self._mean + self._mean @ self._mean


def _kernels(inputs: Inputs, counts: Callable[[GraphDataset], Any]) -> tuple[Kernel, Kernel]:
    assert inputs.parts is not None
    parts = (tuple(inputs.parts[part].tolist()) for part in ("train", "valid", "test"))
    return _both_kernels(inputs.dataset, counts, *parts)


@functools.lru_cache(maxsize=2)  # equal for all seeds of a run
def _both_kernels(
    dataset: GraphDataset, counts: Callable[[GraphDataset], Any], train: tuple[int, ...], *held: tuple[int, ...]
) -> tuple[Kernel, Kernel]:
    """Return the kernels of ridge regression and of nearest neighbours."""
    n, targets, relation = len(dataset), dataset.targets, dataset.relation
    assert targets is not None
    assert relation is not None
    trained = np.isin(np.arange(dataset.num_rows), train)
    pairs = relation.nodes.numpy()
    pairs = pairs[:, trained[pairs].all(0)]
    if pairs.shape[1] > MOST:
        pairs = pairs[:, np.random.default_rng(0).choice(pairs.shape[1], MOST, replace=False)]
    rows = np.sort(np.concatenate(held))
    graphs, vectors = rows[rows < n], rows[rows >= n]
    standardised = targets._data.x.double().nan_to_num().numpy()
    deviation = np.array(targets.scales["x"][1])
    of_graphs = _Side(counts(dataset), pairs[0], graphs)
    of_vectors = [_Side(values, pairs[1] - n, vectors - n) for values in (standardised * deviation, standardised)]
    place = np.full(dataset.num_rows, -1)
    place[graphs], place[vectors] = np.arange(len(graphs)), np.arange(len(vectors))

    def kernel(weights: Weights, settings: Sequence[Any]) -> Kernel:
        choices = list(product((False, True), of_vectors, settings))

        @functools.lru_cache(maxsize=1)
        def fitted(choice: int) -> tuple[np.ndarray, np.ndarray]:
            back, side, setting = choices[choice]
            source, target = (of_graphs, side) if back else (side, of_graphs)
            predicted = weights(source.train, source.both, setting)
            norm = _root(((predicted @ target.train) * predicted).sum(1))
            return predicted / norm[:, None], target.both.T / target.lengths

        def of(choice: int, _: np.ndarray) -> Similarity:
            back = choices[choice][0]

            def similarity(queries: Tensor, candidates: Tensor) -> Tensor:
                predicted, others = fitted(choice)
                from_source = bool(queries[0] < n) == back
                one, two = (queries, candidates) if from_source else (candidates, queries)
                scores = predicted[place[one.numpy()]] @ others[:, place[two.numpy()]]
                return torch.from_numpy(scores if from_source else scores.T)

            return similarity

        return Kernel(of, range(len(choices)), dataset.num_rows)

    return kernel(_ridge, PENALTIES), kernel(_nearest, (None,))


def _ridge(train: np.ndarray, held: np.ndarray, penalty: float) -> np.ndarray:
    from scipy.linalg import cho_factor, cho_solve

    shift = penalty * np.trace(train) / len(train) + np.finfo(float).tiny
    solved: np.ndarray = cho_solve(cho_factor(train + shift * np.eye(len(train))), held.T).T
    return solved


def _nearest(train: np.ndarray, held: np.ndarray, _: None) -> np.ndarray:
    weights = np.zeros_like(held)
    weights[np.arange(len(held)), (held / _root(np.diag(train))).argmax(1)] = 1
    return weights


def _root(squares: np.ndarray) -> np.ndarray:
    """Return the square root; 1 where the square is 0 or rounding, so that a row of zeros has cosine 0."""
    return np.sqrt(np.where(squares > 1e-12 * squares.max(initial=0), squares, 1))
