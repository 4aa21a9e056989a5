"""The mean-variance loss: what InfoNCE is to second order (Wu et al. 2023)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Positive, Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairwise import pairwise


@pairwise("mean_variance")
def mean_variance(pairs: Pairs, *, temperature: Temperature = 0.2, curvature: Positive = 1.0) -> Tensor:
    r"""Mean-variance: negatives are pushed away on average, and the more the more they vary.

    $$L_i = -s_i^+ + \frac1M \sum_j s_{ij} + \frac{\mathrm{Var}_j(s_{ij})}{2 \phi''(1)}, \qquad s = c / \tau$$

    with the population variance. Contrastive loss is distributionally robust optimisation over the negatives; for a
    small radius this is its value under any divergence phi. It costs O(N D^2), as both moments follow from those of the
    keys.

    Differs: the paper's Eq. 8 is this one times the temperature, which leaves the minimiser where it is.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        curvature: phi''(1) of the divergence, > 0: 1 for KL and (u - 1)^2 / 2, 2 for (u - 1)^2.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

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
