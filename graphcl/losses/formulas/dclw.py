"""DCLW: DCL with weighted positives (Yeh et al. 2022)."""

import torch
from torch import Tensor

from graphcl.arguments import Temperature, Width
from graphcl.distributed import ranks
from graphcl.losses.loss import Pairs, linear, pairwise


@pairwise("dclw")
def dclw(pairs: Pairs, *, temperature: Temperature = 0.2, sigma: Width = 0.5, detach_weight: bool = True) -> Tensor:
    r"""Compute DCLW: DCL with larger weights for less similar positives.

    $$L_i = -w_i s_i^+ + \log \sum_j e^{s_{ij}}, \qquad
    w_i = 2 - \frac{e^{c_i^+ / \sigma}}{\frac1A \sum_k e^{c_k^+ / \sigma}}, \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and tau the
    temperature. The weights w have mean 1 over the A anchors of all ranks. w_i is negative if e^{c_i^+ / sigma} exceeds
    twice its mean.

    Differs: the paper does not specify whether the weights are detached; one of two released versions detaches them.
    The paper uses `negatives="all"` and temperature 0.1.

    Args:
        sigma: width of the von Mises-Fisher weight, in units of the cosine, > 0; `inf` gives every positive weight 1.
        detach_weight: whether to detach the weights.

    Example:
        >>> import torch
        >>> from graphcl.losses import dcl
        >>> z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(dclw(z1, z2, sigma=float("inf")), dcl(z1, z2)))
        True

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022, Sec. 3.3 (arXiv 2110.06848).
    """
    positive = pairs.positive.detach() if detach_weight else pairs.positive
    weight = 2 - _over_mean(positive / sigma)
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return total - weight * pairs.positive / temperature


def _over_mean(x: Tensor) -> Tensor:
    """Return e^x divided by the mean of e^x over the anchors of all ranks, `[A]`."""
    if ranks.size() == 1:
        return x.numel() * x.softmax(dim=0)
    totals, counts = ranks.gather(torch.stack([x.logsumexp(dim=0), x.new_full((), x.numel())])[None]).unbind(dim=1)
    return counts.sum() * (x - totals.logsumexp(dim=0)).exp()
