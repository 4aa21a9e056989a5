"""Score the embeddings of a seed.

Scores have rows. A row is one kind of embedding: from the trained encoder, or a reference that needs no training.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.molecules.fingerprints import descriptors, ecfp4, ecfp4_counts
from graphcl.errors import InputError
from graphcl.evaluate import (
    COPY_EVALUATORS,
    EVALUATORS,
    NODE_EVALUATORS,
    SPLIT_EVALUATORS,
    FoldScores,
    majority,
    retrieval,
    usable_folds,
)
from graphcl.experiment.build import restricted
from graphcl.experiment.context import Context, Scores
from graphcl.experiment.copies import WithCopies, score_copies
from graphcl.experiment.kernels import kernel_scores
from graphcl.experiment.split import grouped_parts, training_graphs
from graphcl.graphs.statistics import bag_of_labels, graph_statistics
from graphcl.loaders.loader import make_loader
from graphcl.loaders.order import EpochBatches
from graphcl.models.calibrate import calibrate, has_batchnorm
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.node_gcn import propagate
from graphcl.report.summary import ROWS, TRAINED_ROWS
from graphcl.training.loop import embed

REFERENCES = tuple(row for row in ROWS if row not in TRAINED_ROWS)
"""Rows of scores that need no training."""
EMBED_BATCH = 1024
"""Graphs in a batch when embedding."""
_WITHOUT_ENCODER: dict[str, dict[str, Callable[[Iterable[Batch], int], Tensor]]] = {
    "graphs": {"statistics": graph_statistics, "bag": bag_of_labels},
    "nodes": {
        "raw": lambda whole, _: torch.cat([batch.x for batch in whole]).cpu(),
        "propagated": lambda whole, _: torch.cat([propagate(each.x, each.edge_index) for each in whole]).cpu(),
    },
}
"""Rows of embeddings -> row of scores -> function of a loader of all graphs and `max_degree`, without an encoder."""
_CALIBRATION_SEED = 2**40 + 2**20
"""Added to a run's seed, so that calibration and training shuffle with different random numbers."""


def reference_embeddings(
    config: Config,
    dataset: GraphDataset,
    model: ContrastiveModel,
    whole: WithCopies,
    seed: int,
    rows: Collection[str],
) -> dict[str, Tensor]:
    """Compute reference embeddings, which need no training, and return name -> embeddings `[n, columns]`.

    `whole` is a loader of all graphs in the order of the data set and of m copies, whose embeddings `[m, columns]`
    follow; fingerprints and descriptors have the n rows of the graphs only. `seed` is that of the shuffle for
    calibration. Of the `rows`, those that do not fit are skipped, such as `calibrated` without BatchNorm.
    """
    found = {
        name: reference(whole, config.max_degree)
        for name, reference in _WITHOUT_ENCODER[dataset.rows].items()
        if name in rows and (name != "bag" or "retrieval" in config.eval)
    }
    if "statistics" in found:  # without the columns that are zero for all graphs, but not for all copies
        found["statistics"] = found["statistics"][:, (found["statistics"][: len(dataset)] != 0).any(dim=0)]
    if "untrained" in rows:
        found["untrained"], _ = embed(model, whole)
    if "calibrated" in rows and has_batchnorm(model.encoder):
        found["calibrated"], _ = embed(calibrated(config, dataset, model, seed, whole.graphs), whole)
    smiles = dataset._data.get("smiles")
    if isinstance(smiles, list) and dataset._indices is None and find_spec("rdkit"):
        classical = {"ecfp4": ecfp4, "ecfp4_counts": ecfp4_counts, "descriptors": descriptors}
        found |= {name: describe(tuple(smiles)) for name, describe in classical.items() if name in rows}
    return found


def side_by_side(*embeddings: Tensor) -> Tensor:
    """Return embeddings `[n, columns]` side by side, each column standardised over the graphs, in float64."""
    h = torch.cat(embeddings, dim=1).double()
    deviation = h.std(0, correction=0)
    return (h - h.mean(0)) / deviation.where(deviation > 0, 1)


def calibrated(
    config: Config, dataset: GraphDataset, model: ContrastiveModel, seed: int = 0, like: object = None
) -> ContrastiveModel:
    """Return a copy of `model` with BatchNorm statistics recomputed over all graphs that the run trains on.

    The batches are shuffled. A loader `like` of the data set shares its tensors, see `make_loader`.
    """
    order = torch.Generator().manual_seed(_CALIBRATION_SEED + seed)
    device = next(model.parameters()).device
    # `calibrate` weights all batches equally, so a last batch of a few graphs would distort the statistics
    graphs = training_graphs(config, dataset)
    n = len(dataset) if graphs is None else len(graphs)
    size = math.ceil(n / math.ceil(n / EMBED_BATCH))
    sampler = EpochBatches(len(dataset), size, True, order, config.shuffle_window)
    loader = make_loader(dataset, device=device, like=like, batch_sampler=sampler)
    return calibrate(model, restricted(loader, graphs))


