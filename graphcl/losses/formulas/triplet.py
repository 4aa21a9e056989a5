"""Triplet loss with a choice of negative mining (Schroff et al. 2015)."""

from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import Positive
from graphcl.losses.loss import Pairs, Row, pairwise


@pairwise("triplet")
def triplet(pairs: Pairs, *, margin: Positive = 0.2, mining: Literal["all", "semi_hard", "hard"] = "all") -> Tensor:
    r"""Compute the triplet loss: a hinge loss that keeps negatives farther than the positive by a margin.

    $$L_i = \frac{1}{|J_i|} \sum_{j \in J_i} \max\big(0,\; (D_i^+)^2 - D_{ij}^2 + m\big), \qquad D^2 = 2 - 2 c$$

    Here c_ij is the cosine of anchor i and its negative j, D_ij their distance, D_i^+ the distance of anchor i and its
    positive, and m the margin. `mining` selects the negatives J_i:

    | `mining`    | J_i                                                                              |
    |-------------|----------------------------------------------------------------------------------|
    | `all`       | all negatives                                                                    |
    | `semi_hard` | the nearest negative farther than the positive; if none is farther, the farthest |
    | `hard`      | the nearest negative (batch-hard; each anchor has one positive)                  |

    Differs: FaceNet accepts semi-hard negatives only within the margin. If no negative is farther than the positive,
    released implementations differ; this one takes the farthest, as most do.

    Args:
        margin: margin m, in units of the squared distance of unit rows, > 0.
        mining: choice of the negatives J_i, see the table.

    Example:
        >>> import torch
        >>> z = torch.ones(5, 3)
        >>> round(float(triplet(z, z)), 3)  # all rows equal: $D = 0$, only the margin remains
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
