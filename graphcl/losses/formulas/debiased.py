"""Debiased contrastive loss (Chuang et al. 2020)."""

import math

import torch
from torch import Tensor

from graphcl.arguments import Ratio, Temperature
from graphcl.losses.loss import Pairs, linear, pairwise, softplus


@pairwise("debiased")
def debiased(pairs: Pairs, *, temperature: Temperature = 0.2, tau_plus: Ratio = 0.1) -> Tensor:
    r"""Compute debiased InfoNCE: the expected contribution of false negatives is subtracted.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + G_i}, \qquad
    G_i = \max\Big(\frac{\sum_j e^{s_{ij}} - \tau^+ M e^{s_i^+}}{1 - \tau^+},\; M e^{-1/\tau}\Big), \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives and tau the temperature. M e^{-1/tau} is the smallest possible sum over M negatives. Where this bound
    is active, the negatives get no gradient. All other terms are differentiated. (Some papers call this loss DCL; in
    this library `dcl` is decoupled contrastive learning.)

    Differs: the paper uses `negatives="all"` and temperature 0.5.

    Args:
        tau_plus: prior probability that a negative has the class of the anchor, in [0, 1).

    Example:
        >>> import torch
        >>> from graphcl.losses import infonce
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(debiased(z1, z2, tau_plus=0.0), infonce(z1, z2)))
        True

    References:
        Chuang et al., "Debiased Contrastive Learning", NeurIPS 2020, Eq. 8 (arXiv 2007.00224).
    """
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return corrected(pairs, total, temperature, tau_plus)


def corrected(pairs: Pairs, total: Tensor, temperature: float, tau_plus: float) -> Tensor:
    """Return the debiased terms `[A]`; `total [A]` are the logarithms of the anchors' (weighted) sums of e^s."""
    positive = pairs.positive / temperature
    gap = total - positive
    if tau_plus == 0:
        return softplus(gap)
    log_count = pairs.count.log()
    floor = log_count - 1 / temperature - positive
    # The estimate is log((e^total - tau+ M e^positive) / (1 - tau+)) - positive. If the difference is not positive, the
    # floor replaces it; the placeholder -1 then keeps the gradient of the unused logarithm finite.
    ratio = log_count + math.log(tau_plus) - gap
    proper = ratio < 0
    rest = torch.log(-torch.expm1(torch.where(proper, ratio, -1.0)))
    estimate = gap + rest - math.log1p(-tau_plus)
    return softplus(torch.where(proper & (estimate > floor), estimate, floor))