def score_rows(
    config: Config, dataset: GraphDataset, embeddings: Mapping[str, Tensor], seed: int, context: Context
) -> Scores:
    """Score embeddings (row -> `[n, H]`) with every evaluator; return evaluator -> row -> score, {} if none fits.

    `instance` scores the rows `[n + m, H]` that have embeddings of m copies too; other evaluators see the n graphs.
    With the embeddings `statistics` or `raw`, the rows that need no embeddings are scored too: the majority class; for
    retrieval, a random order and kernels. `context` holds the number of threads
    of the evaluators, `workers`, and `on_fold`, which is called after every inner fold.
    """
    if not is_scored(config, dataset) or not embeddings:
        return {}
    found: Scores = {name: {} for name in config.eval}
    y = dataset.y if dataset.scored else None
    for name, scores in found.items():
        if name == "instance":
            copied = {row: h for row, h in embeddings.items() if len(h) > len(dataset)}
            scores |= {row: score_copies(config, dataset, h, seed) for row, h in copied.items()}
            continue
        if embeddings.keys() & _WITHOUT_ENCODER[dataset.rows].keys():
            if name == "retrieval":
                scores["random"] = score(config, name, torch.zeros(dataset.num_rows, 1), y, dataset, seed)
                scores |= kernel_scores(dataset, seed) if dataset.groups is not None else {}
            else:
                scores["majority"] = _majority(config, dataset, name, seed)
        for row, h in embeddings.items():
            report = None if context.on_fold is None else functools.partial(context.on_fold, f"{name}, {row}")
            scores[row] = score(config, name, h[: dataset.num_rows], y, dataset, seed, context.workers, report)
    return found


def is_scored(config: Config, dataset: GraphDataset) -> bool:
    """Return whether embeddings can be scored: by classes, a benchmark's targets, retrieval of groups, or copies."""
    grouped = "retrieval" in config.eval and dataset.groups is not None
    return dataset.scored or grouped or ("instance" in config.eval and dataset.rows == "graphs")


def score(
    config: Config,
    name: str,
    h: Tensor,
    y: Tensor | None,
    dataset: GraphDataset,
    seed: int = 0,
    workers: int | None = None,
    on_fold: Callable[[int, int], object] | None = None,
) -> FoldScores:
    """Return the score of embeddings `h [n, H]` with labels `y` by the evaluator `name`, by the protocol in `config`.

    An evaluator that needs a split uses the split of `dataset`; retrieval of groups, `grouped_parts`.
    """
    evaluator = fitting_evaluators(dataset)[name]
    taken = inspect.signature(evaluator).parameters  # only the SVM takes `scale`
    known = {"on_fold": on_fold, "workers": workers, **config.evaluation.model_dump(), **dataset.protocol()}
    known |= {"group": dataset.groups, "split": grouped_parts(dataset)} if name == "retrieval" else {}
    settings = {key: value for key, value in known.items() if key in taken}
    if on_fold is not None:
        total = config.evaluation.folds * config.evaluation.inner_folds if "folds" in taken else 1
        on_fold(0, total)  # show the row before its first fold ends
    return evaluator(h, y, seed=seed, **settings)


def _majority(config: Config, dataset: GraphDataset, name: str, seed: int) -> FoldScores:
    """Return the score of predicting the largest class; without folds, this is the score of constant embeddings."""
    if name in EVALUATORS:
        folds, inner = config.evaluation.folds, config.evaluation.inner_folds
        return majority(dataset.y, seed=seed, folds=folds, inner_folds=inner)
    # on a split, the linear probe of a constant gives the training part's majority; neighbours would be arbitrary
    probe = "ogb" if name in SPLIT_EVALUATORS else name
    return score(config, probe, torch.zeros(len(dataset.y), 1), dataset.y, dataset, seed, 1)


def fitting_evaluators(dataset: GraphDataset) -> Mapping[str, Callable[..., FoldScores]]:
    """Return the evaluators that fit `dataset`."""
    of_groups = {} if dataset.groups is None else {"retrieval": retrieval}
    if dataset.benchmark is not None:
        return {**SPLIT_EVALUATORS, **of_groups}
    if dataset.rows == "graphs":
        return EVALUATORS if dataset.labelled else of_groups
    usable = {
        name: function
        for name, function in NODE_EVALUATORS.items()
        if dataset.protocol()["split"] is not None or "split" not in inspect.signature(function).parameters
    }
    return {**EVALUATORS, **usable}


def with_usable_evaluation(config: Config, dataset: GraphDataset, copies: bool = False) -> Config:
    """Return the settings with at most as many folds as the smallest class has graphs, with a warning.

    `copies` is whether augmented copies can be drawn, for the evaluator `instance`.

    Raises:
        InputError: an evaluator does not fit the data set.
    """
    if "instance" in config.eval and not (copies and dataset.rows == "graphs"):
        raise InputError("`eval` instance scores whole graphs in graphcl run only; drop it.")
    if not is_scored(config, dataset):
        return config
    if unfit := [name for name in config.eval if name not in {**COPY_EVALUATORS, **fitting_evaluators(dataset)}]:
        if dataset.rows == "nodes":
            why, usual = "has no train_mask, val_mask and test_mask", "random_splits"
        elif dataset.benchmark is not None:
            why, usual = "is scored on its own split", "ogb"
        elif not dataset.labelled:
            why, usual = "has groups but no classes", "retrieval"
        else:
            why, usual = f"has no {'nodes to score' if unfit[0] in NODE_EVALUATORS else 'split of its own'}", "svm"
        raise InputError(f"`eval` {unfit[0]} does not fit {dataset.name}, which {why}; pass --eval {usual}.")
    on_folds = set(config.eval) & set(EVALUATORS) - ({"retrieval"} if dataset.groups is not None else set())
    if not on_folds:
        return config
    folds, inner = usable_folds(dataset.y, config.evaluation.folds, config.evaluation.inner_folds)
    evaluation = config.evaluation.model_copy(update={"folds": folds, "inner_folds": inner})
    return config.model_copy(update={"evaluation": evaluation})
