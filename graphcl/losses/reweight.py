"""The linear loss with ADNCE's weights and no logsumexp (Wu et al. 2023)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Finite, Temperature, Width
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import gaussian
from graphcl.losses.engine.pairwise import pairwise


@pairwise("reweight")
def reweight(pairs: Pairs, *, temperature: Temperature = 0.2, mu: Finite = 0.7, sigma: Width = 1.0) -> Tensor:
    r"""Reweighting only: negatives near the cosine mu are pushed away, linearly.

    $$L_i = -s_i^+ + \frac1M \sum_j w_{ij} s_{ij}, \qquad
    w_{ij} = \frac{g(c_{ij})}{\frac1M \sum_k g(c_{ik})}, \quad
    g(c) = e^{-(c - \mu)^2 / 2 \sigma^2}, \; s = c / \tau$$

    The weights are constants to the gradient. Beside `adnce`, this shows what the logsumexp adds to the weights.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau); it only scales this loss.
        mu: the cosine that weighs most, finite; it may lie above 1.
        sigma: width of the Gaussian, in cosine, > 0; `inf` gives every negative the weight 1.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(reweight(z, z)), 3)  # all cosines equal
        0.0

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023 (arXiv
        2310.11048).
    """
    expected, _ = pairs.expectation(gaussian(mu, sigma))
    return (expected - pairs.positive) / temperature
