"""InfoNCE (van den Oord et al. 2018)."""

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.loss import Pairs, linear, pairwise, softplus


@pairwise("infonce")
def infonce(pairs: Pairs, *, temperature: Temperature = 0.2) -> Tensor:
    r"""Compute InfoNCE: cross-entropy of identifying the positive among the positive and the negatives.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + \sum_j e^{s_{ij}}} = \mathrm{softplus}(A_i - s_i^+),
    \qquad s = c / \tau,\quad A_i = \log \sum_j e^{s_{ij}}$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and tau the
    temperature. The softplus form avoids the cancellation in logsumexp(all) - s_i^+ at low temperatures and for easy
    positives. The argument of the softplus is the loss `dcl`: grad InfoNCE_i = sigmoid(A_i - s_i^+) grad DCL_i.

    Differs: SimCLR's code adds the means of the two directions, which gives twice the mean over all anchors.

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
    return softplus(total - pairs.positive / temperature)
