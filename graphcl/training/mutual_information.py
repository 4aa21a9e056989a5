r"""Estimates of the mutual information between two views, each a function of the scores of all pairs of a batch.

`scores [N, N]` holds the critic f of each anchor (row) with each key (column), with the positives on the diagonal. The
diagonal is a sample of the joint distribution P of the two views, and the N (N - 1) other entries are one of the
product Q of their marginals. Each estimate is a lower bound of a divergence D(P || Q) for every critic f, and is tight
for the best one only. Mutual information is the divergence KL.

Two forms of bounds stand beside each other. With the convex conjugate phi* of the divergence's phi,

$$D_\phi(P \| Q) \ge E_P f - E_Q\, \phi^*(f), \qquad
D_\phi(P \| Q) \ge E_P f - \min_l \{l + E_Q\, \phi^*(f - l)\}$$

The second, the tighter form, uses that P and Q are probability distributions. It is never below the first, which is its
case l = 0, and does not change with a constant added to f. `nwj` is the first form of KL, `donsker_varadhan` the
second; `chi_square` is the second form of chi-square.

References:
    Ruderman et al., "Tighter Variational Representations of f-Divergences via Restriction to Probability Measures",
    ICML 2012 (arXiv 1206.4664), the tighter form. Wu et al., "Understanding Contrastive Learning via Distributionally
    Robust Optimization", NeurIPS 2023 (arXiv 2310.11048), who show that it is what a contrastive loss maximises. Poole
    et al., "On Variational Bounds of Mutual Information", ICML 2019 (arXiv 1905.06922), for the bias and variance.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import softplus

from graphcl.losses.pairs import off_diagonal

LARGEST_EXPONENT = 80.0
"""Bound on the exponent in `nwj`: e^80 is finite in float32, also when the values of some ranks are added."""


def infonce_bound(scores: Tensor) -> Tensor:
    r"""Return the InfoNCE estimate of the mutual information, in nats: log N minus the loss, at most log N.

    $$\log N - \frac1N \sum_i \log \frac{\sum_j e^{f_{ij}}}{e^{f_{ii}}}$$

    The sum over j contains the positive. In expectation the estimate is a lower bound of the information for every
    critic and every N. It cannot exceed log N: near log N it only says that the information is at least as large. It
    varies little from batch to batch, also where the others vary by nats. A number added to all scores of an anchor
    changes nothing.

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal.

    Example:
        >>> import torch
        >>> round(float(infonce_bound(9 * torch.eye(5)).exp()), 2)  # 5 rows: near log 5
        5.0

    References:
        van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018, Sec. 2.3
        (arXiv 1807.03748).
    """
    return math.log(len(scores)) - (scores.logsumexp(dim=1) - scores.diagonal()).mean()


def donsker_varadhan(scores: Tensor) -> Tensor:
    r"""Return the Donsker-Varadhan estimate of the mutual information, in nats.

    $$E_P f - \log E_Q\, e^f$$

    It is the tighter form E_P f - min_l {l + E_Q phi*(f - l)} of the divergence KL. There, phi(u) = u log u,
    phi*(t) = e^{t - 1}, and the best l is log E_Q e^f - 1. With exact expectations it is a lower bound for every
    critic. On a batch it is not: the logarithm of a sample's mean is too small on average, so the estimate is too
    large. Rare pairs of Q with high scores decide the mean of e^f. The number of rows needed to see them grows
    exponentially with the information.

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal, N >= 2.

    References:
        Donsker and Varadhan, "Asymptotic Evaluation of Certain Markov Process Expectations for Large Time IV", 1983.
        Belghazi et al., "Mutual Information Neural Estimation", ICML 2018 (arXiv 1801.04062). McAllester and Stratos,
        "Formal Limitations on the Measurement of Mutual Information", AISTATS 2020 (arXiv 1811.04251).
    """
    return scores.diagonal().mean() - _log_mean_exp(off_diagonal(scores))


def nwj(scores: Tensor) -> Tensor:
    r"""Return the estimate of Nguyen, Wainwright and Jordan of the mutual information, in nats.

    $$E_P f - E_Q\, e^{f - 1}$$

    It is the first form of the divergence KL (phi(u) = u log u, phi*(t) = e^{t - 1}), and never above
    `donsker_varadhan`. In expectation it is a lower bound for every critic, also on a batch. The best critic is 1 plus
    the log of the density ratio. A constant c added to it costs e^c - 1 - c, and a loss such as InfoNCE leaves that
    constant free, so the estimate can be a huge negative number. With the best critic its variance is at least
    (e^I - 1) / (N (N - 1)) for the information I. The exponent is at most 80, so that the estimate is finite.

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal, N >= 2.

    References:
        Nguyen, Wainwright and Jordan, "Estimating Divergence Functionals and the Likelihood Ratio by Convex Risk
        Minimization", 2010 (arXiv 0809.0853). Song and Ermon, "Understanding the Limitations of Variational Mutual
        Information Estimators", ICLR 2020 (arXiv 1910.06222), for the variance.
    """
    exponent = _log_mean_exp(off_diagonal(scores)) - 1
    return scores.diagonal().mean() - exponent.clamp(max=LARGEST_EXPONENT).exp()


def jensen_shannon(scores: Tensor) -> Tensor:
    r"""Return an estimate of the Jensen-Shannon divergence of P and Q, in nats, at most log 2; not of the information.

    $$\log 2 - \tfrac12 \big(E_P\, \mathrm{softplus}(-f) + E_Q\, \mathrm{softplus}(f)\big)$$

    The divergence is the mean of KL(P || R) and KL(Q || R) with R = (P + Q) / 2. In expectation the estimate is a lower
    bound of it for every critic, also on a batch, and the best critic is the log of the density ratio. The variance is
    small, as softplus(f) is about f for a rare pair, not e^f. The divergence grows with the information but saturates
    at log 2, and no formula turns it into nats of information.

    Differs: the objective of f-GAN and Deep InfoMax is a bound of twice this divergence minus 2 log 2.

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal, N >= 2.

    References:
        Nowozin, Cseke and Tomioka, "f-GAN", NeurIPS 2016, Tab. 2 (arXiv 1606.00709). Hjelm et al., "Learning Deep
        Representations by Mutual Information Estimation and Maximization", ICLR 2019, Eq. 4 (arXiv 1808.06670).
    """
    return math.log(2) - (softplus(-scores.diagonal()).mean() + softplus(off_diagonal(scores)).mean()) / 2


def chi_square(scores: Tensor) -> Tensor:
    r"""Return an estimate of the chi-square divergence of P from Q, without a unit; not of the information.

    $$E_P f - E_Q f - \tfrac14 \mathrm{Var}_Q f$$

    It is the tighter form E_P f - min_l {l + E_Q phi*(f - l)} for phi(u) = (u - 1)^2 on all numbers u. There,
    phi*(t) = t + t^2 / 4, and the best l is E_Q f. The divergence is E_Q (u - 1)^2 with the density ratio u = dP / dQ,
    at least e^I - 1 for the information I. The best critic is 2 u, not log u: a critic trained by InfoNCE gives a loose
    bound, negative if the scores of Q spread. With the best critic, rare pairs decide the estimate, and a batch has
    none of them.

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal, N >= 2.

    References:
        Ruderman et al., "Tighter Variational Representations of f-Divergences via Restriction to Probability Measures",
        ICML 2012 (arXiv 1206.4664). Wu et al., "Understanding Contrastive Learning via Distributionally Robust
        Optimization", NeurIPS 2023 (arXiv 2310.11048).
    """
    product = off_diagonal(scores)
    return scores.diagonal().mean() - product.mean() - product.var(correction=0) / 4


def estimates(scores: Tensor) -> dict[str, Tensor]:
    r"""Return all estimates by the names under which `--diagnostics` logs them.

    | name                  | function           | in expectation at most                                              |
    |-----------------------|--------------------|---------------------------------------------------------------------|
    | `mi_infonce`          | `infonce_bound`    | mutual information, in nats                                         |
    | `mi_limit`            | log N              | it is what `mi_infonce` cannot exceed                               |
    | `mi_donsker_varadhan` | `donsker_varadhan` | mutual information, in nats; more on small batches                  |
    | `mi_nwj`              | `nwj`              | mutual information, in nats                                         |
    | `jensen_shannon`      | `jensen_shannon`   | Jensen-Shannon divergence, in nats                                  |
    | `chi_square`          | `chi_square`       | chi-square divergence, without a unit                               |

    Args:
        scores: critic of all pairs `[N, N]`, the positives on the diagonal, N >= 2.
    """
    return {
        "mi_infonce": infonce_bound(scores),
        "mi_limit": scores.new_full((), math.log(len(scores))),
        "mi_donsker_varadhan": donsker_varadhan(scores),
        "mi_nwj": nwj(scores),
        "jensen_shannon": jensen_shannon(scores),
        "chi_square": chi_square(scores),
    }


def _log_mean_exp(values: Tensor) -> Tensor:
    """Return the logarithm of the mean of e^values, without overflow."""
    return values.flatten().logsumexp(dim=0) - math.log(values.numel())
