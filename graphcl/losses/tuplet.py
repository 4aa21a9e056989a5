"""The (N+1)-tuplet loss (Sohn 2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Count
from graphcl.losses.checks import check_views, check_weight
from graphcl.losses.comparison import Pairs
from graphcl.losses.exponent import linear
from graphcl.losses.pairs import compare, explicit
from graphcl.losses.pairwise import Reduction, reduce, soft_positive_part
from graphcl.registry import losses


@losses.register("tuplet", method="two_views", gathering="gather_negatives")
def tuplet(
    z1: Tensor,
    z2: Tensor,
    *,
    num_negatives: Count | None = None,
    symmetric: bool = True,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""(N+1)-tuplet: each anchor has one positive and a few negatives of its own, on dot products.

    $$L_i = \log \Big( 1 + \sum_{j=1}^{K} e^{f_i \cdot f_j - f_i \cdot f_i^+} \Big)$$

    The negatives of row i are rows i + 1 to i + K of the other view, the first row following the last; as a batch is in
    random order, that is a random choice. `n_pair` shares all rows among all tuples. For tuplets of your own, there is
    `tuplet.terms(explicit(anchors, positives, negatives, "dot"))`.

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        num_negatives: K, at least 1; by default, and at most, N - 1.
        symmetric: whether both views' projections are anchors.
        weight: of each graph in the mean, `[N]`, >= 0.
        reduction: `mean` over anchors, or `none` for the per-anchor terms `[A]`.

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
    check_views(z1, z2)
    n = z1.size(0)
    if weight is not None:
        check_weight(weight, n)
    wanted = min(num_negatives or n - 1, n - 1)
    with torch.autocast(z1.device.type, enabled=False):
        if wanted == n - 1:
            return reduce(
                _terms(compare(z1, z2, "cross", symmetric, similarity="dot", normalized=False)), reduction, weight
            )
        position = torch.arange(n, device=z1.device)
        others = (position[:, None] + position[1 : wanted + 1]) % n
        directions = ((z1, z2), (z2, z1)) if symmetric else ((z1, z2),)
        terms = [_terms(explicit(a, b, b[others], "dot")) for a, b in directions]
        return reduce(torch.cat(terms), reduction, weight)


def _terms(pairs: Pairs) -> Tensor:
    """The terms of tuplets `[A]`."""
    (total,) = pairs.logsumexp(linear(1.0))
    return soft_positive_part(total - pairs.positive)


tuplet.terms = _terms  # type: ignore[attr-defined]
