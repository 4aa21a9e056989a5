"""Instance discrimination by noise-contrastive estimation (Wu et al. 2018)."""

import torch
from torch import Tensor

from graphcl.arguments import Finite, NonNegative, Temperature
from graphcl.distributed import ranks
from graphcl.losses.loss import Pairs, Row, linear, pairwise, softplus


@pairwise("instance_nce", method="memory_bank", negatives="queue", symmetric=False)
def instance_nce(
    pairs: Pairs,
    *,
    temperature: Temperature = 0.07,
    log_z: Finite | None = None,
    proximal: NonNegative = 0.0,
) -> Tensor:
    r"""Compute instance NCE: logistic regression of a graph's own memory-bank entry against noise entries.

    $$L_i = -\log h(s_i^+) - \sum_{k=1}^{K} \log (1 - h(s_{ik})) + \lambda \lVert v_i - m_i \rVert^2, \qquad
    h(s) = \frac{P}{P + K / n} = \sigma(s - \log Z_n - \log K), \quad P = \frac{e^{s}}{n Z_n}, \; s = c / \tau$$

    The bank has n entries, from which K noise entries are drawn uniformly. Here v_i is the projection of graph i, m_i
    its entry in the bank, c the cosine of a projection and an entry, tau the temperature and sigma the logistic
    function. The loss does not depend on n.

    Pass the noise as the queue. With `negatives="cross"` and no queue, the other rows of the batch are the noise. The
    normaliser Z_n is the mean of e^s over the noise of all ranks. The paper estimates Z_n once and keeps it.
    `--method memory_bank` does the same after a warm-up.

    Differs: all graphs of a batch share one set of noise entries. The paper draws K entries for each.

    Args:
        log_z: log Z_n; by default estimated from the noise, without a gradient by the rows.
        proximal: weight lambda of the distance to the graph's own entry, >= 0. This term smooths training.

    Example:
        >>> import torch
        >>> z = torch.ones(2, 3)
        >>> round(float(instance_nce(z, z, queue=z[:1]).exp()), 3)  # $h = 1/2$ for the positive and the one noise entry
        4.0

    References:
        Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018, Eq. 4 to 9
        (arXiv 1805.01978).
    """
    normaliser: Tensor | float | None = log_z
    if normaliser is None:
        exponent = linear(1 / temperature)
        with torch.no_grad():
            mean, total = pairs.expectation(exponent.constant())
        normaliser = log_mean_exp(pairs, exponent.varied(total, mean))
    shift = pairs.count.log() + normaliser

    def noise(row: Row, shift: Tensor) -> Tensor:
        return row.sum(softplus(row.value / temperature - shift[:, None]))

    positive = softplus(shift - pairs.positive / temperature)
    return positive + pairs.rows(noise, shift) + proximal * (2 - 2 * pairs.positive)


def log_mean_exp(pairs: Pairs, total: Tensor) -> Tensor:
    """Return the logarithm of the mean of e^s over all pairs of an anchor and a negative, on all ranks, a scalar.

    The logarithms of the anchors' sums of e^s are `total [A]`.
    """
    everything = total.masked_fill(pairs.isolated, -torch.inf).logsumexp(dim=0)
    count = pairs.count.masked_fill(pairs.isolated, 0.0).sum()
    if ranks.size() > 1:
        totals, counts = ranks.gather(torch.stack([everything, count])[None]).unbind(dim=1)
        everything, count = totals.logsumexp(dim=0), counts.sum()
    return everything - count.clamp(min=1).log()
