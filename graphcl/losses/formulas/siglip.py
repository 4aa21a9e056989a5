"""SigLIP: pairwise sigmoid loss (Zhai et al. 2023)."""

from torch import Tensor

from graphcl.arguments import Finite, Temperature
from graphcl.losses.loss import Pairs, Row, pairwise, softplus


@pairwise("siglip")
def siglip(pairs: Pairs, *, temperature: Temperature = 0.1, bias: Finite = -10.0) -> Tensor:
    r"""Compute SigLIP: logistic regression of whether two graphs are a pair, for each pair on its own.

    $$L_i = \mathrm{softplus}(-s_i^+ - b) + \sum_j \mathrm{softplus}(s_{ij} + b), \qquad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, tau the
    temperature and b the bias. With the paper's scale t = 1 / tau and labels y_ij = 1 for a positive and -1 for a
    negative, the mean of L_i over anchors is

    $$L = -\frac1N \sum_i \sum_j \log \sigma(y_{ij} (t\, c_{ij} + b)).$$

    No sum over negatives is normalised, so a pair's gradient does not depend on the other pairs of the batch. A
    negative bias starts the training near the prior that a pair is a negative. With cross-view negatives, both
    directions have the same mean.

    Differs: the paper learns t and b, from t = 10 and b = -10. Here both are these constants by default. With
    `temperature="learn"` the module `Loss` learns t, as log t; b stays constant.

    Args:
        bias: bias b that is added to the logits, finite.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(siglip(z, z).exp()), 3)  # all cosines 1, all logits 0: log 2 for each of 5 pairs
        32.0

    References:
        Zhai et al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023, Sec. 3.2 (arXiv 2303.15343).
    """

    def push(row: Row) -> Tensor:
        return row.sum(softplus(row.value / temperature + bias))

    return softplus(-pairs.positive / temperature - bias) + pairs.rows(push)
