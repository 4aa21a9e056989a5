"""What a method's similarities are at a moment, kept as histograms: what a run's report is drawn from."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.augment import Augmentation, two_views
from graphcl.losses import Loss
from graphcl.losses.engine.comparison import Row
from graphcl.losses.engine.dense import DensePairs, off_diagonal
from graphcl.losses.engine.pairs import normalize
from graphcl.methods import Method
from graphcl.registry import losses
from graphcl.training.stream import graph_ids

EDGES = np.linspace(-1, 1, 41)
"""Where the bins of a cosine begin and end."""
GRAPHS = 512
"""How many graphs are looked at: enough for smooth histograms, in a hundredth of a second or a few."""
Arrays = dict[str, np.ndarray]


def snapshot(
    method: Method,
    loader: Iterable[Batch],
    first: Augmentation,
    second: Augmentation,
    generator: torch.Generator,
) -> Arrays:
    """Histograms of the cosines of both views' projections, as the loss meets them; the method is left as it was.

    | name         | counts over the bins of `EDGES`, `[40]`                                       |
    |--------------|-------------------------------------------------------------------------------|
    | `positive`   | a graph's first view against its second                                       |
    | `negative`   | its first view against other graphs' second, of another class if there are any |
    | `same_class` | the same against graphs of its own class; only of labelled graphs             |

    And where the loss weighs negatives by their cosine (see `pushes`), `push` and `weight`: the number of pairs, the
    sum over them and the sum of squares, `[3, 40]`. Batches are taken until `GRAPHS` graphs are seen.

    Args:
        method: as it is trained; a copy is asked, in training mode.
        loader: batches of labelled or unlabelled graphs, at least one.
        first: augmentation that makes the first view.
        second: augmentation that makes the second view.
        generator: source of the views' randomness, on the method's device; not the one that training draws from.
    """
    method = copy.deepcopy(method).train()
    first, second = method.augmentations(first, second)
    device = next(method.parameters()).device
    found: Arrays = {}
    seen = 0
    for number, batch in enumerate(loader):
        views = two_views(batch.to(device), first, second, generator)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
            outcome = method(*views, ids=graph_ids(loader, number, device), generator=generator)
        y = batch.get("y")
        labels = y if isinstance(y, Tensor) and y.shape == (batch.num_graphs,) and not y.is_floating_point() else None
        for name, values in _measure(method, outcome.z1, outcome.z2, labels).items():
            found[name] = found[name] + values if name in found else values
        seen += batch.num_graphs
        if seen >= GRAPHS:
            break
    return found


def pushes(loss: Loss, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
    r"""How hard a loss pushes each negative away, by its cosine: $p_{ij} = M\, g_{ij} / \sum_k g_{ik}$, mean 1.

    $g_{ij} = \partial L / \partial c_{ij}$ is the gradient on the cosine of anchor i with its negative j, one of M.
    Where the loss has a temperature, the weight is what sets this apart from DCL's and InfoNCE's own push:

    $$w_{ij} \propto p_{ij} e^{-c_{ij} / \tau}, \qquad \frac1M \sum_j w_{ij} = 1$$

    For `adnce` these are the weights of its Eq. 12.

    Args:
        loss: any.
        z1: projections of the first view `[N, D]`.
        z2: of the second view.

    Returns:
        Cosines, pushes and weights, each `[A, M]`; no weights for a loss without a temperature, or with one so small
        that pushes underflow; nothing for one that does not compare anchors with negatives by their cosine, takes
        labels, or pushes no negative away.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> cosine, push, weight = pushes(Loss("dcl"), z1, z2)
        >>> push.mean(dim=1).std().item() < 1e-6, bool(torch.allclose(weight, torch.ones_like(weight)))
        (True, True)
    """
    function: Any = losses[loss.name]
    if not hasattr(function, "compare") or loss.accepts("labels"):
        return None
    pairs, arguments, _ = function.compare(z1.detach(), z2.detach(), **loss.arguments | {"engine": "dense"})
    if not isinstance(pairs, DensePairs) or pairs.comparison.similarity != "cosine":
        return None
    cosine = pairs.negative.double().requires_grad_()
    pairs.row, pairs.positive = Row(cosine), pairs.positive.double()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(function.terms(pairs, **arguments).sum(), cosine)
    total = gradient.sum(dim=1)
    alive = total > 1e-12  # an anchor whose push is clipped away says nothing of weights
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
    """The histograms of a batch."""
    cosine = normalize(z1) @ normalize(z2).T
    negative = off_diagonal(cosine)
    found = {"positive": _counts(cosine.diagonal()), "negative": _counts(negative)}
    if y is not None:
        same = off_diagonal(y[:, None] == y)
        found["same_class"], found["negative"] = _counts(negative[same]), _counts(negative[~same])
    weighed = pushes(method.loss, z1, z2) if isinstance(method.loss, Loss) else None
    if weighed is not None:
        at, *values = weighed
        for name, value in zip(("push", "weight"), values, strict=True):
            if value is not None:
                found[name] = np.stack([_counts(at, value**power) for power in range(3)])
    return found


def _counts(cosine: Tensor, weights: Tensor | None = None) -> np.ndarray:
    """The histogram of cosines over the bins of `EDGES`; rounding beyond -1 and 1 is let in."""
    values = cosine.detach().flatten().double().clamp(-1, 1).cpu().numpy()
    return np.histogram(values, EDGES, weights=None if weights is None else weights.flatten().cpu().numpy())[0]
