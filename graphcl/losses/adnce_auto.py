"""ADNCE whose Gaussian is set by the batch: nothing to tune by data set (after Wu et al. 2023)."""

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
"""The least sigma: far above what rounding makes of equal cosines, which so keep equal weights."""


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
    r"""ADNCE with mu and sigma from each anchor's own negatives, by one of three rules.

    $$L_i = -\log \frac{e^{s_i^+}}{\sum_j w_{ij} e^{s_{ij}}}, \qquad
    w_{ij} = \frac{Q_{ij} e^{-s_{ij}}}{\frac1M \sum_k Q_{ik} e^{-s_{ik}}}, \qquad
    Q_{ij} = \frac{e^{\beta_i f_{ij}}}{\sum_k e^{\beta_i f_{ik}}}, \quad s = c / \tau$$

    The weights have mean 1 and are constants to the gradient. Q are the worst-case weights that they lead to: the share
    of the gradient that a negative gets. ADNCE's own are a Gaussian too, e^{s + log g} ~ e^{-(c - c*)^2 / 2 sigma^2}
    with c* = mu + sigma^2 / tau. So c* and sigma are set instead of mu and sigma, where the negatives show them:

    | `rule`     | f               | beta                                                                          |
    |------------|-----------------|-------------------------------------------------------------------------------|
    | `quantile` | -(c - c*)^2 / 2 | 1 / sigma^2, sigma = scale * the standard deviation of the anchor's negatives |
    | `radius`   | -(c - c*)^2 / 2 | 1 / sigma^2 such that KL(Q, uniform) = -log share: as if a share were left    |
    | `tilt`     | c               | 1 / temperature of the same radius: `cl_dro` by its constraint, not its price |

    c* is the peak-quantile of the anchor's negatives, the ceil(peak M)-th smallest: the 1 - peak most similar ones,
    those likely to be false, weigh the less the more similar they are. mu = c* - sigma^2 / tau is that of `adnce`.

    Shifting or stretching an anchor's cosines leaves Q as it is, so a setting means the same on every data set and at
    every stage of training. The temperature cancels out of Q: it only scales the gradient.

    At a fixed c* the radius rises with beta, d KL / d beta = beta Var_Q(f) >= 0, from 0 to the log of M over the number
    of nearest; at a fixed mu it does not. Beyond that, the greatest beta is taken: sigma is at least 1e-4 (beta at most
    1e3 with `tilt`), so that equal cosines, or a single negative, have equal weights as in `dcl`.

    Negatives far above c* are hardly pushed, so a low peak lets them meet: at peak 0.5 projections gathered about two
    poles (the cosines' standard deviation grew from 0.3 to 0.7 or 0.8 in 20 epochs, on MUTAG, PROTEINS and IMDB-BINARY,
    a seed each); at 0.9 they did not.

    Statistics are those of an anchor, not of the batch: how many of its negatives are its like, and how near, differs
    between anchors; and every engine holds an anchor's negatives at once. Of time, forward and backward on two views of
    128 x 96 takes 1.3 (`quantile`), 2.5 (`radius`) or 2.2 times (`tilt`) as long as `adnce`.

    Differs: the paper has mu and sigma by hand, for each data set, and names that its limit. The default peak is 1 less
    the class prior 0.1 that `debiased` takes; scale 1 and share 1/2 (a radius of one bit) are round numbers. None was
    chosen by a score; the rule was, by its accuracy on inner folds (docs/studies/adaptive.md): the Gaussian ones lose
    two points and more on NCI1, whose hardest negatives are worth pushing.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau); it only scales the gradient.
        rule: how the weights are set, see the table.
        peak: the quantile of the negatives' cosines that weighs most, in [0, 1]; at 1 no negative weighs less than a
            less similar one. Not for `tilt`.
        scale: the Gaussian's width in standard deviations of the negatives, > 0, for `quantile`. As it grows, negatives
            come to weigh the same; as it shrinks, the one at the quantile is left.
        share: e^-KL, which share of equally weighted negatives would be as uneven, in (0, 1], for `radius` and `tilt`;
            1 weighs all the same.

    Returns:
        A scalar, or `[A]`. With one negative, or equal ones: `dcl`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> from graphcl.losses.dcl import dcl
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
                f, most = c - row.filled(c, -torch.inf).amax(dim=1, keepdim=True), 1e3
            else:
                f, most = (c - quantile(row, peak)[:, None]).square() / -2, FLOOR**-2
            if rule == "quantile":
                variance = row.mean((c - row.mean(c)[:, None]).square())
                beta = 1 / (scale**2 * variance).clamp(min=FLOOR**2)
            else:
                beta = of_radius(row, f, -math.log(share), most)
            log_q = row.filled(beta[:, None] * f, -torch.inf).log_softmax(dim=1)
            q = log_q.exp().nan_to_num(0.0)  # (an anchor without any negative)
            level = row.logsumexp(log_q - c / temperature)
        # log(sum_j w_j e^{s_j}) = log M - level, whose gradient is that of sum_j Q_j s_j.
        mean = row.sum(q * row.value) / temperature
        return mean - mean.detach() - level.nan_to_num(0.0)

    return pairs.rows(weighted) + pairs.count.log() - pairs.positive / temperature


def quantile(row: Row, peak: float) -> Tensor:
    """The ceil(peak M)-th smallest of each anchor's M negatives, `[T]`; of none, 0."""
    if row.kept is None:
        count = row.value.size(1)
        return row.value.kthvalue(max(1, math.ceil(peak * count)), dim=1).values
    place = (peak * row.kept.sum(dim=1, keepdim=True).double()).ceil().long().clamp(min=1) - 1
    found = row.filled(row.value, torch.inf).sort(dim=1).values.gather(1, place).squeeze(1)
    return found.where(row.kept.any(dim=1), 0.0)


