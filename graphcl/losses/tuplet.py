"""The (N+1)-tuplet loss (Sohn 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Count
from graphcl.losses.engine.comparison import Pairs, Row
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise(
    "tuplet",
    similarity="dot",
    fixed={"negatives": "cross", "queue": None, "ids": None, "queue_ids": None},
)
def tuplet(pairs: Pairs, *, num_negatives: Count | None = None) -> Tensor:
    r"""(N+1)-tuplet: each anchor has one positive and a few negatives of its own, on dot products.

    $$L_i = \log \Big( 1 + \sum_{j=1}^{K} e^{f_i \cdot f_j - f_i \cdot f_i^+} \Big)$$

    The negatives of row i are rows i + 1 to i + K of the other view, the first row following the last; as a batch is in
    random order, that is a random choice. `n_pair` shares all rows among all tuples. For tuplets of your own, there is
    `tuplet.terms(explicit(anchors, positives, negatives, "dot"))`.

    Args:
        pairs: anchors, positives and negatives.
        num_negatives: K, at least 1; by default, and at most, N - 1.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(tuplet(z, z, num_negatives=2).exp()), 3)  # all alike: 1 positive, 2 negatives
        3.0

    References:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NeurIPS 2016, Eq. 6.
    """
    if num_negatives is None:
        (total,) = pairs.logsumexp(linear(1.0))
        return soft_positive_part(total - pairs.positive)
    wanted = num_negatives

    def next_ones(row: Row, position: Tensor) -> Tensor:
        # Keys lie in turn, the row's own cut out, so the first one after it is where it was.
        first = (position - position[0])[:, None]
        others = torch.arange(min(wanted, row.value.size(1)), device=row.value.device)
        return row.value.gather(1, (first + others) % row.value.size(1)).logsumexp(dim=1)

    graphs = torch.arange(pairs.comparison.sets[0].size(0), device=pairs.positive.device)
    total = pairs.rows(next_ones, graphs.repeat(len(pairs.comparison.against)))
    return soft_positive_part(total - pairs.positive)
