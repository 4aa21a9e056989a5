"""DCL, decoupled contrastive learning (Yeh et al. 2022)."""

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.loss import Pairs, linear, pairwise


@pairwise("dcl")
def dcl(pairs: Pairs, *, temperature: Temperature = 0.2) -> Tensor:
    r"""Compute DCL: InfoNCE without the positive in the denominator.

    $$L_i = -s_i^+ + \log \sum_j e^{s_{ij}}, \qquad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and tau the
    temperature. The gradient of InfoNCE is the gradient of DCL times q_i = 1 - p_i^+, where p_i^+ is the softmax
    probability of the positive. This negative-positive-coupling multiplier vanishes for easy positives. The value of
    DCL can be negative.

    Differs: the paper uses `negatives="all"` and temperature 0.1. The loss of the released GraphCL code is
    `negatives="cross", symmetric=False`; it is Eq. 3 of the GraphCL paper, in which the sum excludes the positive.

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
