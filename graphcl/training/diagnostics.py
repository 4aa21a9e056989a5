"""Diagnostics of embeddings and projections during training: alignment, uniformity, rank, negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphcl.losses.pairs import off_diagonal
from graphcl.losses.rows import normalize
from graphcl.training.mutual_information import estimates


def alignment(z1: Tensor, z2: Tensor, unit: bool = False) -> Tensor:
    r"""Return the mean squared distance between the projections of a graph's two views, in [0, 4].

    $$\frac1N \sum_i \lVert a_i - b_i \rVert^2$$

    where $a_i$ and $b_i$ are the L2-normalised projections of the two views of graph i.

    Args:
        z1: projections of the first views `[N, D]`.
        z2: projections of the second views `[N, D]`.
        unit: whether the projections are normalised already.

    References:
        Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
        Hypersphere", ICML 2020 (arXiv 2005.10242).
    """
    a, b = (z1, z2) if unit else (normalize(z1), normalize(z2))
    return (a - b).square().sum(dim=1).mean()


def uniformity(z: Tensor, t: float = 2.0, unit: bool = False) -> Tensor:
    r"""Return the uniformity of projections on the unit sphere; lower is more uniform.

    $$\log \frac{2}{N(N-1)} \sum_{i<j} e^{-t \lVert a_i - a_j \rVert^2}$$

    where $a_i$ is the L2-normalised projection of graph i. The value is 0 if all projections coincide, and about -4 at
    best for t = 2 and large D.

    Args:
        z: projections `[N, D]`, N >= 2.
        t: sharpness of the Gaussian kernel.
        unit: whether the projections are normalised already.

    References:
        See `alignment`.
    """
    return torch.pdist(z if unit else normalize(z)).square().mul(-t).exp().mean().log()


def max_variance_ratio(h: Tensor) -> Tensor:
    r"""Return the largest column variance as a fraction of the total variance.

    $$\frac{\max_k v_k}{\sum_l v_l}$$

    where $v_k$ is the variance of column k. If the value is near 1, a Gaussian kernel on the rows effectively uses one
    column only. The usual cause is a hidden unit that is active on few graphs, which BatchNorm then scales up.

    Args:
        h: embeddings `[N, H]`, not normalised.

    Returns:
        A scalar in [1/H, 1]; 0 if no column varies.
    """
    variances = h.double().var(dim=0, correction=0)
    return variances.max() / variances.sum().clamp(min=torch.finfo(variances.dtype).tiny)


def effective_rank(h: Tensor) -> Tensor:
    r"""Return the effective rank of embeddings, the exponential of the entropy of their normalised singular values.

    $$\exp\Big(-\sum_k p_k \log p_k\Big), \qquad p_k = \sigma_k / \sum_l \sigma_l$$

    where $\sigma_k$ are the singular values of `h`. The result is between 1 (all rows on a line through the origin) and
    min(N, H), 0 if all rows are zero, or NaN if a row is NaN or infinite.

    Args:
        h: embeddings `[..., N, H]`, not normalised.

    References:
        Roy and Vetterli, "The Effective Rank: A Measure of Effective Dimensionality", EUSIPCO 2007.
    """
    finite = h.isfinite().flatten(-2).all(dim=-1)
    values = torch.linalg.svdvals(h.float().where(finite[..., None, None], 0.0))  # which refuses NaN and infinity
    p = values / values.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return (torch.special.entr(p).sum(dim=-1).exp() * (values[..., 0] > 0)).where(finite, torch.nan)


def coupling(z1: Tensor, z2: Tensor, temperature: float | Tensor) -> Tensor:
    r"""Return the negative-positive-coupling multipliers `[N]` of the anchors, in (0, 1).

    $$q_i = 1 - p_i^+$$

    where $p_i^+$ is the probability that the softmax over anchor i's keys gives to its positive. The gradient of
    anchor i's InfoNCE loss is $q_i$ times the gradient of its DCL loss.

    Args:
        z1: projections of the first views `[N, D]`, the anchors, N >= 2.
        z2: projections of the second views `[N, D]`, the keys.
        temperature: temperature tau of the softmax.

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022, Eq. 4 (arXiv 2110.06848).
    """
    cosine = normalize(z1) @ normalize(z2).T
    return torch.sigmoid((off_diagonal(cosine) / temperature).logsumexp(dim=1) - cosine.diagonal() / temperature)


def diagnose(h: Tensor, z1: Tensor, z2: Tensor, temperature: float | Tensor) -> dict[str, Tensor]:
    r"""Return scalar diagnostics of a batch by name, with the first views as anchors and the second views as keys.

    c is the cosine of an anchor with a negative, and M = N - 1 is the number of its negatives. The weights of an
    anchor's negatives are softmax(c / tau).

    | name                   | meaning                                                                     |
    |------------------------|-----------------------------------------------------------------------------|
    | `rank_h`, `rank_z`     | effective rank of `h` and of `z1`                                           |
    | `npc_mean`, `npc_std`  | mean and standard deviation over anchors of the function `coupling`         |
    | `negative_mean`        | mean of c over all pairs                                                    |
    | `negative_variance`    | variance of c over an anchor's negatives, mean over anchors                 |
    | `dro_entropy`          | entropy of the weights over log M, mean over anchors; 1 for equal weights   |
    | `dro_radius`           | eta: KL of the weights from uniform weights in nats, mean over anchors      |
    | `temperature_estimate` | sqrt(`negative_variance` / (2 eta)), the optimal temperature for radius eta |

    `temperature_estimate` comes from a second-order approximation of the loss. It is close to tau where the
    approximation is accurate.

    The estimates of mutual information between the two views, and of two other divergences, have the names of
    `graphcl.training.mutual_information.estimates`. Their critic is f = c / tau, for positives and negatives. They are
    bounds for any critic, but tight only for the best one. A critic that was trained for another bound, or not at all,
    gives loose ones, and they may be negative.

    Args:
        h: embeddings `[N, H]`; of fewer rows if `micro_batch` kept those of one piece.
        z1: projections of the first views `[N, D]`, N >= 2.
        z2: projections of the second views `[N, D]`.
        temperature: temperature tau of the loss; training passes 0.2 if the loss has none.

    References:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022 (arXiv 2110.06848). Wu et al., "Understanding
        Contrastive Learning via Distributionally Robust Optimization", NeurIPS 2023, Sec. 3.3 (arXiv 2310.11048).
    """
    cosine = normalize(z1) @ normalize(z2).T
    negative = off_diagonal(cosine)
    log_weight = (negative / temperature).log_softmax(dim=1)
    log_count = math.log(negative.size(1))
    npc = coupling(z1, z2, temperature)
    entropy = torch.special.entr(log_weight.exp()).sum(dim=1)
    variance = negative.var(dim=1, correction=0)
    radius = (log_count - entropy).clamp(min=0)
    tiny = torch.finfo(radius.dtype).eps
    # One decomposition for both, as each waits for the device; columns and rows of zeros do not change the rank.
    rows, width = max(len(h), len(z1)), max(h.size(1), z1.size(1))
    padded = [pad(matrix.float(), (0, width - matrix.size(1), 0, rows - len(matrix))) for matrix in (h, z1)]
    rank_h, rank_z = effective_rank(torch.stack(padded))
    return {
        "rank_h": rank_h,
        "rank_z": rank_z,
        "npc_mean": npc.mean(),
        "npc_std": npc.std(correction=0),
        "negative_mean": negative.mean(),
        "negative_variance": variance.mean(),
        "dro_entropy": (entropy / max(log_count, tiny)).mean(),
        "dro_radius": radius.mean(),
        "temperature_estimate": (variance.mean() / (2 * radius.mean().clamp(min=tiny))).sqrt(),
        **estimates(cosine / temperature),
    }
