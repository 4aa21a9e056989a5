"""(N+1)-tuplet loss (Sohn 2016)."""

import torch
from torch import Tensor

from graphcl.arguments import Count
from graphcl.losses.loss import Pairs, Row, linear, pairwise, softplus


@pairwise(
    "tuplet",
    similarity="dot",
    fixed={"negatives": "cross", "queue": None, "ids": None, "queue_ids": None},
)
def tuplet(pairs: Pairs, *, num_negatives: Count | None = None) -> Tensor:
    r"""Compute the (N+1)-tuplet loss: one positive and K negatives per anchor, on dot products.

    $$L_i = \log \Big( 1 + \sum_{j=1}^{K} e^{f_i \cdot f_j - f_i \cdot f_i^+} \Big)$$

    Here f_i is the row of anchor i, f_i^+ the row of its positive and f_j a negative. The negatives of anchor i are
    rows i + 1 to i + K of the other view, cyclically, which is a random choice in a shuffled batch. For other tuplets
    use `tuplet.terms(explicit(anchors, positives, negatives, "dot"))`.

    Args:
        num_negatives: number of negatives K, >= 1; by default, and at most, all N - 1.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(tuplet(z, z, num_negatives=2).exp()), 3)  # all rows equal: 1 positive, 2 negatives
        3.0

    References:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NeurIPS 2016, Eq. 6.
    """
    if num_negatives is None:
        (total,) = pairs.logsumexp(linear(1.0))
        return softplus(total - pairs.positive)

    def next_ones(row: Row, position: Tensor) -> Tensor:
        # The positive is not among the keys, so the key after it has the positive's index.
        first = (position - position[0])[:, None]
        others = torch.arange(min(num_negatives, row.value.size(1)), device=row.value.device)
        return row.value.gather(1, (first + others) % row.value.size(1)).logsumexp(dim=1)

    graphs = torch.arange(pairs.comparison.sets[0].size(0), device=pairs.positive.device)
    total = pairs.rows(next_ones, graphs.repeat(len(pairs.comparison.key_sets)))
    return softplus(total - pairs.positive)
