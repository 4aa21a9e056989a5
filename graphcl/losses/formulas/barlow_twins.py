"""Barlow Twins: cross-correlation of the views close to the identity (Zbontar et al. 2021)."""

import torch
from torch import Tensor

from graphcl.arguments import NonNegative
from graphcl.distributed import ranks
from graphcl.losses.pairs import off_diagonal as without_diagonal
from graphcl.losses.rows import SHORTEST, at_least_float32, check_views, normalize
from graphcl.registry import losses


@losses.register("barlow_twins")
def barlow_twins(z1: Tensor, z2: Tensor, *, off_diagonal: NonNegative = 0.005) -> Tensor:
    r"""Compute Barlow Twins: distance of the views' cross-correlation matrix from the identity.

    $$L = \sum_d (1 - C_{dd})^2 + \lambda \sum_{d \neq e} C_{de}^2, \qquad
    C_{de} = \frac{\sum_i \tilde z_{id} \tilde z'_{ie}}{\sqrt{\sum_i \tilde z_{id}^2} \sqrt{\sum_i \tilde z_{ie}'^2}}$$

    Here z~_id and z~'_id are coordinate d of graph i in the first and the second view, minus the mean over the batch.
    The correlation of a constant column is 0. Across ranks, the sums run over the graphs of all ranks, and every rank
    returns the value of the global batch. A rank sends D x D numbers and no rows.

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        off_diagonal: weight lambda of the redundancy term, >= 0.

    Returns:
        A scalar.

    Raises:
        InputError: an argument out of range, shapes that do not match, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
        >>> round(float(barlow_twins(z, z)), 3)  # equal views, uncorrelated columns: L = 0
        0.0

    References:
        Zbontar et al., "Barlow Twins: Self-Supervised Learning via Redundancy Reduction", ICML 2021, Eq. 1 (arXiv
        2103.03230).
    """
    check_views(z1, z2)
    with torch.autocast(z1.device.type, enabled=False):
        columns1, columns2 = (_standardized(z) for z in (z1, z2))
        correlation = ranks.sum_over_ranks(columns1 @ columns2.T)
        redundant = without_diagonal(correlation).square().sum()
        return (1 - correlation.diagonal()).square().sum() + off_diagonal * redundant


def _standardized(z: Tensor) -> Tensor:
    """Return the columns of `z` as rows `[D, N]`, centred and scaled to norm 1 over the graphs of all ranks."""
    z = at_least_float32(z)
    mean = ranks.mean_over_ranks(z)
    centered = z - mean
    spread, size = ranks.largest_over_ranks(torch.stack([centered.abs().amax(dim=0), z.abs().amax(dim=0)]))
    # Treat variation within the rounding error as 0, so that a constant column has correlation 0.
    varies = spread > (8 * torch.finfo(z.dtype).eps * size).clamp(min=SHORTEST)
    rows = (centered * varies).T
    if ranks.size() == 1:
        return normalize(rows)
    rows = rows / torch.where(varies, spread, 1.0)[:, None]  # so that no square overflows or underflows
    square = ranks.sum_over_ranks(rows.square().sum(dim=1))
    return rows / torch.where(varies, square, 1.0).sqrt()[:, None]
