"""ADNCE with mu and sigma set from the batch (after Wu et al. 2023): a loss outside of the package.

Importing this module registers the loss `adnce_auto`. adaptive.py measures it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from graphcl.arguments import Fraction, Positive, Temperature, interval
from graphcl.losses.engine.comparison import Pairs, Row
from graphcl.losses.engine.pairwise import pairwise

Share = Annotated[float, interval("(0, 1]")]

FLOOR = 1e-4
"""Smallest sigma: far above the rounding error of the cosines, so that equal cosines get equal weights."""


@pairwise("adnce_auto")
def adnce_auto(
    pairs: Pairs,
    *,
    temperature: Temperature = 0.2,
    rule: Literal["quantile", "radius", "tilt"] = "tilt",
    peak: Fraction = 0.9,
    scale: Positive = 1.0,
    share: Share = 0.5,
) -> Tensor:
    r"""Compute ADNCE with mu and sigma derived from each anchor's negatives instead of tuned.

    $$L_i = -\log \frac{e^{s_i^+}}{\sum_j w_{ij} e^{s_{ij}}}, \qquad
    w_{ij} = \frac{Q_{ij} e^{-s_{ij}}}{\frac1M \sum_k Q_{ik} e^{-s_{ik}}}, \qquad
    Q_{ij} = \frac{e^{\beta_i f_{ij}}}{\sum_k e^{\beta_i f_{ik}}}, \quad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, M the number
    of negatives and tau the temperature. The weights w have mean 1 and are detached. Q is the distribution
    of the gradient over the negatives. For `adnce`, Q is a Gaussian in c, with center
    c* = mu + sigma^2 / tau and width sigma. This loss computes Q directly from the negatives, by one of three rules:

    | `rule`     | f               | beta                                                                            |
    |------------|-----------------|---------------------------------------------------------------------------------|
    | `quantile` | -(c - c*)^2 / 2 | 1 / sigma^2 with sigma = scale * standard deviation of the anchor's negatives   |
    | `radius`   | -(c - c*)^2 / 2 | 1 / sigma^2 such that KL(Q, uniform) = -log share                               |
    | `tilt`     | c               | such that KL(Q, uniform) = -log share: `cl_dro` with a radius, not a multiplier |

    c* is the ceil(peak M)-th smallest of the anchor's negative cosines. Negatives with a cosine above c* are likely to
    be false; the larger their cosine, the smaller is Q. The mu of `adnce` is c* - sigma^2 / tau.

    Q does not change if an anchor's cosines are shifted or scaled, so peak, scale and share have the same meaning on
    every data set and at every stage of training. Q does not depend on the temperature, which only scales the gradient.

    At a fixed c* the KL divergence rises with beta, as d KL / d beta = beta Var_Q(f) >= 0. It rises from 0 to
    log(M / m), where m is the number of negatives with the largest f. If -log share exceeds this limit, the largest
    beta is used: sigma = 1e-4, or beta = 1e3 for `tilt`. Equal cosines, or a single negative, get equal weights, as in
    `dcl`.

    A low peak can collapse the projections, since negatives far above c* are hardly repelled. With peak 0.5 the
    projections collapsed to two poles on MUTAG, PROTEINS and IMDB-BINARY: the standard deviation of the cosines rose
    from 0.3 to 0.7 or 0.8 in 20 epochs, one seed each. With 0.9 they did not.

    Forward and backward pass of two views `[128, 96]` take 1.4 (`quantile`), 4.0 (`radius`) or 3.6 (`tilt`) times as
    long as `adnce`.

    Differs: the paper tunes mu and sigma by hand for each data set and names this as a limitation. The default peak
    is 1 minus the class prior 0.1 of `debiased`; scale 1 and share 1/2 are round numbers, not tuned. The default rule
    was chosen by accuracy on inner folds (docs/studies/adaptive.md): the Gaussian rules lose two points or more on
    NCI1.

    Args:
        pairs: anchors, positives and negatives.
        temperature: divisor of the cosines, >= 1e-6 (tau); only scales the gradient.
        rule: rule that computes Q, see the table.
        peak: quantile of the negatives' cosines at which Q is largest, in [0, 1], for `quantile` and `radius`. With 1,
            Q rises with the cosine.
        scale: width of the Gaussian in standard deviations of the negatives' cosines, > 0, for `quantile`. A large
            scale makes Q uniform; a small scale concentrates it on the negative at the quantile.
        share: e^-KL(Q, uniform), in (0, 1], for `radius` and `tilt`. A distribution that is uniform on a fraction
            `share` of the negatives and 0 elsewhere has the same KL. With 1, Q is uniform.

    Returns:
        The mean over anchors, or with `reduction="none"` their terms `[A]`.
        With one negative per anchor, or equal cosines: `dcl`.

    Example:
        >>> import torch
        >>> from graphcl.losses import dcl
        >>> z = torch.ones(5, 3)
        >>> bool(torch.isclose(adnce_auto(z, z), dcl(z, z)))  # all cosines equal
        True

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023, Eq. 12
        and Sec. 3 (arXiv 2310.11048). Chuang et al., "Debiased Contrastive Learning", NeurIPS 2020 (arXiv 2007.00224).
    """

    def weighted(row: Row) -> Tensor:
        with torch.no_grad():
            c = row.value.detach()
            if rule == "tilt":
                f, max_beta = c - row.filled(c, -torch.inf).amax(dim=1, keepdim=True), 1e3
            else:
                f, max_beta = (c - quantile(row, peak)[:, None]).square() / -2, FLOOR**-2
            if rule == "quantile":
                variance = row.mean((c - row.mean(c)[:, None]).square())
                beta = 1 / (scale**2 * variance).clamp(min=FLOOR**2)
            else:
                beta = solve_beta(row, f, -math.log(share), max_beta)
            log_q = row.filled(beta[:, None] * f, -torch.inf).log_softmax(dim=1)
            q = log_q.exp().nan_to_num(0.0)  # an anchor without negatives gives NaN
            level = row.logsumexp(log_q - c / temperature)
        # The value is log(sum_j w_j e^{s_j}) - log M = -level. As w is constant, the gradient is that of sum_j Q_j s_j.
        mean = row.sum(q * row.value) / temperature
        return mean - mean.detach() - level.nan_to_num(0.0)

    return pairs.rows(weighted) + pairs.count.log() - pairs.positive / temperature


def quantile(row: Row, peak: float) -> Tensor:
    """Return the ceil(peak M)-th smallest of each anchor's M similarities, `[T]`. Anchors without negatives get 0."""
    if row.kept is None:
        count = row.value.size(1)
        return row.value.kthvalue(max(1, math.ceil(peak * count)), dim=1).values
    place = (peak * row.kept.sum(dim=1, keepdim=True).double()).ceil().long().clamp(min=1) - 1
    found = row.filled(row.value, torch.inf).sort(dim=1).values.gather(1, place).squeeze(1)
    return found.where(row.kept.any(dim=1), 0.0)


