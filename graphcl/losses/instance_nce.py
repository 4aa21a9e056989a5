"""Instance discrimination by noise-contrastive estimation (Wu et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Finite, NonNegative, Temperature
from graphcl.distributed import ranks
from graphcl.losses.engine.comparison import Pairs, Row
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("instance_nce", method="memory_bank", negatives="queue", symmetric=False)
def instance_nce(
    pairs: Pairs,
    *,
    temperature: Temperature = 0.07,
    log_z: Finite | None = None,
    proximal: NonNegative = 0.0,
) -> Tensor:
    r"""Instance NCE: a logistic regression of each graph's own entry in a memory bank against noise from the bank.

    $$L_i = -\log h(s_i^+) - \sum_{k=1}^{K} \log (1 - h(s_{ik})) + \lambda \lVert v_i - m_i \rVert^2, \qquad
    h(s) = \frac{P}{P + K / n} = \sigma(s - \log Z_n - \log K), \quad P = \frac{e^{s}}{n Z_n}, \; s = c / \tau$$

    for a bank of n entries from which noise is drawn uniformly; n cancels. Z_n is the mean of e^s, which the paper
    estimates once and then keeps: so does `--method memory_bank`, after a warm-up.

    Across ranks, the noise at hand is that of all of them.

    Noise are the entries of a bank, given as the queue; without one, the other rows of the batch.

    Args:
        pairs: anchors v, positives (their entries m in the bank) and negatives (noise).
        temperature: what cosines are divided by, > 0 (tau).
        log_z: log Z_n, a known mean of e^s, as its logarithm; by default that of the noise at hand, as a constant.
        proximal: lambda, >= 0, the pull towards the entry of the last visit, which smooths training.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(2, 3)
        >>> round(float(instance_nce(z, z).exp()), 3)  # $h = 1/2$ for the positive and the one noise sample
        4.0

    References:
        Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018, Eq. 4 to 9
        (arXiv 1805.01978).
    """
    if log_z is None:
        (total,) = pairs.logsumexp(linear(1 / temperature))
        known: Tensor | float = log_mean_exp(pairs, total.detach())
    else:
        known = log_z
    shift = pairs.count.log() + known

    def noise(row: Row, shift: Tensor) -> Tensor:
        return row.sum(soft_positive_part(row.value / temperature - shift[:, None]))

    own = soft_positive_part(shift - pairs.positive / temperature)
    return own + pairs.rows(noise, shift) + proximal * (2 - 2 * pairs.positive)


def log_mean_exp(pairs: Pairs, total: Tensor) -> Tensor:
    """Logarithm of the mean of e^s over all anchors' negatives, given the logarithms of the anchors' sums `[A]`.

    Across ranks, over the anchors of all; a constant to the gradient then.
    """
    everything = total.masked_fill(pairs.alone, -torch.inf).logsumexp(dim=0)
    count = pairs.count.masked_fill(pairs.alone, 0.0).sum()
    if ranks.size() > 1:
        found = ranks.gather(torch.stack([everything, count])[None].detach())
        everything, count = found[:, 0].logsumexp(dim=0), found[:, 1].sum()
    return everything - count.clamp(min=1).log()
