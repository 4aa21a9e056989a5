"""What the two views' projections look like on the sphere."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.losses.pairs import normalize


def alignment(z1: Tensor, z2: Tensor) -> Tensor:
    r"""How far apart the two views of a graph lie: $\frac1N \sum_i \lVert a_i - b_i \rVert^2$, in [0, 4].

    Args:
        z1: projections `[N, D]`, normalised here.
        z2: projections `[N, D]`.

    References:
        Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere", ICML 2020 (arXiv 2005.10242).
    """
    return (normalize(z1) - normalize(z2)).square().sum(dim=1).mean()


def uniformity(z: Tensor, t: float = 2.0) -> Tensor:
    r"""How evenly graphs spread, lower is more: $\log \frac{2}{N(N-1)} \sum_{i<j} e^{-t \lVert a_i - a_j \rVert^2}$.

    0 where all coincide; about -4 at best in high dimension with t = 2.

    Args:
        z: projections `[N, D]`, N >= 2, normalised here.
        t: sharpness of the Gaussian kernel.

    References:
        As for `alignment`.
    """
    a = normalize(z)
    n = a.size(0)
    upper = torch.triu_indices(n, n, offset=1, device=a.device)
    squared = 2 - 2 * (a @ a.T)[upper[0], upper[1]]
    return (-t * squared.clamp(min=0)).logsumexp(dim=0) - torch.log(squared.new_tensor(upper.size(1)))
