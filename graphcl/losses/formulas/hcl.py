"""HCL: contrastive learning with hard negatives (Robinson et al. 2021)."""

from torch import Tensor

from graphcl.arguments import NonNegative, Ratio, Temperature
from graphcl.losses.formulas.debiased import corrected
from graphcl.losses.loss import Pairs, linear, pairwise


@pairwise("hcl")
def hcl(pairs: Pairs, *, temperature: Temperature = 0.2, beta: NonNegative = 1.0, tau_plus: Ratio = 0.1) -> Tensor:
    r"""Compute HCL: the debiased loss with importance weights for hard negatives.

    $$R_i = \frac{\sum_j e^{\beta s_{ij}} e^{s_{ij}}}{\frac1M \sum_j e^{\beta s_{ij}}}, \qquad
    L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + G_i}, \quad
    G_i = \max\Big(\frac{R_i - \tau^+ M e^{s_i^+}}{1 - \tau^+},\; M e^{-1/\tau}\Big), \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives and tau the temperature. The weights e^{beta s} are differentiated too. With LSE = logsumexp over the
    negatives, log R = LSE((1 + beta) s) - LSE(beta s) + log M, so one pass over the negatives suffices.

    Differs: the paper uses `negatives="all"` and temperature 0.5.

    Args:
        beta: concentration on hard negatives, >= 0; 0 gives equal weights.
        tau_plus: prior probability that a negative has the class of the anchor, in [0, 1).

    Example:
        >>> import torch
        >>> from graphcl.losses import debiased
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(hcl(z1, z2, beta=0.0), debiased(z1, z2)))
        True

    References:
        Robinson et al., "Contrastive Learning with Hard Negative Samples", ICLR 2021, Eq. 4 (arXiv 2010.04592).
    """
    hard, weight = pairs.logsumexp(linear((1 + beta) / temperature), linear(beta / temperature))
    return corrected(pairs, hard - weight + pairs.count.log(), temperature, tau_plus)
