"""CL-DRO: distributionally robust optimisation over the negatives (Wu et al. 2023)."""

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.loss import Pairs, Row, linear, pairwise


@pairwise("cl_dro")
def cl_dro(pairs: Pairs, *, temperature: Temperature = 0.2, divergence: Literal["kl", "chi2"] = "kl") -> Tensor:
    r"""Compute CL-DRO: mean similarity of the negatives under worst-case weights, minus a divergence penalty.

    $$L_i = -s_i^+ + \max_Q \Big\{ \sum_j Q_j s_{ij} - \frac1M \sum_j \phi(M Q_j) \Big\}
    = -s_i^+ + \min_\nu \Big\{ \nu + \frac1M \sum_j \phi^*(s_{ij} - \nu) \Big\}, \qquad s = c / \tau$$

    The maximum is over distributions Q on the M negatives of the anchor. Here c_ij is the cosine of anchor i and its
    negative j, c_i^+ the cosine of anchor i and its positive, and phi* the convex conjugate of phi. The temperature tau
    is the Lagrange multiplier of the constraint on the divergence of Q from the uniform distribution. phi''(1) = 1 for
    both divergences, so they agree to second order.

    | `divergence` | phi(u)          | worst-case weights M Q                                  |
    |--------------|-----------------|---------------------------------------------------------|
    | `kl`         | u log u - u + 1 | e^(s - nu): softmax; the loss is `dcl` - log M          |
    | `chi2`       | (u - 1)^2 / 2   | (1 + s - nu)_+: `mean_variance` if no weight is clipped |

    The gradient on the similarity s of a negative is its worst-case weight Q. For `kl`, nu has a closed form; for
    `chi2`, it is found by bisection for each anchor.

    Differs: the objective of the paper is this loss times the temperature, with the same minimiser. Some authors define
    chi-square by (u - 1)^2, twice the phi of `chi2`. To reproduce their loss, double the temperature and the loss.

    Args:
        divergence: divergence phi, see the table.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(cl_dro(z, z, divergence="chi2")), 3)  # all cosines equal
        0.0

    References:
        Wu et al., "Understanding Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023, Sec. 3
        (arXiv 2310.11048). Duchi and Namkoong, "Learning Models with Uniform Performance via Distributionally Robust
        Optimization", Annals of Statistics 2021 (arXiv 1810.08750).
    """
    positive = pairs.positive / temperature
    if divergence == "kl":
        (total,) = pairs.logsumexp(linear(1 / temperature))
        return total - pairs.count.log() - positive
    return pairs.rows(lambda row: worst_case(row, row.value / temperature)) - positive


def worst_case(row: Row, s: Tensor) -> Tensor:
    """Return the minimum over nu of nu + mean_j phi*(s_j - nu) for chi-square and logits `s [T, M]`, `[T]`."""

    def weight(nu: Tensor) -> Tensor:
        return (1 + s - nu[:, None]).clamp(min=0)

    with torch.no_grad():
        # The mean weight falls from >= 1 at nu = smallest s to <= 1 at nu = largest s, so these bracket the root.
        low, high = row.filled(s, torch.inf).amin(dim=1), row.filled(s, -torch.inf).amax(dim=1)
        for _ in range(60 if s.dtype == torch.float64 else 30):
            middle = (low + high) / 2
            above = row.mean(weight(middle)) > 1
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        nu = ((low + high) / 2).nan_to_num(0.0, 0.0, 0.0)
    # phi*(v) = (w^2 - 1) / 2 with w = (1 + v)_+. The derivative in nu is 0, so nu needs no gradient.
    return nu + row.mean((weight(nu).square() - 1) / 2)
