"""Mean-variance loss: InfoNCE to second order (Wu et al. 2023)."""

from torch import Tensor

from graphcl.arguments import Positive, Temperature
from graphcl.losses.loss import Pairs, pairwise


@pairwise("mean_variance")
def mean_variance(pairs: Pairs, *, temperature: Temperature = 0.2, curvature: Positive = 1.0) -> Tensor:
    r"""Compute the mean-variance loss: mean and variance of the negatives instead of their logsumexp.

    $$L_i = -s_i^+ + \frac1M \sum_j s_{ij} + \frac{\mathrm{Var}_j(s_{ij})}{2 \phi''(1)}, \qquad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives and tau the temperature. Var is the population variance. For any divergence phi and a small radius, the
    loss approximates distributionally robust optimisation over the negatives (`cl_dro`).

    Differs: Eq. 8 of the paper is this loss times the temperature, with the same minimiser.

    Args:
        curvature: phi''(1) of the divergence, > 0. It is 1 for every divergence of `cl_dro`, and 2 for chi-square
            defined as (u - 1)^2.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(mean_variance(z, z)), 3)  # all cosines equal: no variance
        0.0

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023, Eq. 8
        (arXiv 2310.11048).
    """
    mean, variance = pairs.moments()
    return (mean - pairs.positive) / temperature + variance / (2 * curvature * temperature**2)
