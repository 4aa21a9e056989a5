"""MoCo's loss: InfoNCE against a queue of keys (He et al. 2020)."""

from __future__ import annotations

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairwise import pairwise
from graphcl.losses.infonce import infonce


@pairwise("moco", method="moco", negatives="queue", symmetric=False)
def moco(pairs: Pairs, *, temperature: Temperature = 0.07) -> Tensor:
    r"""MoCo: InfoNCE of queries and keys, with a queue of earlier keys for negatives.

    $$L_i = -\log \frac{e^{q_i \cdot k_i^+ / \tau}}{e^{q_i \cdot k_i^+ / \tau} + \sum_{j} e^{q_i \cdot k_j / \tau}}$$

    with unit q and k, j over the queue. Without a queue, or while it is empty, the batch's other keys are the
    negatives: `infonce(symmetric=False)`. The queue and the momentum encoder are `--method moco`, which takes any other
    loss with an argument `queue` too.

    Differs: MoCo v2 uses temperature 0.2.

    Args:
        pairs: queries, their keys, and other keys.
        temperature: what cosines are divided by, > 0 (tau).

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z, queue = torch.ones(5, 3), torch.ones(7, 3)
        >>> round(float(moco(z, z, queue=queue).exp()), 3)  # all cosines equal: 1 positive, 7 negatives
        8.0

    References:
        He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, Eq. 1 (arXiv
        1911.05722). Chen et al., "Improved Baselines with Momentum Contrastive Learning", 2020 (arXiv 2003.04297).
    """
    return infonce.terms(pairs, temperature=temperature)
