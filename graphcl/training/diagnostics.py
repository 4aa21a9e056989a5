"""What embeddings and projections look like while they are trained."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.losses.engine.dense import off_diagonal
from graphcl.losses.engine.pairs import normalize


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


def widest_share(h: Tensor) -> Tensor:
    r"""The widest column's share of all variance, $\max_k v_k / \sum_l v_l$ with $v_k$ the variance of column k.

    Near 1 a Gaussian kernel on the rows sees one column alone. That comes of a hidden unit that answers to few graphs
    only: BatchNorm's running variance of it has all but vanished by the end of training, and divides by it.

    Args:
        h: embeddings `[N, H]`, taken as they are.

    Returns:
        A number in [1/H, 1]; 0 where no column varies.
    """
    variances = h.double().var(dim=0, correction=0)
    return variances.max() / variances.sum().clamp(min=torch.finfo(variances.dtype).tiny)


def effective_rank(h: Tensor) -> Tensor:
    r"""How many dimensions are in use: $e^{H(p)}$ with $p_k = \sigma_k / \sum_l \sigma_l$, the singular values.

    Between 1 (all rows on a line through the origin) and min(N, H); 0 where all rows are zero.

    Args:
        h: embeddings `[N, H]`, taken as they are.

    References:
        Roy and Vetterli, "The Effective Rank: A Measure of Effective Dimensionality", EUSIPCO 2007.
    """
    values = torch.linalg.svdvals(h.float())
    share = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    return torch.special.entr(share).sum().exp() * (values[0] > 0)


def coupling(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    r"""DCL's negative-positive-coupling multiplier of each anchor: $q_i = 1 - p_i^+$, in (0, 1), `[N]`.

    InfoNCE's gradient is DCL's times q.

    Args:
        z1: projections of the first view `[N, D]`, the anchors, N >= 2.
        z2: of the second view.
        temperature: tau.

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022, Eq. 4 (arXiv 2110.06848).
    """
    cosine = normalize(z1) @ normalize(z2).T
    return torch.sigmoid((off_diagonal(cosine) / temperature).logsumexp(dim=1) - cosine.diagonal() / temperature)


def diagnose(h: Tensor, z1: Tensor, z2: Tensor, temperature: float) -> dict[str, Tensor]:
    r"""More of a batch than its loss, for the first view's anchors against the second view's rows.

    | name                                 | what it is                                                               |
    |--------------------------------------|--------------------------------------------------------------------------|
    | `rank_h`, `rank_z`                   | effective rank of embeddings and of projections                          |
    | `npc_mean`, `npc_std`                | q = 1 - p+, DCL's multiplier of InfoNCE's gradient; near 0 it is idle    |
    | `negative_mean`, `negative_variance` | of the negatives' cosines, the variance within each anchor's             |
    | `dro_entropy`                        | of the worst-case weights softmax(c / tau), over log M: 1 for equal ones |
    | `dro_radius`                         | eta, their KL divergence from the uniform distribution, in nats          |
    | `temperature_estimate`               | sqrt(Var / (2 eta)), the optimal temperature for the radius at hand      |

    The last one stays near tau where the second-order view of the loss holds, and departs from it where it does not.

    Args:
        h: embeddings `[N, H]`.
        z1: projections of the first view `[N, D]`, N >= 2.
        z2: of the second view.
        temperature: tau.

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022 (arXiv 2110.06848). Wu et al., "Understanding
        Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023, Sec. 3.3 (arXiv 2310.11048).
    """
    cosine = normalize(z1) @ normalize(z2).T
    negative = off_diagonal(cosine)
    log_weight = (negative / temperature).log_softmax(dim=1)
    count = negative.new_tensor(float(negative.size(1)))
    npc = coupling(z1, z2, temperature)
    entropy = torch.special.entr(log_weight.exp()).sum(dim=1)
    variance = negative.var(dim=1, correction=0)
    radius = (count.log() - entropy).clamp(min=0)
    tiny = torch.finfo(radius.dtype).eps
    return {
        "rank_h": effective_rank(h),
        "rank_z": effective_rank(z1),
        "npc_mean": npc.mean(),
        "npc_std": npc.std(correction=0),
        "negative_mean": negative.mean(),
        "negative_variance": variance.mean(),
        "dro_entropy": (entropy / count.log().clamp(min=tiny)).mean(),
        "dro_radius": radius.mean(),
        "temperature_estimate": (variance.mean() / (2 * radius.mean().clamp(min=tiny))).sqrt(),
    }
