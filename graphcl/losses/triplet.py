"""The triplet loss, with its ways of choosing negatives (Schroff et al. 2015)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Positive
from graphcl.losses.engine.comparison import Pairs, Row
from graphcl.losses.engine.pairwise import pairwise


@pairwise("triplet")
def triplet(pairs: Pairs, *, margin: Positive = 0.2, mining: Literal["all", "semi_hard", "hard"] = "all") -> Tensor:
    r"""Triplet: the positive is to be nearer than a negative, by a margin.

    $$L_i = \frac{1}{|J_i|} \sum_{j \in J_i} \max\big(0,\; (D_i^+)^2 - D_{ij}^2 + m\big), \qquad D^2 = 2 - 2 c$$

    | `mining`    | J_i                                                                                           |
    |-------------|-----------------------------------------------------------------------------------------------|
    | `all`       | every negative                                                                                |
    | `semi_hard` | the nearest negative farther than the positive; where there is none, the farthest of all      |
    | `hard`      | the nearest negative (batch-hard; each anchor has one positive)                               |

    Differs: FaceNet looks for semi-hard negatives within the margin; where none is farther, code differs and this
    follows the common choice.

    Args:
        pairs: anchors, positives and negatives.
        margin: m, in squared distance on the unit sphere, > 0.
        mining: which negatives count, see the table.

    Returns:
        A scalar, or `[A]`, each at least 0.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(triplet(z, z)), 3)  # all in one point: $D = 0$, the margin is left
        0.2

    References:
        Schroff, Kalenichenko and Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering", CVPR 2015
        (arXiv 1503.03832). Hermans, Beyer and Leibe, "In Defense of the Triplet Loss for Person Re-Identification",
        2017 (arXiv 1703.07737).
    """

    def violation(row: Row, positive: Tensor) -> Tensor:
        if mining == "all":
            return row.mean((2 * (row.value - positive[:, None]) + margin).clamp(min=0))
        nearest = row.filled(row.value, -torch.inf)
        if mining == "semi_hard":
            farther = nearest < positive[:, None]
            farthest = row.filled(row.value, torch.inf).amin(dim=1)
            nearest = nearest.masked_fill(~farther, -torch.inf)
            chosen = torch.where(nearest.isfinite().any(dim=1), nearest.amax(dim=1), farthest)
        else:
            chosen = nearest.amax(dim=1)
        return (2 * (chosen - positive) + margin).clamp(min=0)

    return pairs.rows(violation, pairs.positive)
