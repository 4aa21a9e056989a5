"""Compute histograms of cosines and a map of the embeddings, before and after training, for a run's report."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, two_views
from graphcl.experiment.trial import Trial
from graphcl.graphs.batching import members_of
from graphcl.loaders.loader import make_loader
from graphcl.losses.pairs import off_diagonal
from graphcl.losses.rows import normalize
from graphcl.methods import Method
from graphcl.report.figures import plot_indices, principal_plane
from graphcl.report.summary import EDGES
from graphcl.training.epoch import graph_ids

GRAPHS = 512
"""Number of graphs or nodes in a snapshot: enough for smooth histograms, in hundredths of a second."""
Arrays = dict[str, np.ndarray]
_SEED = 2**40
"""Added to a run's seed, so that snapshots and training use different random numbers."""


def snapshot(
    method: Method, loader: Iterable[Batch], first: Augmentation, second: Augmentation, generator: torch.Generator
) -> Arrays:
    """Return histograms of the cosines between the projections of two views.

    Batches are used until at least `GRAPHS` graphs are counted. A pair consists of a first and a second view from the
    same batch. Each histogram `[40]` has the bins of `EDGES` and counts these pairs:

    | name         | pairs                                                                        |
    |--------------|------------------------------------------------------------------------------|
    | `positive`   | views of the same graph (of pairs: of two graphs of the same group)          |
    | `negative`   | views of different graphs; if the graphs are labelled, of different classes  |
    | `same_class` | views of different graphs of the same class; only if the graphs are labelled |

    The method is not changed.

    Args:
        method: method to measure; a copy runs in training mode.
        loader: at least one batch of graphs, labelled or not.
        first: augmentation for the first views.
        second: augmentation for the second views.
        generator: generator for the views, on the method's device, other than that of training.
    """
    method = copy.deepcopy(method).train()
    first, second = method.augmentations(first, second)
    device = next(method.parameters()).device
    histograms: Arrays = {}
    seen = 0
    for number, batch in enumerate(loader):
        members = [member.to(device) for member in members_of(batch)]
        views = two_views(members, first, second, generator)
        (ids,) = graph_ids(loader, number, 1, device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
            outcome = method(*views, ids=ids, generator=generator)
        z1, z2, y = outcome.z1[:GRAPHS], outcome.z2[:GRAPHS], members[0].get("y")
        labelled = isinstance(y, Tensor) and y.shape == outcome.z1.shape[:1] and not y.is_floating_point()
        for name, values in _measure(z1, z2, y[:GRAPHS] if labelled else None).items():
            histograms[name] = histograms[name] + values if name in histograms else values
        seen += members[0].num_graphs
        if seen >= GRAPHS:
            break
    return histograms


def report_arrays(trial: Trial, h: Any) -> Arrays:
    """Return the arrays for the report: the result of `snapshot`, and a map of the embeddings `h [n, H]`.

    The map has the arrays `map [m, 2]`, the first two principal components of the m graphs that `plot_indices` selects,
    and `shares [2]`, their explained variance ratios; targets are left out. Training is not affected, as separate
    generators are used. Embeddings that are no tensor have arrays of their model instead of a map.
    """
    task, device, seed = trial.task, trial.device, _SEED + trial.seed
    order, views = torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed)
    sampler = task.sampler(min(task.config.batch_size, GRAPHS), order)
    loader = make_loader(task.dataset, device=device, like=trial.graphs, batch_sampler=sampler)
    arrays = snapshot(trial.method, loader, *trial.views, views)
    if not isinstance(h, Tensor):
        return arrays | trial.model.report_arrays(make_loader(task.dataset, 1024))
    rows = task.queries(h)
    points, shares = principal_plane(rows.numpy()[plot_indices(len(rows))])
    return {**arrays, "map": points.astype(np.float32), "shares": shares}


def _measure(z1: Tensor, z2: Tensor, y: Tensor | None) -> Arrays:
    """Return the histograms of `snapshot` for one batch; `y [B]` are class labels, or None."""
    cosine = normalize(z1) @ normalize(z2).T
    negative = off_diagonal(cosine)
    counts = {"positive": _counts(cosine.diagonal()), "negative": _counts(negative)}
    if y is not None:
        same = off_diagonal(y[:, None] == y)
        counts["same_class"], counts["negative"] = _counts(negative[same]), _counts(negative[~same])
    return counts


def _counts(cosine: Tensor) -> np.ndarray:
    """Return the histogram of cosines over the bins of `EDGES`; rounding may push a cosine out of [-1, 1]."""
    return np.histogram(cosine.flatten().double().clamp(-1, 1).cpu().numpy(), EDGES)[0]