def of_radius(row: Row, f: Tensor, radius: float, most: float) -> Tensor:
    """The beta at which softmax(beta f) has a KL divergence from uniform, `[T]`; `most` where that is out of reach.

    Newton's method on log KL over log beta (a slope of 2 at first, flatter and flatter), within a bracket.

    Args:
        row: the negatives.
        f: at most 0, at least -2, and 0 for one or more `[T, M]`.
        radius: the divergence, >= 0.
        most: the greatest beta.
    """
    none = f.new_zeros(f.size(0))
    if radius == 0:
        return none
    log_count = torch.log(torch.as_tensor(row.count, dtype=f.dtype, device=f.device)).view(-1)

    def measure(beta: Tensor) -> tuple[Tensor, Tensor]:
        """KL, and the variance of f."""
        density = row.filled(torch.exp(beta[:, None] * f), 0.0)
        moment = density * f
        total = density.sum(dim=1).clamp(min=1)
        first, second = moment.sum(dim=1) / total, torch.linalg.vecdot(moment, f) / total
        return log_count + beta * first - total.log(), second - first.square()

    low, high = none + math.sqrt(2 * radius), none + most  # Var(f) <= 1, so KL <= beta^2 / 2
    reached = measure(high)[0] > radius
    beta = math.sqrt(2 * radius) * measure(none)[1].clamp(min=1e-30).rsqrt()
    for _ in range(20 if f.dtype == torch.float64 else 8):
        beta = torch.where((beta >= low) & (beta <= high), beta, (low * high).sqrt())
        divergence, variance = measure(beta)
        above = divergence > radius
        low, high = torch.where(above, low, beta), torch.where(above, beta, high)
        slope = beta.square() * variance / divergence.clamp(min=1e-12)
        beta = beta * (radius / divergence.clamp(min=1e-12)).pow(1 / slope.clamp(min=1e-12))
    return beta.clamp(low, high).where(reached, most)
