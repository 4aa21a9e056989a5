"""VICReg: variance-invariance-covariance regularisation (Bardes et al. 2022)."""

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import NonNegative, Positive
from graphcl.distributed import ranks
from graphcl.losses.pairs import off_diagonal
from graphcl.losses.rows import at_least_float32, check_views
from graphcl.registry import losses


@losses.register("vicreg")
def vicreg(
    z1: Tensor,
    z2: Tensor,
    *,
    invariance: NonNegative = 25.0,
    variance: NonNegative = 25.0,
    covariance: NonNegative = 1.0,
    target: Positive = 1.0,
    epsilon: Positive = 1e-4,
    form: Literal["released", "paper"] = "released",
) -> Tensor:
    r"""Compute VICReg: the sum of an invariance, a variance and a covariance penalty.

    $$L = \frac{\lambda}{N D} \sum_i \lVert z_i - z'_i \rVert^2 + \frac{\mu}{2} [v(Z) + v(Z')] + \nu\,[c(Z) + c(Z')]$$

    $$v(Z) = \frac1D \sum_d \max\big(0,\; \gamma - \sqrt{\mathrm{Var}(z_d) + \epsilon}\big), \qquad
    c(Z) = \frac1D \sum_{d \neq e} \mathrm{Cov}(Z)_{de}^2$$

    Here z_i and z'_i are the rows of graph i in the two views Z and Z', and z_d is one of the D columns of Z. Variance
    and covariance have divisor N - 1. Rows are not normalised. Across ranks, variance and covariance are over the
    graphs of all ranks, and the first term is over the graphs of this rank. A rank sends D x D numbers and no rows.

    Differs: the default form is that of the released code, for which the authors chose the weights. Eq. 6 of the paper
    (`form="paper"`) does not divide the first term by D and does not halve the variance terms.

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        invariance: weight lambda, >= 0.
        variance: weight mu, >= 0.
        covariance: weight nu, >= 0.
        target: standard deviation gamma below which a dimension is penalised, > 0.
        epsilon: constant added to the variance, which keeps the derivative of the square root finite, > 0.
        form: `released`, or `paper` for the scaling in the paper.

    Returns:
        A scalar.

    Raises:
        InputError: an argument out of range, shapes that do not match, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
        >>> float(vicreg(z, z))  # equal views, standard deviation above 1, no covariance: L = 0
        0.0

    References:
        Bardes, Ponce and LeCun, "VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
        ICLR 2022, Eq. 6 (arXiv 2105.04906).
    """
    check_views(z1, z2)
    with torch.autocast(z1.device.type, enabled=False):
        views = at_least_float32(z1), at_least_float32(z2)
        columns = z1.size(1)
        apart = (views[0] - views[1]).square().sum(dim=1).mean()
        short, shared = torch.zeros_like(apart), torch.zeros_like(apart)
        for view in views:
            centered = view - ranks.mean_over_ranks(view)
            matrix = ranks.sum_over_ranks(centered.T @ centered) / (ranks.size() * view.size(0) - 1)
            short = short + (target - (matrix.diagonal() + epsilon).sqrt()).clamp(min=0).mean()
            shared = shared + off_diagonal(matrix).square().sum() / columns
        if form == "released":
            apart, short = apart / columns, short / 2
        return invariance * apart + variance * short + covariance * shared
