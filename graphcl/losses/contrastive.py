"""The pairwise contrastive loss with a margin (Hadsell, Chopra and LeCun 2006)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Positive
from graphcl.losses.engine.comparison import Pairs, Row
from graphcl.losses.engine.pairwise import pairwise


@pairwise("contrastive", similarity="squared_distance")
def contrastive(
    pairs: Pairs,
    *,
    margin: Positive = 1.0,
    normalize: bool = True,
    negative_reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    r"""Contrastive (Hadsell): positives are drawn together, negatives pushed apart until they are a margin away.

    $$L_i = \tfrac12 (D_i^+)^2 + \tfrac1M \sum_j \tfrac12 \max(m - D_{ij}, 0)^2, \qquad D = \lVert u - v \rVert$$

    Differs: the paper sums over all pairs, of which most are negative ones, and leaves rows as they are
    (`negative_reduction="sum", normalize=False`).

    Args:
        pairs: anchors, positives and negatives.
        margin: distance m beyond which a negative is left alone, > 0; on unit rows distances reach 2.
        normalize: whether rows are scaled to length 1 first.
        negative_reduction: `mean` or `sum` over an anchor's negatives.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(contrastive(z, z)), 3)  # all in one point: half the squared margin
        0.5

    References:
        Hadsell, Chopra and LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006, Eq. 4.
    """

    def push(row: Row) -> Tensor:
        # The square root has no slope at 0, where two rows are one point.
        apart = row.value > 0
        distance = torch.where(apart, torch.where(apart, row.value, 1.0).sqrt(), 0.0)
        short = (margin - distance).clamp(min=0)
        return (row.mean if negative_reduction == "mean" else row.sum)(short.square() / 2)

    return pairs.positive / 2 + pairs.rows(push)
