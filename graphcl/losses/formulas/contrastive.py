"""Pairwise contrastive loss with a margin (Hadsell, Chopra and LeCun 2006)."""

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Positive
from graphcl.losses.loss import Pairs, Row, pairwise


@pairwise("contrastive", similarity="squared_distance")
def contrastive(
    pairs: Pairs,
    *,
    margin: Positive = 1.0,
    normalize: bool = True,
    negative_reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    r"""Compute the contrastive loss of Hadsell et al.: positives attract, negatives repel within a margin.

    $$L_i = \tfrac12 (D_i^+)^2 + \tfrac1M \sum_j \tfrac12 \max(m - D_{ij}, 0)^2, \qquad D = \lVert u - v \rVert$$

    Here D_ij is the Euclidean distance of anchor i and its negative j, D_i^+ the distance of anchor i and its positive,
    m the margin and M the number of negatives.

    Differs: the paper sums over all pairs and does not normalise rows: `negative_reduction="sum", normalize=False`.

    Args:
        margin: distance m beyond which negatives do not repel, > 0; distances of unit rows are at most 2.
        normalize: whether to scale rows to length 1.
        negative_reduction: `mean` or `sum` over an anchor's negatives.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(contrastive(z, z)), 3)  # all rows equal: half the squared margin
        0.5

    References:
        Hadsell, Chopra and LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006, Eq. 4.
    """

    def push(row: Row) -> Tensor:
        # The square root has an infinite derivative at 0, so mask equal rows, which then get a gradient of 0.
        apart = row.value > 0
        distance = torch.where(apart, torch.where(apart, row.value, 1.0).sqrt(), 0.0)
        short = (margin - distance).clamp(min=0)
        return (row.mean if negative_reduction == "mean" else row.sum)(short.square() / 2)

    return pairs.positive / 2 + pairs.rows(push)
