"""ADNCE: negatives weighted by a Gaussian of their similarity (Wu et al. 2023)."""

from typing import Literal

from torch import Tensor

from graphcl.arguments import Finite, Temperature, Width
from graphcl.losses.loss import Pairs, gaussian, linear, pairwise, softplus


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
    r"""Compute ADNCE: negatives weighted by a Gaussian of their cosine, centred at mu.

    $$L_i = -\log \frac{e^{s_i^+}}{\sum_j w_{ij} e^{s_{ij}}}, \qquad
    w_{ij} = \frac{g(c_{ij})}{\frac1M \sum_k g(c_{ik})}, \qquad
    g(c) = e^{-(c - \mu)^2 / 2 \sigma^2}, \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives, tau the temperature and g the Gaussian weight.

    The gradient on a negative is proportional to e^{s + log g}, largest at c* = mu + sigma^2 / tau. The hardest
    negatives (largest c) get a smaller gradient than easier ones only if c* < 1, that is, sigma^2 < tau (1 - mu). With
    sigma = 1 and tau <= 0.5 the hardest negatives get the largest gradient.

    With LSE = logsumexp over the negatives, log(sum_j w_j e^{s_j}) = LSE(s + log g) - LSE(log g) + log M, so one pass
    over the negatives suffices.

    Differs: the released versions disagree with each other. The default is the objective in the paper. For the image
    version, pass `negatives="all", positive_in_denominator=True`. For the graph version, pass
    `symmetric=False, negative_reduction="mean"`. The sentence version, which also weights the positive, and the
    pseudo-code, which computes the weight from e^similarity, are not available.

    Args:
        mu: cosine at which the weight is largest, finite; may exceed 1.
        sigma: width of the Gaussian, in units of the cosine, > 0; `inf` gives every negative weight 1, as in `dcl`.
        detach_weight: whether to detach the weights, as in the paper.
        positive_in_denominator: whether e^{s+} is added to the denominator, as in InfoNCE.
        negative_reduction: `sum` or `mean` of the weighted negatives. Without the positive in the denominator the two
            losses differ by the constant log M.

    Example:
        >>> import torch
        >>> from graphcl.losses import dcl
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(adnce(z1, z2, sigma=float("inf")), dcl(z1, z2)))
        True

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023,
        Eq. 12 (arXiv 2310.11048).
    """
    log_weight = gaussian(mu, sigma, frozen=detach_weight)
    weighted, total = pairs.logsumexp(linear(1 / temperature) + log_weight, log_weight)
    # The mean of the unnormalised weights g is e^total / M, so this is the loss with the mean in the denominator.
    gap = weighted - total - pairs.positive / temperature
    if negative_reduction == "sum":
        gap = gap + pairs.count.log()
    return softplus(gap) if positive_in_denominator else gap
