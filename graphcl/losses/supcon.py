"""Supervised contrastive loss, where labels are given on purpose (Khosla et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.engine.checks import check_labels
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.exponent import linear
from graphcl.losses.engine.pairwise import pairwise


@pairwise(
    "supcon",
    fixed={"negatives": "all", "symmetric": True, "queue": None, "ids": None, "queue_ids": None},
)
def supcon(pairs: Pairs, *, labels: Tensor | None = None, temperature: Temperature = 0.2) -> Tensor:
    r"""SupCon: all views of all graphs of a class are each other's positives.

    $$L_i = \frac{1}{|P_i|} \sum_{p \in P_i} \Big( -s_{ip} + \log \sum_{a \neq i} e^{s_{ia}} \Big),
    \quad s = c / \tau$$

    over all 2N rows (of the graphs of all ranks), P_i the other rows of i's label. It sees labels, so what it trains
    must not be scored on the graphs it was trained with; the command line refuses it for that reason.

    Args:
        pairs: both views' rows as anchors, the second view's after the first's, their positives and negatives.
        labels: class of each graph, whole numbers `[N]`.
        temperature: what cosines are divided by, > 0 (tau).

    Returns:
        A scalar, or `[A]`. With all labels different: `nt_xent`.

    Raises:
        InputError: no labels, labels of another length, an argument out of range, shapes that differ, fewer than two
            graphs.

    Example:
        >>> import torch
        >>> z = torch.ones(3, 2)
        >>> round(float(supcon(z, z, labels=torch.tensor([0, 0, 1])).exp()), 3)  # all cosines equal: 5 others
        5.0

    References:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2 (arXiv 2004.11362).
    """
    n = pairs.positive.numel() // 2
    if labels is None:
        raise InputError(f"`labels` is required: supcon takes the class of each graph, whole numbers [{n}].")
    check_labels("labels", labels, n)
    # Own labels first, so that their places are those of the rows.
    classes, numbers = torch.unique(torch.cat([labels, ranks.others(labels)]), return_inverse=True)
    number = numbers[:n].repeat(2)
    # Cosines with all rows of one's class, through the class's sum; less that with oneself.
    rows = pairs.anchor
    of_class = ranks.sum_over_ranks(rows.new_zeros(classes.numel(), rows.size(1)).index_add(0, number, rows))
    own = rows.square().sum(dim=1)
    positives = 2 * torch.bincount(numbers)[number] - 1
    mean_positive = ((rows * of_class[number]).sum(dim=1) - own) / positives
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return torch.logaddexp(total, pairs.positive / temperature) - mean_positive / temperature
