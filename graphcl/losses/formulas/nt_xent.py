"""NT-Xent, the loss of SimCLR (Chen et al. 2020)."""

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.formulas.infonce import infonce
from graphcl.losses.loss import Pairs, pairwise


@pairwise("nt_xent", fixed={"negatives": "all", "symmetric": True})
def nt_xent(pairs: Pairs, *, temperature: Temperature = 0.2) -> Tensor:
    r"""Compute NT-Xent: InfoNCE with both views of all other graphs as negatives.

    $$L_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + \sum_{j} e^{s_{ij}}}, \qquad s = c / \tau$$

    averaged over all 2N anchors. Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i
    and its positive, and tau the temperature. An anchor has M = 2N - 2 negatives. The loss equals
    `infonce(negatives="all")`.

    Differs: SimCLR uses temperature 0.1 for batches of 4,096 images, and 0.5 on CIFAR-10.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(nt_xent(z, z).exp()), 3)  # all cosines equal: 1 positive, 8 negatives
        9.0

    References:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020, Eq. 1 (arXiv
        2002.05709).
    """
    return infonce.formula(pairs, temperature=temperature)
