"""ADNCE: InfoNCE with negatives weighted by a Gaussian of their similarity (Wu et al. 2023)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from graphcl.arguments import Finite, Temperature, Width
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import gaussian, linear
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("adnce")
def adnce(
    pairs: Pairs,
    *,
    temperature: Temperature = 0.2,
    mu: Finite = 0.7,
    sigma: Width = 1.0,
    detach_weight: bool = True,
    positive_in_denominator: bool = False,
    negative_reduction: Literal["sum", "mean"] = "sum",
) -> Tensor:
    r"""ADNCE: negatives near the cosine mu weigh most; the others, the suspiciously similar ones too, weigh less.

    $$L_i = -\log \frac{e^{s_i^+}}{\sum_j w_{ij} e^{s_{ij}}}, \qquad
    w_{ij} = \frac{g(c_{ij})}{\frac1M \sum_k g(c_{ik})}, \qquad
    g(c) = e^{-(c - \mu)^2 / 2 \sigma^2}, \quad s = c / \tau$$

    A negative's pull is e^{s + log g}, largest at c* = mu + sigma^2 / tau. So the hardest negatives are really weighted
    down only where c* < 1, that is sigma^2 < tau (1 - mu); with the usual sigma = 1 and tau <= 0.5 they still dominate.

    Computed in one pass: log(sum_j w_j e^{s_j}) = LSE(s + log g) - LSE(log g) + log M.

    Differs: four released versions disagree. Default: the paper's objective. Images: `negatives="all",
    positive_in_denominator=True`. Graphs: `symmetric=False, negative_reduction="mean"`. Left out: the sentence version,
    which weights the positive too, and the pseudo-code, which takes the weight of e^similarity.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        mu: the cosine that weighs most, finite; it may lie above 1.
        sigma: width of the Gaussian, in cosine, > 0; `inf` gives every negative the weight 1.
        detach_weight: whether the weights are constants to the gradient, as in the paper.
        positive_in_denominator: whether e^{s+} is added to the denominator, as in InfoNCE.
        negative_reduction: `sum` or `mean` of the weighted negatives. Without the positive in the denominator the
            two differ by the constant log M.

    Returns:
        A scalar, or `[A]`. With sigma = inf and the sum: `dcl`, or `infonce` with the positive in the denominator.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> from graphcl.losses.dcl import dcl
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(adnce(z1, z2, sigma=float("inf")), dcl(z1, z2)))
        True

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023,
        Eq. 12 (arXiv 2310.11048).
    """
    log_weight = gaussian(mu, sigma, frozen=detach_weight)
    weighted, total = pairs.logsumexp(linear(1 / temperature) + log_weight, log_weight)
    # log of sum_j w_j e^{s_j}, or of its mean; the weights' own mean is e^total / M.
    gap = weighted - total - pairs.positive / temperature
    if negative_reduction == "sum":
        gap = gap + pairs.count.log()
    return soft_positive_part(gap) if positive_in_denominator else gap
