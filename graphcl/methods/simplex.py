"""The probability simplex: the nearest distribution to a point."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_distribution(v: Tensor) -> Tensor:
    r"""The point of the probability simplex nearest to `v`, by Euclidean distance.

    $$p = \max(v - \mu, 0), \qquad \mu = \frac1k \Big( \sum_{i \le k} v_{(i)} - 1 \Big)$$

    with v sorted downwards and k the largest number for which $v_{(k)} > \mu$: exact, without an iteration.

    Args:
        v: `[n]`, n >= 1, finite.

    Returns:
        p `[n]`, >= 0, adding up to 1.

    Example:
        >>> nearest_distribution(torch.tensor([0.9, 0.5, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])

    References:
        Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions", ICML 2008, Fig. 1.
    """
    v = v - v.max()  # what all have in common changes nothing, and would cost digits
    down = v.sort(descending=True).values
    number = torch.arange(1, v.numel() + 1, device=v.device)
    mu = (down.cumsum(0) - 1) / number
    k = (down > mu).sum() - 1
    return (v - mu.gather(0, k[None])).clamp(min=0)
