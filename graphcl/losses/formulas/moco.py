"""MoCo: InfoNCE with a queue of keys (He et al. 2020)."""

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.formulas.infonce import infonce
from graphcl.losses.loss import Pairs, pairwise


@pairwise("moco", method="moco", negatives="queue", symmetric=False)
def moco(pairs: Pairs, *, temperature: Temperature = 0.07) -> Tensor:
    r"""Compute the loss of MoCo: InfoNCE of queries and keys, with earlier keys from a queue as negatives.

    $$L_i = -\log \frac{e^{q_i \cdot k_i^+ / \tau}}{e^{q_i \cdot k_i^+ / \tau} + \sum_{j} e^{q_i \cdot k_j / \tau}}$$

    Here the queries q and the keys k have norm 1, tau is the temperature, and the sum is over the keys k_j in the
    queue. If the queue is empty, the other keys of the batch are the negatives, as in `infonce(symmetric=False)`.
    `--method moco` provides the queue and the momentum encoder for any loss with an argument `queue`.

    This function also computes a gradient with respect to the keys `z2`. `--method moco` computes the keys without
    gradient; in your own training loop, pass `z2.detach()`.

    Differs: MoCo v2 uses temperature 0.2.

    Example:
        >>> import torch
        >>> z, queue = torch.ones(5, 3), torch.ones(7, 3)
        >>> round(float(moco(z, z, queue=queue).exp()), 3)  # all cosines equal: 1 positive, 7 negatives
        8.0

    References:
        He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, Eq. 1 (arXiv
        1911.05722). Chen et al., "Improved Baselines with Momentum Contrastive Learning", 2020 (arXiv 2003.04297).
    """
    return infonce.formula(pairs, temperature=temperature)
