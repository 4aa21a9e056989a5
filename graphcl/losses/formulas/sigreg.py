"""LeJEPA: close views, and projections distributed as an isotropic Gaussian (Balestriero and LeCun 2025)."""

import torch
from torch import Tensor

from graphcl.arguments import Count, Fraction
from graphcl.distributed import ranks
from graphcl.losses.rows import at_least_float32, check_views, normalize
from graphcl.registry import losses

BOUND, POINTS = 5.0, 17
"""Upper limit of the integral, and number of points of the trapezoidal rule, of which one is 0."""


@losses.register("sigreg")
def sigreg(
    z1: Tensor,
    z2: Tensor,
    *,
    trade_off: Fraction = 0.05,
    num_directions: Count = 1024,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Compute LeJEPA's loss: squared distance of the views, and SIGReg, a test statistic of an isotropic Gaussian.

    $$L = \frac{1 - \lambda}{N D} \sum_i \frac12 \sum_v \lVert z_{iv} - \bar z_i \rVert^2
    + \frac{\lambda}{2} \sum_v \frac1M \sum_m T\big(\{a_m^\top z_{iv}\}_i\big), \qquad
    \bar z_i = \frac12 \sum_v z_{iv}$$

    $$T(\{x_i\}) = N \int_{-5}^{5} \Big| \frac1N \sum_i e^{\mathrm{i} t x_i} - e^{-t^2 / 2} \Big|^2 e^{-t^2 / 2}\, dt$$

    Here z_iv is the row of graph i in view v = 1, 2, with D columns, and lambda the trade-off. The M directions a_m are
    drawn uniformly from the unit sphere in each call. T is the statistic of Epps and Pulley, the squared distance
    between the characteristic functions of a projection x and of the standard normal distribution. The trapezoidal rule
    with 17 points integrates it. Rows are not normalised. If they are drawn from an isotropic Gaussian of variance 1,
    the mean of T is $\sqrt{2 \pi} (1 - 1 / \sqrt 3) = 1.06$ for every N. If all are zero, T is 0.41 N.

    Across ranks, T is over the graphs of all ranks and the first term over the graphs of this rank. All ranks use the
    directions drawn by rank 0. A rank sends 32 M numbers and no rows. Memory is O(N M).

    Differs: the paper's Eq. 9 does not divide the first term by D; its listing and the released code do, as here. Its
    text gives the window e^{-t^2 / sigma^2} with sigma = 1; the listing has the window above. The listing draws 256
    directions, the text recommends 1024. The paper uses more than two views. The released minimal example integrates
    over [-3, 3].

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        trade_off: weight lambda of the statistic, in [0, 1].
        num_directions: number M of directions.
        generator: random generator for the directions, on the device of `z1`; by default torch's global one.

    Returns:
        A scalar.

    Raises:
        InputError: an argument out of range, shapes that do not match, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
        >>> all(sigreg(z, z) < 0.1 * sigreg(some, some) for some in (3 * z, z + 2, 0 * z))
        True

    References:
        Balestriero and LeCun, "LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics", 2025,
        Eq. 5 and 9 (arXiv 2511.08544). Epps and Pulley, "A Test for Normality Based on the Empirical Characteristic
        Function", Biometrika 70, 1983.
    """
    check_views(z1, z2)
    with torch.autocast(z1.device.type, enabled=False):
        views = torch.stack([at_least_float32(z1), at_least_float32(z2)], dim=1)
        apart = (views[:, 0] - views[:, 1]).square().mean() / 4
        directions = draw_directions(num_directions, views, generator)
        return (1 - trade_off) * apart + trade_off * epps_pulley(views @ directions.T).mean()


def draw_directions(count: int, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return unit rows `[count, D]` in uniform directions, equal on all ranks, for projections of `rows [..., D]`."""
    # Draw in float32, so that the directions do not depend on the precision of the rows.
    drawn = torch.randn(count, rows.size(-1), generator=generator, dtype=torch.float32, device=rows.device)
    return normalize(ranks.broadcast(drawn).to(rows.dtype))


def epps_pulley(x: Tensor) -> Tensor:
    """Return the statistic T of the samples `x [N, ...]`, as `[...]`.

    The integrand is even and 0 at t = 0, so the sum runs over the positive points only, with twice their weights.
    """
    step = 2 * BOUND / (POINTS - 1)
    t = torch.arange(1, POINTS // 2 + 1, dtype=x.dtype, device=x.device) * step
    target = torch.exp(-t.square() / 2)
    weight = 2 * step * target
    weight[-1] /= 2
    angle = x[..., None] * t
    real, imaginary = ranks.mean_over_ranks(angle.cos()), ranks.mean_over_ranks(angle.sin())
    distance = (real - target).square() + imaginary.square()
    return ranks.size() * x.size(0) * (distance * weight).sum(dim=-1)
