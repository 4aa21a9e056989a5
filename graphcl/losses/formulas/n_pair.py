"""N-pair loss (Sohn 2016)."""

from torch import Tensor

from graphcl.arguments import NonNegative
from graphcl.losses.loss import Pairs, linear, pairwise, softplus


@pairwise("n_pair", similarity="dot")
def n_pair(pairs: Pairs, *, l2_weight: NonNegative = 0.002) -> Tensor:
    r"""Compute the N-pair loss: InfoNCE on dot products, plus a penalty on the squared norm of the rows.

    $$L_i = -\log \frac{e^{f_i \cdot f_i^+}}{e^{f_i \cdot f_i^+} + \sum_j e^{f_i \cdot f_j}}
    + \lambda \frac{\lVert f_i \rVert^2 + \lVert f_i^+ \rVert^2}{2}$$

    Here f_i is the row of anchor i and f_i^+ the row of its positive. The negatives f_j of an anchor are the positives
    of the other anchors.

    Differs: in the paper only one side of each pair is an anchor (`symmetric=False`).

    Args:
        l2_weight: weight lambda of the penalty, >= 0.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(n_pair(z, z, l2_weight=0.0).exp()), 3)  # all rows equal: 1 positive, 4 negatives
        5.0

    References:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NeurIPS 2016, Eq. 7.
    """
    (total,) = pairs.logsumexp(linear(1.0))
    squares = pairs.anchor.square().sum(dim=1) + pairs.partner.square().sum(dim=1)
    return softplus(total - pairs.positive) + l2_weight * squares / 2
