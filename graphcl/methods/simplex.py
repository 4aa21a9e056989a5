"""Euclidean projection onto the probability simplex."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.graphs.segment import cumulative


def nearest_distribution(v: Tensor) -> Tensor:
    r"""Return the point of the probability simplex with the smallest Euclidean distance to `v`.

    $$p = \max(v - \mu, 0), \qquad \mu = \frac1k \Big( \sum_{i \le k} v_{(i)} - 1 \Big)$$

    where $v_{(i)}$ is the i-th largest entry of v, and k is the largest number for which $v_{(k)} > \mu$. The result is
    exact.

    Args:
        v: vector `[n]`, n >= 1, finite.

    Returns:
        The probabilities p, `[n]`, >= 0, with sum 1.

    Example:
        >>> nearest_distribution(torch.tensor([0.9, 0.5, -1.0]))
        tensor([0.7000, 0.3000, 0.0000])

    References:
        Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions", ICML 2008, Fig. 1.
    """
    v = v - v.max()  # a shift does not change the result and avoids cancellation
    down = v.sort(descending=True).values
    number = torch.arange(1, v.numel() + 1, device=v.device)
    mu = (cumulative(down) - 1) / number
    k = (down > mu).sum() - 1
    return (v - mu.gather(0, k[None])).clamp(min=0)
