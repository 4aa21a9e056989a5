"""alpha-CL-direct: negatives weighted by a given function of their distance (Tian 2022)."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from graphcl.arguments import NonNegative, interval
from graphcl.losses.loss import Exponent, Pairs, pairwise

Scale = Annotated[float, interval("[1e-6, inf)")]
"""A temperature that cannot be learned: the loss has no gradient by it, as its weights are detached."""


@pairwise("alpha_cl")
def alpha_cl(pairs: Pairs, *, temperature: Scale = 0.5, power: Literal[2, 4] = 4, epsilon: NonNegative = 0.0) -> Tensor:
    r"""Compute alpha-CL-direct: negatives weighted by a decreasing function of their distance.

    $$L_i = \sum_j \alpha_{ij} (c_{ij} - c_i^+), \qquad \alpha_{ij} = \frac{w_{ij}}{\sum_k w_{ik} + \epsilon M}, \qquad
    w_{ij} = e^{-(1 - c_{ij})^p / \tau}$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and M the
    number of negatives. The weights alpha are detached. With w = e^{c_ij / tau} and epsilon = 0 the gradient would be
    tau times that of `dcl`. alpha-CL allows other weights, which need not be derived from a loss.

    Differs: the paper uses `negatives="all"`.

    Args:
        temperature: scale of the weights' exponent, >= 1e-6 (tau); does not divide the cosines.
        power: exponent p.
        epsilon: constant added to the mean of w in the normalisation, >= 0. With 0, the weights of an anchor sum to 1.

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> round(float(alpha_cl(z, z)), 3)  # negatives at cosine 0, positives at 1
        -1.0

    References:
        Tian, "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", NeurIPS 2022, Sec. 6 (arXiv
        2201.12680).
    """
    # The power is even, so (1 - c)^p = (c - 1)^p.
    weight = Exponent((), (*[0.0] * int(power), -1 / temperature), center=1.0)
    expected, total = pairs.expectation(weight)
    gap = expected - pairs.positive
    if epsilon == 0:
        return gap
    # The sigmoid is sum w / (sum w + epsilon M), so the denominator of alpha becomes sum w + epsilon M.
    return gap * torch.sigmoid(total - (epsilon * pairs.count).log())
