"""The rows of Weisfeiler-Leman patterns with learned weights, alone and with the trained encoder."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import Kernel
from graphcl.evaluate.folds import embedding
from graphcl.evaluate.graphs.retrieval import cosine_kernel
from graphcl.evaluate.ranking import Similarity
from graphcl.loaders.listed import ListedPairs
from graphcl.loaders.order import EpochBatches
from graphcl.loaders.pairs import EpochPairs
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import infonce
from graphcl.references.rows import Inputs
from graphcl.registry import references
from graphcl.sparse.encoder import WLSparse
from graphcl.sparse.rows import SparseRows

DEPTH, EPOCHS, BATCH, TEMPERATURE, RATE = 3, 4, 128, 0.05, 0.02
"""Depth of the patterns, epochs of which the validation part chooses one, pairs in a batch, temperature, step size."""


WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the dense cosines in `hybrid`, of which the validation part chooses one."""


@references.register(
    "wl_sparse", label="WL-OA, learned weights", needs="columns groups trained", task="search", place="95"
)
def wl_sparse(inputs: Inputs) -> Kernel:
    """Return the cosines of sparse rows of patterns, whose weights are trained by InfoNCE on the training pairs.

    The setting is the number of epochs; 0 is the WL-OA kernel, so the validation part decides whether weights help.
    """
    assert inputs.parts is not None
    return _learned(inputs.dataset, *(tuple(inputs.parts[part].tolist()) for part in ("train", "valid", "test")))


@references.register(
    "hybrid", label="trained + learned weights", needs="columns groups trained", task="search", place="96"
)
def hybrid(inputs: Inputs) -> Kernel:
    """Return w times the cosines of the trained encoder and 1 - w times those of `wl_sparse`; the setting is w."""
    assert inputs.trained is not None
    dense, sparse = cosine_kernel(embedding(inputs.trained[: inputs.dataset.num_rows])), wl_sparse(inputs)

    def mixed(weight: float, train: np.ndarray) -> Similarity:
        one, two = dense.similarity(True, train), sparse.similarity(EPOCHS, train)
        return lambda queries, candidates: weight * one(queries, candidates) + (1 - weight) * two(queries, candidates)

    return Kernel(mixed, WEIGHTS, sparse.n)


@functools.lru_cache(maxsize=1)  # equal for all seeds of a run
def _learned(dataset: GraphDataset, train: tuple[int, ...], *held: tuple[int, ...]) -> Kernel:
    """Train the weights on the pairs in `train`, and return the kernel of the graphs in `held`."""
    encoder, every = WLSparse(dataset.num_features, DEPTH), [*_batches(dataset)]
    group = dataset.groups if dataset.relation is None else dataset.relation.component
    assert group is not None
    encoder.fit(_colours(encoder, every, group, np.array(train)))
    optimiser = torch.optim.Adam(encoder.parameters(), lr=RATE)
    loader = ResidentLoader(dataset, batch_sampler=_pairs(dataset, np.array(train)), targets=dataset.targets)
    graphs = np.sort(np.concatenate(held))
    states = [_rows(encoder, every)[graphs]]
    for _ in range(EPOCHS):
        for one, two in loader:
            z = encoder(*_joined(one, two))
            loss = infonce(*z.split([one.num_graphs, two.num_graphs]), temperature=TEMPERATURE)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        states.append(_rows(encoder, every)[graphs])

    def after(epochs: int, _: np.ndarray) -> Similarity:
        def similarity(queries: Tensor, candidates: Tensor) -> Tensor:
            one, two = (np.searchsorted(graphs, each.numpy()) for each in (queries, candidates))
            return torch.from_numpy((states[epochs][one] @ states[epochs][two].T).toarray())

        return similarity

    return Kernel(after, range(EPOCHS + 1), dataset.num_rows)


def _batches(dataset: GraphDataset) -> Iterator[Batch]:
    """Yield the graphs of a data set, then those of its targets."""
    for each in (dataset, dataset.targets):
        if each is not None:
            yield from ResidentLoader(each, 1024)


def _pairs(dataset: GraphDataset, train: np.ndarray) -> EpochBatches:
    """Return the sampler of the training pairs."""
    sampler: EpochBatches
    order = BATCH, True, torch.Generator().manual_seed(0)
    if dataset.relation is not None:
        sampler = ListedPairs(dataset.relation.with_negatives(None), *order)
    else:
        assert dataset.groups is not None
        sampler = EpochPairs(dataset.groups, *order)
    sampler.restrict_to(torch.from_numpy(train[train < len(dataset)]))
    return sampler


def _colours(
    encoder: WLSparse, batches: list[Batch], group: Tensor, train: np.ndarray
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the colours of the nodes of all training graphs, and the group of each node."""
    known, done = torch.zeros(len(group), dtype=torch.bool), 0
    known[torch.from_numpy(train)] = True
    known &= group >= 0
    for batch in batches:
        graph = batch.batch + done
        done += batch.num_graphs
        of_train = known[graph]
        yield encoder.colours(batch.x, batch.edge_index)[:, of_train], group[graph[of_train]]


def _joined(one: Batch, two: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return `x`, `edge_index` and `batch` of both batches as one."""
    x = torch.cat([one.x, two.x])
    edge_index = torch.cat([one.edge_index, two.edge_index + len(one.x)], dim=1)
    return x, edge_index, torch.cat([one.batch, two.batch + one.num_graphs])


@torch.no_grad()
def _rows(encoder: WLSparse, batches: list[Batch]) -> Any:
    """Return the rows of all graphs as a matrix of SciPy."""
    rows = [encoder.rows(batch.x, batch.edge_index, batch.batch, size=batch.num_graphs) for batch in batches]
    return SparseRows.cat(rows).scipy()[0].tocsr()
