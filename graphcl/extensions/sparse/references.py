"""The rows of Weisfeiler-Leman patterns with learned weights, alone and with the trained encoder."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate import Kernel
from graphcl.evaluate.folds import embedding
from graphcl.evaluate.graphs.retrieval import cosine_kernel, sparse_kernel
from graphcl.evaluate.ranking import Similarity
from graphcl.extensions.sparse.encoder import SparseModel, WLSparse
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochBatches, EpochPairs, ListedPairs
from graphcl.losses import Loss
from graphcl.methods import TwoViews
from graphcl.references.rows import Inputs
from graphcl.registry import references
from graphcl.training.loop import embed, train

DEPTH, EPOCHS, BATCH, TEMPERATURE, RATE = 3, 4, 128, 0.05, 0.02
"""Depth of the patterns, epochs of which the validation part chooses one, pairs in a batch, temperature, step size."""
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the dense cosines in `hybrid`, of which the validation part chooses one."""


@references.register("wl_sparse", label="WL-OA, learned weights", needs="columns dense groups trained", task="search")
def wl_sparse(inputs: Inputs) -> Kernel:
    """Return the cosines of sparse rows of patterns, whose weights are trained by InfoNCE on the training pairs.

    The setting is the number of epochs; 0 is the WL-OA kernel, so the validation part decides whether weights help.
    With the encoder `wl_sparse`, the trained row takes this row's place.
    """
    assert inputs.parts is not None
    return _learned(inputs.dataset, *(tuple(inputs.parts[part].tolist()) for part in ("train", "valid", "test")))


@references.register(
    "hybrid", label="trained + learned weights", needs="columns dense groups trained", task="search", after="wl_sparse"
)
def hybrid(inputs: Inputs) -> Kernel:
    """Return w times the cosines of the trained encoder and 1 - w times those of `wl_sparse`; the setting is w."""
    trained: Any = inputs.trained
    dense, sparse = cosine_kernel(embedding(trained[: inputs.dataset.num_rows])), wl_sparse(inputs)

    def mixed(weight: float, train: np.ndarray) -> Similarity:
        one, two = dense.similarity(True, train), sparse.similarity(EPOCHS, train)
        return lambda queries, candidates: weight * one(queries, candidates) + (1 - weight) * two(queries, candidates)

    return Kernel(mixed, WEIGHTS, sparse.n)


@functools.lru_cache(maxsize=1)  # equal for all seeds of a run
def _learned(dataset: GraphDataset, training: tuple[int, ...], *held: tuple[int, ...]) -> Kernel:
    """Train the weights on the pairs in `training`, and return the kernel of the graphs in `held`."""
    model = SparseModel(WLSparse(dataset.num_features, DEPTH), projector="none")
    batches = [batch for side in dataset.sides for batch in ResidentLoader(side, 1024)]
    group = dataset.components
    assert group is not None
    trained = torch.zeros(len(group), dtype=torch.bool).index_fill(0, torch.tensor(training), True)
    model.fit(batches, group.where(trained, -1))
    loader = ResidentLoader(dataset, batch_sampler=_pairs(dataset, np.array(training)), targets=dataset.targets)
    graphs = np.sort(np.concatenate(held))
    states = [_rows(model, batches, graphs)]
    train(
        TwoViews(model, Loss("infonce", temperature=TEMPERATURE)),
        loader,
        "identity",
        "identity",
        epochs=EPOCHS,
        lr=RATE,
        callbacks=[lambda _: states.append(_rows(model, batches, graphs))],
    )
    place = np.full(dataset.num_rows, -1)
    place[graphs] = np.arange(len(graphs))
    return sparse_kernel(states, place)


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


def _rows(model: SparseModel, batches: list[Any], graphs: np.ndarray) -> Any:
    """Return the rows of some graphs as a matrix of SciPy."""
    rows: Any = embed(model, batches)[0]
    return rows.scipy()[0][graphs]
