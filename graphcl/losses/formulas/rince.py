"""RINCE: a contrastive loss robust to noisy views (Chuang et al. 2022)."""

import math
from typing import Annotated

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError
from torch import Tensor

from graphcl.arguments import Temperature, interval
from graphcl.losses.loss import Pairs, linear, pairwise, softplus

LARGEST = 60.0
"""Largest q / temperature: e^88 overflows float32, and sums over negatives and anchors need a margin."""


def _check_power(q: float, info: ValidationInfo) -> float:
    temperature = info.data.get("temperature", math.inf)  # not there if it is invalid itself
    if q / temperature > LARGEST:
        rule = f"must be at most {LARGEST:g} times `temperature`, or e^(q s) overflows, got {q} at {temperature}"
        raise PydanticCustomError("interval", rule)
    return q


Share = Annotated[float, interval("(0, 1]")]
Power = Annotated[Share, AfterValidator(_check_power), Field(validate_default=True)]


@pairwise("rince")
def rince(pairs: Pairs, *, temperature: Temperature = 0.2, q: Power = 0.5, lam: Share = 0.01) -> Tensor:
    r"""Compute RINCE: a loss between InfoNCE (q near 0) and a symmetric loss robust to false positives (q = 1).

    $$L_i = -\frac{e^{q s_i^+}}{q} + \frac{\big(\lambda (e^{s_i^+} + \sum_j e^{s_{ij}})\big)^q}{q},
    \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and tau the
    temperature. Dissimilar positives get smaller gradients than in InfoNCE. As q tends to 0, the gradient tends to that
    of InfoNCE. The value grows with e^{q / tau}, unlike the value of InfoNCE.

    Differs: the paper uses `negatives="all"`.

    Args:
        q: robustness, in (0, 1] and at most 60 times the temperature; the paper uses 0.1 to 0.6.
        lam: weight lambda of the denominator, in (0, 1].

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> round(float(rince(z, z, q=1.0, lam=1.0)), 3)  # q = 1, lam = 1: the positives cancel, two e^0 remain
        2.0

    References:
        Chuang et al., "Robust Contrastive Learning against Noisy Views", CVPR 2022, Eq. 4 (arXiv 2201.04309).
    """
    (total,) = pairs.logsumexp(linear(1 / temperature))
    positive = q * pairs.positive / temperature
    # `gap` is the logarithm of the ratio of the two terms. The softplus keeps small values of `gap`, which a difference
    # of logarithms would round to 0.
    gap = q * (softplus(total - pairs.positive / temperature) + math.log(lam))
    # Factor out the larger term, so that no exponential exceeds e^(q / temperature).
    up, down = gap.clamp(min=0), gap.clamp(max=0)
    larger = torch.where(gap > 0, positive + gap, positive).exp()
    return larger * torch.where(gap > 0, -torch.expm1(-up), torch.expm1(down)) / q