def solve_beta(row: Row, f: Tensor, radius: float, max_beta: float) -> Tensor:
    """Return for each anchor the beta with KL(softmax(beta f), uniform) = `radius`, clipped at `max_beta`, `[T]`.

    The solver is Newton's method within a bracket, on log KL as a function of log beta. It uses bisection where
    Newton's method converges slowly. The slope of this function is 2 at beta = 0 and falls as beta rises.

    Args:
        row: negatives of T anchors.
        f: values in [-2, 0] with a maximum of 0 in each row, `[T, M]`.
        radius: KL divergence, >= 0.
        max_beta: largest beta.
    """
    zeros = f.new_zeros(f.size(0))
    if radius == 0:
        return zeros
    count = row.count
    log_count = count.to(f.dtype).log().view(-1) if isinstance(count, Tensor) else math.log(count)

    def measure(beta: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL(Q, uniform) and the variance of f under Q, `[T]` each, for Q = softmax(beta f)."""
        density = row.filled(torch.exp(beta[:, None] * f), 0.0)
        moment = density * f
        total = density.sum(dim=1).clamp(min=1)
        first, second = moment.sum(dim=1) / total, torch.linalg.vecdot(moment, f) / total
        return log_count + beta * first - total.log(), second - first.square()

    # Var(f) <= 1, so KL <= beta^2 / 2, and sqrt(2 radius) is a lower bound.
    low, high = zeros + math.sqrt(2 * radius), zeros + max_beta
    reached = measure(high)[0] > radius
    beta = math.sqrt(2 * radius) * measure(zeros)[1].clamp(min=1e-30).rsqrt()
    before, step = low, zeros + torch.inf
    for _ in range(20 if f.dtype == torch.float64 else 14):
        # Bisect if Newton's step leaves the bracket or exceeds half the previous step: KL(beta) can have plateaus, for
        # example with two almost equal negatives.
        newton = (beta >= low) & (beta <= high) & ((beta / before).log().abs() <= step / 2)
        beta = torch.where(newton, beta, (low * high).sqrt())
        before, step = beta, (beta / before).log().abs()
        divergence, variance = measure(beta)
        above = divergence > radius
        low, high = torch.where(above, low, beta), torch.where(above, beta, high)
        slope = beta.square() * variance / divergence.clamp(min=1e-12)
        beta = beta * (radius / divergence.clamp(min=1e-12)).pow(1 / slope.clamp(min=1e-12))
    return beta.clamp(low, high).where(reached, max_beta)
