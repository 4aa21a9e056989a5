"""SimSiam's loss: negative cosine to a stopped target (Chen and He 2021)."""

from __future__ import annotations

from torch import Tensor

from graphcl.losses.byol import cosine_to_target
from graphcl.losses.engine.checks import check_weight
from graphcl.losses.engine.pairwise import Reduction, reduce
from graphcl.registry import losses


@losses.register("simsiam", method="simsiam", gathering="local")
def simsiam(z1: Tensor, z2: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    r"""SimSiam: negative cosine of predictions with the other view's projections, which are constants to the gradient.

    $$L_i = -\cos(p_i, t_i)$$

    BYOL's loss up to scale; there is no slow encoder, the target is the same one's projection: `--method simsiam`.

    Args:
        z1: predictions p from the first view, `[N, D]`.
        z2: projections t of the second view, `[N, D]`; no gradient goes there.
        weight: of each graph in the mean, `[N]`, >= 0.
        reduction: `mean`, or `none` for the terms `[N]`.

    Returns:
        A scalar, or `[N]`, each in [-1, 1].

    Raises:
        InputError: shapes that differ, fewer than two graphs.

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
