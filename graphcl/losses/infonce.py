"""InfoNCE, with the positive in the denominator (van den Oord et al. 2018)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.pairs import Negatives, Reduction, compare, reduce, soft_positive_part
from graphcl.registry import losses


@losses.register("infonce")
def infonce(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: Temperature = 0.2,
    negatives: Negatives = "cross",
    symmetric: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""InfoNCE: cross-entropy of picking the positive among itself and the negatives.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + \sum_j e^{s_{ij}}} = \mathrm{softplus}(A_i - s_i^+),
    \qquad s = c / \tau,\quad A_i = \log \sum_j e^{s_{ij}}$$

    The softplus form is the same number without the cancellation of logsumexp(all) - s+, so neither a small
    temperature nor a confident anchor costs precision. With A - s+ the loss is `dcl`: grad InfoNCE_i =
    sigmoid(A_i - s_i^+) grad DCL_i.

    Differs: SimCLR's and CLIP's code add the two directions' means, which is twice this mean over all anchors.

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        temperature: what cosines are divided by, > 0 (tau).
        negatives: `cross` (N - 1 negatives, of the other view) or `all` (2N - 2: NT-Xent).
        symmetric: whether both views' projections are anchors.
        reduction: `mean` over anchors, or `none` for the per-anchor terms `[A]`.

    Returns:
        A scalar, or `[A]`. With all cosines equal: log(1 + M) for M negatives.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(infonce(z, z).exp()), 3)  # all cosines equal: 1 positive, 4 negatives
        5.0

    References:
        van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018, Eq. 4
        (arXiv 1807.03748). Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations",
        ICML 2020, Eq. 1 (arXiv 2002.05709).
    """
    pairs = compare(z1, z2, negatives, symmetric)
    gap = (pairs.negative / temperature).logsumexp(dim=1) - pairs.positive / temperature
    return reduce(soft_positive_part(gap), reduction)
