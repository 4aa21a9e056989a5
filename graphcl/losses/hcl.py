"""HCL: hard negatives by importance sampling, debiased (Robinson et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import NonNegative, Ratio, Temperature
from graphcl.losses.debiased import corrected
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise


@pairwise("hcl")
def hcl(pairs: Pairs, *, temperature: Temperature = 0.2, beta: NonNegative = 1.0, tau_plus: Ratio = 0.1) -> Tensor:
    r"""HCL: the debiased loss whose negatives weigh more the harder they are.

    $$R_i = \frac{\sum_j e^{\beta s_{ij}} e^{s_{ij}}}{\frac1M \sum_j e^{\beta s_{ij}}}, \qquad
    L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + G_i}, \quad
    G_i = \max\Big(\frac{R_i - \tau^+ M e^{s_i^+}}{1 - \tau^+},\; M e^{-1/\tau}\Big), \quad s = c / \tau$$

    The gradient goes through the weights too. Computed in one pass: log R = LSE((1 + beta) s) - LSE(beta s) + log M.

    Differs: the paper uses `negatives="all"` and temperature 0.5.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        beta: how much hard negatives weigh, >= 0; 0 weighs all alike.
        tau_plus: prior probability that a negative is a false one, in [0, 1).

    Returns:
        A scalar, or `[A]`. With beta = 0: `debiased`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> from graphcl.losses.debiased import debiased
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(hcl(z1, z2, beta=0.0), debiased(z1, z2)))
        True

    References:
        Robinson et al., "Contrastive Learning with Hard Negative Samples", ICLR 2021, Eq. 4 (arXiv 2010.04592).
    """
    hard, weight = pairs.logsumexp(linear((1 + beta) / temperature), linear(beta / temperature))
    return corrected(pairs, hard - weight + pairs.count.log(), temperature, tau_plus)
