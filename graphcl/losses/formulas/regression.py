"""BYOL and SimSiam: regression of the other view's projection, without negatives."""

import torch
from torch import Tensor

from graphcl.losses.loss import Reduction, reduce
from graphcl.losses.rows import check_views, check_weight, normalize
from graphcl.registry import losses


@losses.register("byol", method="byol", repels="no")
def byol(z1: Tensor, z2: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    r"""Compute BYOL: squared distance between normalised predictions and normalised targets; targets get no gradient.

    $$L_i = \Big\lVert \frac{p_i}{\lVert p_i \rVert} - \frac{t_i}{\lVert t_i \rVert} \Big\rVert^2
    = 2 - 2 \cos(p_i, t_i)$$

    Here p_i is the prediction and t_i the target projection of graph i. There are no negatives; the predictor and the
    momentum target encoder of `--method byol` prevent a collapse. The method also averages over the two directions.

    Args:
        z1: predictions p from the first view, `[N, D]`.
        z2: target projections t of the second view, `[N, D]`; no gradient.
        weight: weight of each graph in the mean, `[N]`, >= 0.
        reduction: `mean`, or `none` for the terms `[N]`.

    Returns:
        The mean over anchors, or with `reduction="none"` their terms `[N]`; each term is in [0, 4].

    Raises:
        InputError: shapes that do not match, fewer than two graphs.

    Example:
        >>> import torch
        >>> float(byol(torch.eye(2), 3 * torch.eye(2)))  # same directions
        0.0

    References:
        Grill et al., "Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning", NeurIPS 2020, Eq. 2
        (arXiv 2006.07733).
    """
    return reduce(2 - 2 * _cosine_to_target(z1, z2, weight), weight, reduction)


@losses.register("simsiam", method="simsiam", repels="no")
def simsiam(z1: Tensor, z2: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    r"""Compute SimSiam: negative cosine of predictions and the other view's projections; projections get no gradient.

    $$L_i = -\cos(p_i, t_i)$$

    Here p_i is the prediction for graph i and t_i the projection of its other view. The loss equals `byol` up to scale
    and offset. `--method simsiam` has no momentum encoder: predictions and projections come from the same encoder.

    Args:
        z1: predictions p from the first view, `[N, D]`.
        z2: projections t of the second view, `[N, D]`; no gradient.
        weight: weight of each graph in the mean, `[N]`, >= 0.
        reduction: `mean`, or `none` for the terms `[N]`.

    Returns:
        The mean over anchors, or with `reduction="none"` their terms `[N]`; each term is in [-1, 1].

    Raises:
        InputError: shapes that do not match, fewer than two graphs.

    Example:
        >>> import torch
        >>> float(simsiam(torch.eye(2), 3 * torch.eye(2)))  # same directions
        -1.0

    References:
        Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, Eq. 1 (arXiv 2011.10566).
    """
    return reduce(-_cosine_to_target(z1, z2, weight), weight, reduction)


def _cosine_to_target(prediction: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    check_views(prediction, target)
    if weight is not None:
        check_weight(weight, prediction)
    with torch.autocast(prediction.device.type, enabled=False):
        return (normalize(prediction) * normalize(target.detach())).sum(dim=1)
