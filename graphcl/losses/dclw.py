"""DCLW: DCL with positives weighted by how far apart they are (Yeh et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Temperature, Width
from graphcl.distributed import ranks
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise


@pairwise("dclw", gathering="global_statistics")
def dclw(pairs: Pairs, *, temperature: Temperature = 0.2, sigma: Width = 0.5, detach_weight: bool = True) -> Tensor:
    r"""DCLW: DCL whose positives pull harder the farther apart they still are.

    $$L_i = -w_i s_i^+ + \log \sum_j e^{s_{ij}}, \qquad
    w_i = 2 - \frac{e^{c_i^+ / \sigma}}{\frac1A \sum_k e^{c_k^+ / \sigma}}, \quad s = c / \tau$$

    The weights have mean 1 over the A anchors (those of all ranks); w_i is negative where e^{c+ / sigma} is more than
    twice the mean.

    Differs: the paper does not say whether the weight is a constant to the gradient; of two released versions one
    detaches it, one does not. It uses `negatives="all"` and temperature 0.1.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        sigma: width of the von Mises-Fisher weight, in cosine, > 0; `inf` gives every positive the weight 1.
        detach_weight: whether the weights are constants to the gradient.

    Returns:
        A scalar, or `[A]`. With sigma = inf: `dcl`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> from graphcl.losses.dcl import dcl
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
    """e^x over its mean over the anchors of all ranks, `[A]`."""
    if ranks.size() == 1:
        return x.numel() * x.softmax(dim=0)
    found = ranks.gather(torch.stack([x.logsumexp(dim=0), x.new_tensor(float(x.numel()))])[None])
    return found[:, 1].sum() * (x - found[:, 0].logsumexp(dim=0)).exp()
