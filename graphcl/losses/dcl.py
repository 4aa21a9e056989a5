"""DCL, decoupled contrastive learning: InfoNCE without the positive in the denominator (Yeh et al. 2022)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise


@pairwise("dcl")
def dcl(pairs: Pairs, *, temperature: Temperature = 0.2) -> Tensor:
    r"""DCL: InfoNCE with the positive taken out of the denominator.

    $$L_i = -s_i^+ + \log \sum_j e^{s_{ij}}, \qquad s = c / \tau$$

    InfoNCE's gradient is this one times q_i = 1 - p_i^+, the negative-positive-coupling multiplier that vanishes for
    an anchor whose positive is already easy. The value may be negative.

    Differs: the paper uses `negatives="all"` and temperature 0.1. With `negatives="cross", symmetric=False` this is
    the loss of the released GraphCL code (its paper's Eq. 3, where the sum leaves the positive out).

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).

    Returns:
        A scalar, or `[A]`. With all cosines equal: log M for M negatives.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(dcl(z, z).exp()), 3)  # all cosines equal: 4 negatives
        4.0

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022, Eq. 6 (arXiv 2110.06848).
        You et al., "Graph Contrastive Learning with Augmentations", NeurIPS 2020, Eq. 3 (arXiv 2010.13902).
    """
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return total - pairs.positive / temperature
