"""alpha-CL-direct: pairwise importance set directly, not by a loss (Tian 2022)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import NonNegative, Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import Exponent
from graphcl.losses.engine.pairwise import pairwise


@pairwise("alpha_cl")
def alpha_cl(
    pairs: Pairs, *, temperature: Temperature = 0.5, power: Literal[2, 4] = 4, epsilon: NonNegative = 0.0
) -> Tensor:
    r"""alpha-CL-direct: each negative is pushed away with a weight that falls with its distance.

    $$L_i = \sum_j \alpha_{ij} (c_{ij} - c_i^+), \qquad \alpha_{ij} = \frac{w_{ij}}{\sum_k w_{ik} + \epsilon M}, \qquad
    w_{ij} = e^{-(1 - c_{ij})^p / \tau}$$

    The weights are constants to the gradient. With w = e^{c_ij / tau} and no epsilon it is tau times that of `dcl`:
    alpha-CL takes the weights for what they are and chooses them freely.

    Differs: the paper uses `negatives="all"`.

    Args:
        pairs: anchors, positives and negatives.
        temperature: how fast weights fall, > 0 (tau); cosines are not divided by it.
        power: p.
        epsilon: share of the weight that goes nowhere, >= 0; with 0 the weights of an anchor sum to 1.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> round(float(alpha_cl(z, z)), 3)  # negatives at cosine 0, positives at 1
        -1.0

    References:
        Tian, "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", NeurIPS 2022, Sec. 6 (arXiv
        2201.12680).
    """
    # An even power, so (1 - c)^p = (c - 1)^p.
    weight = Exponent((), (*[0.0] * int(power), -1 / temperature), center=1.0)
    expected, total = pairs.expectation(weight)
    gap = expected - pairs.positive
    if epsilon == 0:
        return gap
    # sum w / (sum w + epsilon M)
    return gap * torch.sigmoid(total - (epsilon * pairs.count).log())
