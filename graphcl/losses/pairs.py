"""Who is compared with whom: the one place that decides positives and negatives.

Two views of N graphs give unit projections a_i and b_i. Graph i's views are each other's positive. Its negatives:

| `negatives` | anchors a_i                            | M      | known as                   |
|-------------|----------------------------------------|--------|----------------------------|
| `cross`     | b_j, j != i                            | N - 1  | CPC, CLIP, GraphCL         |
| `all`       | b_j and a_j, j != i                    | 2N - 2 | NT-Xent (SimCLR)           |

`symmetric=True` lets the b_i be anchors too (then 2N anchors, the b_i after the a_i); `False` keeps the a_i only.
A loss is the mean over its anchors. (SimCLR and CLIP differ here: some code sums the two directions' means.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcl.errors import InputError, InputTypeError

Negatives = Literal["cross", "all"]
Reduction = Literal["mean", "none"]


@dataclass(frozen=True)
class Pairs:
    """Cosine similarities of A anchors.

    Negatives are laid out without the anchor itself and without its positive, so nothing ever has to be masked out
    of a sum or subtracted from it.

    Args:
        positive: cosine of each anchor with its positive, `[A]`.
        negative: cosine of each anchor with each of its negatives, `[A, M]`.
    """

    positive: Tensor
    negative: Tensor

    @property
    def num_negatives(self) -> int:
        """M, the number of negatives of each anchor."""
        return self.negative.size(1)


def compare(z1: Tensor, z2: Tensor, negatives: Negatives = "cross", symmetric: bool = True) -> Pairs:
    """Cosine similarities between two views of the same N graphs.

    Half-precision input is compared in float32, inside autocast too; float64 stays float64. (Call `backward` outside of
    autocast, as PyTorch advises.)

    Args:
        z1: projections of the first view, `[N, D]`, N >= 2, floating point.
        z2: projections of the second view, `[N, D]`, row i the same graph as row i of `z1`.
        negatives: `cross` or `all`, see the head of this file.
        symmetric: whether the second view's projections are anchors too.

    Raises:
        InputError: shapes differ, or fewer than two graphs.
        InputTypeError: not floating-point tensors of one dtype.
    """
    _check(z1, z2, negatives)
    with torch.autocast(z1.device.type, enabled=False):
        a, b = normalize(z1), normalize(z2)
        cross = a @ b.T
        positive, forward, backward = cross.diagonal(), [off_diagonal(cross)], [off_diagonal(cross.T)]
        if negatives == "all":
            forward.append(off_diagonal(a @ a.T))
            backward.append(off_diagonal(b @ b.T))
        negative = torch.cat(forward, dim=1)
        if symmetric:
            positive = torch.cat([positive, positive])
            negative = torch.cat([negative, torch.cat(backward, dim=1)])
    return Pairs(positive, negative)


def normalize(z: Tensor) -> Tensor:
    """Rows scaled to Euclidean norm 1, at least in float32; a zero row stays zero and passes its gradient on."""
    z = z if z.dtype == torch.float64 else z.float()
    # A cosine does not depend on the scale, so rows are brought near 1 first: no square over- or underflows.
    largest = z.detach().abs().amax(dim=-1, keepdim=True)
    z = z / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(norm > 0, norm, 1.0)


def off_diagonal(square: Tensor) -> Tensor:
    """The entries off the diagonal of `[N, N]`, row by row: `[N, N - 1]`."""
    n = square.size(0)
    # Dropping the first entry and rewriting the rest as rows of N + 1 puts the diagonal into the last column.
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def soft_positive_part(gap: Tensor) -> Tensor:
    """log(1 + e^gap), exact in float64 too (torch's own default goes linear from 20 on)."""
    return softplus(gap, threshold=40)


def reduce(terms: Tensor, reduction: Reduction) -> Tensor:
    """The mean over anchors, or the per-anchor terms `[A]` themselves."""
    return terms.mean() if reduction == "mean" else terms


def _check(z1: Tensor, z2: Tensor, negatives: str) -> None:
    for name, z in (("z1", z1), ("z2", z2)):
        if not isinstance(z, Tensor) or not z.is_floating_point():
            got = z.dtype if isinstance(z, Tensor) else type(z).__name__
            raise InputTypeError(f"`{name}` must be a floating-point tensor, got {got}.")
    if z1.dim() != 2 or z1.shape != z2.shape:
        raise InputError(f"`z1` and `z2` must both be [N, D], got {list(z1.shape)} and {list(z2.shape)}.")
    if z1.dtype != z2.dtype:
        raise InputTypeError(f"`z1` and `z2` must have one dtype, got {z1.dtype} and {z2.dtype}.")
    if z1.size(0) < 2:
        raise InputError(f"a contrastive loss needs at least 2 graphs in a batch, got {z1.size(0)} rows in `z1`.")
    if negatives not in get_args(Negatives):
        raise InputError(f"`negatives` must be 'cross' or 'all', got {negatives!r}.")
