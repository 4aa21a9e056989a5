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
from graphcl.config import Config
from graphcl.datasets.dataset import GraphDataset
from graphcl.evaluate.pca import plot_indices, principal_plane
from graphcl.experiment.build import make_augmentations, training_sampler
from graphcl.graphs.batching import members_of
from graphcl.loaders.loader import make_loader
from graphcl.losses import Loss
from graphcl.losses.engine.base import Row
from graphcl.losses.engine.dense import DensePairs, off_diagonal
from graphcl.losses.engine.unit import normalize
from graphcl.methods import Method
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import losses
from graphcl.report.run_files import EDGES
from graphcl.sparse.explain import survey
from graphcl.sparse.rows import SparseRows
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

    If `pushes` supports the method's loss, the result also has the arrays `push` and `weight`, `[3, 40]`. They hold the
    number of pairs, the sum of their values and the sum of squares in each bin. The method is not changed.

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
    found: Arrays = {}
    seen = 0
    for number, batch in enumerate(loader):
        members = [each.to(device) for each in members_of(batch)]
        views = two_views(members, first, second, generator)
        (ids,) = graph_ids(loader, number, 1, device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
            outcome = method(*views, ids=ids, generator=generator)
        z1, z2, y = outcome.z1[:GRAPHS], outcome.z2[:GRAPHS], members[0].get("y")
        labelled = isinstance(y, Tensor) and y.shape == outcome.z1.shape[:1] and not y.is_floating_point()
        for name, values in _measure(method, z1, z2, y[:GRAPHS] if labelled else None).items():
            found[name] = found[name] + values if name in found else values
        seen += members[0].num_graphs
        if seen >= GRAPHS:
            break
    return found


def report_arrays(
    config: Config, dataset: GraphDataset, method: Method, h: Tensor | SparseRows, seed: int = 0, like: object = None
) -> Arrays:
    """Return the arrays for the report: the result of `snapshot`, and a map of the embeddings `h [n, H]`.

    The map has the arrays `map [m, 2]`, the first two principal components of the m graphs that `plot_indices` selects,
    and `shares [2]`, their explained variance ratios. Training is not affected, as separate generators are used. A
    loader `like` of the data set shares its tensors.
    """
    device = next(method.parameters()).device
    order, views = torch.Generator().manual_seed(_SEED + seed), torch.Generator(device).manual_seed(_SEED + seed)
    sampler = training_sampler(config, dataset, min(config.batch_size, GRAPHS), order)
    loader = make_loader(dataset, device=device, like=like, batch_sampler=sampler)
    found = snapshot(method, loader, *make_augmentations(config), views)
    if isinstance(h, SparseRows):
        return {**found, **_patterns(method.model, dataset)}
    points, shares = principal_plane(h.numpy()[plot_indices(h.size(0))])
    return {**found, "map": points.astype(np.float32), "shares": shares}


def _patterns(model: ContrastiveModel, dataset: GraphDataset) -> Arrays:
    """Return the arrays of the patterns of a sparse encoder, see `survey`; none before training."""
    encoder: Any = copy.deepcopy(model.encoder).cpu()
    if not bool(encoder.b.any()):  # nothing was trained
        return {}
    return {f"patterns_{name}": each for name, each in survey(encoder, make_loader(dataset, 1024)).items()}


def pushes(loss: Loss, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
    r"""Return how strongly a loss pushes negatives away from anchors, relative to an anchor's mean.

    $$p_{ij} = \frac{M\, g_{ij}}{\sum_k g_{ik}}, \qquad g_{ij} = \frac{\partial L}{\partial c_{ij}}$$

    where $p_{ij}$ is the push, $c_{ij}$ the cosine of anchor i with its negative j, L the loss, and M the number of
    negatives per anchor. For a loss with a temperature $\tau$, the weight is the push relative to the push of DCL and
    InfoNCE:

    $$w_{ij} \propto p_{ij} e^{-c_{ij} / \tau}, \qquad \frac1M \sum_j w_{ij} = 1$$

    For the loss `adnce`, these are the weights of Eq. 12 in its paper.

    Args:
        loss: any loss.
        z1: projections of the first views `[N, D]`.
        z2: projections of the second views `[N, D]`.

    Returns:
        Cosines, pushes and weights, each `[A, M]`, for the A anchors with a positive total gradient. The weights are
        None if the loss has no temperature, or if the pushes underflow. The result is None if the loss does
        not compare anchors with negatives by cosine, takes labels, or pushes no negative away.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> cosine, push, weight = pushes(Loss("dcl"), z1, z2)
        >>> push.mean(dim=1).std().item() < 1e-6, bool(torch.allclose(weight, torch.ones_like(weight)))
        (True, True)
    """
    function: Any = losses[loss.name]
    if not hasattr(function, "compare") or loss.accepts("labels"):
        return None
    settings = loss.arguments | {"engine": "dense"}
    if loss.setting("negatives") == "queue":  # a snapshot has no queue, so use the other graphs of the batch
        settings["negatives"] = "cross"
    if loss.learns:
        settings["temperature"] = loss.setting("temperature")
    pairs, arguments, _ = function.compare(z1.detach(), z2.detach(), **settings)
    if not isinstance(pairs, DensePairs) or pairs.comparison.similarity != "cosine":
        return None
    cosine = pairs.negative.double().requires_grad_()
    pairs.row, pairs.positive = Row(cosine), pairs.positive.double()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(function.formula(pairs, **arguments).sum(), cosine)
    total = gradient.sum(dim=1)
    alive = total > 1e-12  # leave out anchors without a push, whose weights would be 0 / 0
    if not bool(alive.any()):
        return None
    cosine, gradient = cosine.detach()[alive], gradient[alive]
    push = gradient / gradient.mean(dim=1, keepdim=True)
    temperature = loss.setting("temperature")
    if temperature is None:
        return cosine, push, None
    weight = push * ((cosine.amax(dim=1, keepdim=True) - cosine) / temperature).exp()
    weight = weight / weight.mean(dim=1, keepdim=True)
    return cosine, push, weight if bool(weight.isfinite().all()) else None


def _measure(method: Method, z1: Tensor, z2: Tensor, y: Tensor | None) -> Arrays:
    """Return the histograms of `snapshot` for one batch; `y [B]` are class labels, or None."""
    cosine = normalize(z1) @ normalize(z2).T
    negative = off_diagonal(cosine)
    found = {"positive": _counts(cosine.diagonal()), "negative": _counts(negative)}
    if y is not None:
        same = off_diagonal(y[:, None] == y)
        found["same_class"], found["negative"] = _counts(negative[same]), _counts(negative[~same])
    if isinstance(method.loss, Loss) and (found_pushes := pushes(method.loss, z1, z2)) is not None:
        at, *values = found_pushes
        for name, value in zip(("push", "weight"), values, strict=True):
            if value is not None:
                found[name] = np.stack([_counts(at, value**power) for power in range(3)])
    return found


def _counts(cosine: Tensor, weights: Tensor | None = None) -> np.ndarray:
    """Return the histogram of cosines over the bins of `EDGES`; rounding may push a cosine out of [-1, 1]."""
    values = cosine.detach().flatten().double().clamp(-1, 1).cpu().numpy()
    return np.histogram(values, EDGES, weights=None if weights is None else weights.flatten().cpu().numpy())[0]
