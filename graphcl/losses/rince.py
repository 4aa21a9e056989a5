"""RINCE: a contrastive loss robust to noisy views (Chuang et al. 2022)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from graphcl.arguments import Temperature, interval
from graphcl.errors import InputError
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise

Share = Annotated[float, interval("(0, 1]")]

LARGEST = 60.0
"""e to more than 88 overflows float32; the rest is for the sum over negatives and the mean."""


@pairwise("rince")
def rince(pairs: Pairs, *, temperature: Temperature = 0.2, q: Share = 0.5, lam: Share = 0.01) -> Tensor:
    r"""RINCE: between InfoNCE (q to 0) and a symmetric loss that noisy positives do not mislead (q = 1).

    $$L_i = -\frac{e^{q s_i^+}}{q} + \frac{\big(\lambda (e^{s_i^+} + \sum_j e^{s_{ij}})\big)^q}{q},
    \quad s = c / \tau$$

    Positives far from their anchor weigh less than in InfoNCE. For q to 0 the gradient tends to InfoNCE's.

    Differs: the paper uses `negatives="all"`. The value, unlike others of the family, grows with e^{q / tau}.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        q: robustness, in (0, 1]; the paper tries 0.1 to 0.6.
        lam: weight of the denominator, in (0, 1] (lambda).

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, q / temperature above 60 (e^{q s} would overflow), shapes that differ,
            fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> round(float(rince(z, z, q=1.0, lam=1.0)), 3)  # what is left with q = 1: the two negatives' e^0
        2.0

    References:
        Chuang et al., "Robust Contrastive Learning against Noisy Views", CVPR 2022, Eq. 4 (arXiv 2201.04309).
    """
    if q / temperature > LARGEST:
        raise InputError(
            f"`q` / `temperature` must be at most {LARGEST:g}, as e^(q s) overflows beyond, got {q} / {temperature}."
        )
    (total,) = pairs.logsumexp(linear(1 / temperature))
    positive = pairs.positive / temperature
    everything = torch.logaddexp(positive, total) + math.log(lam)
    return (q * positive).exp() * torch.expm1(q * (everything - positive)) / q
