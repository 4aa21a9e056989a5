"""Lower bounds of the mutual information between the two views, on the pairs that the losses use."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Arguments, Temperature
from graphcl.losses.engine.comparison import Row
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairs import Engine, compare
from graphcl.losses.engine.pairwise import soft_positive_part
from graphcl.losses.instance_nce import log_mean_exp


@torch.no_grad()
def estimate(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: Temperature = 0.2,
    negatives: Literal["cross", "all"] = "cross",
    symmetric: bool = True,
    engine: Engine = "auto",
) -> dict[str, Tensor]:
    r"""Estimates with the critic f = s = c / tau, in nats, as metrics: no gradient.

    With E_P over positive pairs, E_Q over all anchors and their negatives, M negatives an anchor:

    | name      | estimate                                                             | bound                        |
    |-----------|----------------------------------------------------------------------|------------------------------|
    | `infonce` | $\log(1 + M) - L_\mathrm{InfoNCE}$                                   | at most log(1 + M)           |
    | `dv`      | $E_P f - \log E_Q e^f$                                               | Donsker-Varadhan             |
    | `nwj`     | $1 + E_P (f - 1) - E_Q e^{f - 1}$                                    | at most `dv`                 |
    | `js`      | $2 \log 2 - E_P\,\mathrm{softplus}(-f) - E_Q\,\mathrm{softplus}(f)$  | of twice the JS divergence   |
    | `kl`      | $E_P f - \min_l \{ l + E_Q \phi^*(f - l) \}$, phi that of KL         | the tight f-MI; equals `dv`  |
    | `chi2`    | $E_P f - E_Q f - \mathrm{Var}_Q f / 4$: the same for phi = (u - 1)^2 | of the chi-square divergence |

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`.
        temperature: what cosines are divided by, > 0 (tau).
        negatives: who stands for Q, see `graphcl.losses.engine.pairs`.
        symmetric: whether both views' projections are anchors.
        engine: `dense`, `tiled` or `auto`.

    Returns:
        Scalars by name.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> z = torch.eye(8)
        >>> found = estimate(z, z, temperature=0.05)  # each view tells which of 8 graphs it is
        >>> round(float(found["infonce"].exp()), 3)
        8.0

    References:
        Poole et al., "On Variational Bounds of Mutual Information", ICML 2019 (arXiv 1905.06922). Ruderman et al.,
        "Tighter Variational Representations of f-Divergences via Restriction to Probability Measures", ICML 2012
        (arXiv 1206.4664). Wu et al., NeurIPS 2023, Sec. 3.4 (arXiv 2310.11048).
    """
    pairs = compare(z1, z2, negatives, symmetric, engine=engine)
    positive = pairs.positive / temperature
    count = pairs.count
    (total,) = pairs.logsumexp(linear(1 / temperature))
    log_mean = log_mean_exp(pairs, total)
    mean, variance = (each / temperature**power for power, each in enumerate(pairs.moments(), start=1))
    # All anchors have equally many negatives, so the mean over anchors is the mean over all pairs.
    overall = variance.mean() + mean.var(correction=0)

    def soft(row: Row) -> Tensor:
        return row.mean(soft_positive_part(row.value / temperature))

    dv = positive.mean() - log_mean
    return {
        "infonce": (1 + count).log().mean() - soft_positive_part(total - positive).mean(),
        "dv": dv,
        "nwj": positive.mean() - (log_mean - 1).exp(),
        "js": 2 * math.log(2) - soft_positive_part(-positive).mean() - pairs.rows(soft).mean(),
        "kl": dv,
        "chi2": positive.mean() - mean.mean() - overall / 4,
    }


estimate = Arguments(estimate).guard(estimate)
