"""SimSiam: negative cosine with a stop-gradient (Chen and He 2021)."""

from __future__ import annotations

from torch import Tensor

from graphcl.losses.byol import cosine_to_target
from graphcl.losses.engine.checks import check_weight
from graphcl.losses.engine.pairwise import Reduction, reduce
from graphcl.registry import losses


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
    terms = -cosine_to_target(z1, z2)
    if weight is not None:
        check_weight(weight, z1.size(0))
    return reduce(terms, reduction, weight)
