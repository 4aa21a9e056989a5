"""Debiased contrastive loss: false negatives subtracted in expectation (Chuang et al. 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphcl.arguments import Ratio, Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("debiased")
def debiased(pairs: Pairs, *, temperature: Temperature = 0.2, tau_plus: Ratio = 0.1) -> Tensor:
    r"""Debiased InfoNCE: the share tau+ of negatives that are really of the anchor's class is taken out.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + G_i}, \qquad
    G_i = \max\Big(\frac{\sum_j e^{s_{ij}} - \tau^+ M e^{s_i^+}}{1 - \tau^+},\; M e^{-1/\tau}\Big), \quad s = c / \tau$$

    M e^{-1/tau} is the least that M negatives can sum to; where it holds, negatives get no gradient. Nothing is a
    constant to the gradient otherwise. (Some call this loss "DCL", which here is decoupled contrastive learning.)

    Differs: the paper uses `negatives="all"` and temperature 0.5.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        tau_plus: prior probability that a negative is a false one, in [0, 1).

    Returns:
        A scalar, or `[A]`. With tau_plus = 0: `infonce`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> from graphcl.losses.infonce import infonce
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(debiased(z1, z2, tau_plus=0.0), infonce(z1, z2)))
        True

    References:
        Chuang et al., "Debiased Contrastive Learning", NeurIPS 2020, Eq. 8 (arXiv 2007.00224).
    """
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return corrected(pairs, total, temperature, tau_plus)


def corrected(pairs: Pairs, total: Tensor, temperature: float, tau_plus: float) -> Tensor:
    """The terms, given the logarithm of the negatives' sum `[A]`, in which false negatives are yet to be subtracted."""
    positive = pairs.positive / temperature
    gap = total - positive
    if tau_plus == 0:
        return soft_positive_part(gap)
    log_count = pairs.count.log()
    floor = log_count - 1 / temperature - positive
    # log((e^total - tau+ M e^positive) / (1 - tau+)) - positive, where what is subtracted is the smaller one; elsewhere
    # the floor holds, and a stand-in keeps the logarithm's gradient finite.
    share = log_count + math.log(tau_plus) - gap
    proper = share < 0
    rest = torch.log(-torch.expm1(torch.where(proper, share, -1.0)))
    estimate = gap + rest - math.log1p(-tau_plus)
    return soft_positive_part(torch.where(proper & (estimate > floor), estimate, floor))
