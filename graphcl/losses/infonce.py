"""InfoNCE, with the positive in the denominator (van den Oord et al. 2018)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("infonce")
def infonce(pairs: Pairs, *, temperature: Temperature = 0.2) -> Tensor:
    r"""InfoNCE: cross-entropy of picking the positive among itself and the negatives.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + \sum_j e^{s_{ij}}} = \mathrm{softplus}(A_i - s_i^+),
    \qquad s = c / \tau,\quad A_i = \log \sum_j e^{s_{ij}}$$

    The softplus form is the same number without the cancellation of logsumexp(all) - s+, so neither a small
    temperature nor a confident anchor costs precision. With A - s+ the loss is `dcl`: grad InfoNCE_i =
    sigmoid(A_i - s_i^+) grad DCL_i.

    Differs: SimCLR's code adds the two directions' means, which is twice this mean over all anchors.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).

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
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return soft_positive_part(total - pairs.positive / temperature)
