"""Jensen-Shannon objective of InfoGraph (Sun et al. 2020)."""

from torch import Tensor

from graphcl.losses.loss import Pairs, pairwise, softplus


@pairwise("jsd", similarity="dot")
def jsd(pairs: Pairs) -> Tensor:
    r"""Compute JSD: logistic loss that separates positive from negative pairs by their dot products.

    $$L_i = \mathrm{softplus}(-x_i^+) + \frac1M \sum_j \mathrm{softplus}(x_{ij}), \qquad x = u \cdot v$$

    Here x_ij is the dot product of anchor i and its negative j, x_i^+ the dot product of anchor i and its positive, and
    M the number of negatives. 2 log 2 minus the loss is a lower bound of twice the Jensen-Shannon divergence between
    the distributions of positive and negative pairs.

    Differs: InfoGraph contrasts nodes with graphs (`--method infograph`), and its code subtracts 2 log 2.

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
    negative = pairs.rows(lambda row: row.mean(softplus(row.value)))
    return softplus(-pairs.positive) + negative
