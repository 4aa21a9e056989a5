"""The Jensen-Shannon objective of InfoGraph (Sun et al. 2020)."""

from __future__ import annotations

from torch import Tensor

from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("jsd", similarity="dot")
def jsd(pairs: Pairs) -> Tensor:
    r"""JSD: a logistic regression of positive against negative pairs, on dot products.

    $$L_i = \mathrm{softplus}(-x_i^+) + \frac1M \sum_j \mathrm{softplus}(x_{ij}), \qquad x = u \cdot v$$

    Its negative plus 2 log 2 is a lower bound of twice the Jensen-Shannon divergence of positive from negative pairs.

    Differs: InfoGraph contrasts nodes with graphs (method `infograph`); here both sides are what is given. Its code
    adds -2 log 2.

    Args:
        pairs: anchors, positives and negatives.

    Returns:
        A scalar, or `[A]`, each at least 0.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.zeros(5, 3)
        >>> round(float(jsd(z, z).exp()), 3)  # all products zero: 2 log 2
        4.0

    References:
        Sun et al., "InfoGraph: Unsupervised and Semi-supervised Graph-Level Representation Learning via Mutual
        Information Maximization", ICLR 2020, Eq. 4 (arXiv 1908.01000). Hjelm et al., "Learning Deep Representations by
        Mutual Information Estimation and Maximization", ICLR 2019, Eq. 4 (arXiv 1808.06670).
    """
    negative = pairs.rows(lambda row: row.mean(soft_positive_part(row.value)))
    return soft_positive_part(-pairs.positive) + negative
