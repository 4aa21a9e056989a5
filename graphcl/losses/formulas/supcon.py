"""Supervised contrastive loss (Khosla et al. 2020)."""

import torch
from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.loss import Pairs, linear, pairwise, softplus
from graphcl.losses.rows import check_tensor


@pairwise(
    "supcon",
    fixed={"negatives": "all", "symmetric": True, "queue": None, "ids": None, "queue_ids": None},
)
def supcon(pairs: Pairs, *, labels: Tensor | None = None, temperature: Temperature = 0.2) -> Tensor:
    r"""Compute SupCon: InfoNCE in which all graphs of the same class are positives.

    $$L_i = \frac{1}{|P_i|} \sum_{p \in P_i} \Big( -s_{ip} + \log \sum_{a \neq i} e^{s_{ia}} \Big),
    \quad s = c / \tau$$

    averaged over all 2N rows of the two views. Here c_ij is the cosine of rows i and j, tau the temperature, and P_i
    the set of the other rows with the label of row i. Across ranks, P_i and the sum over a include the rows of all
    ranks. The loss uses labels, so do not evaluate the model on its training graphs. The command line therefore
    takes it with pairs only, whose labels are the groups or the queries.

    Args:
        labels: class of each graph, integers `[N]`.

    Returns:
        The mean over anchors, or with `reduction="none"` their terms `[A]`. With all labels different: `nt_xent`.

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
        raise InputError(f"`labels` is missing: pass the class of each graph, integers [{n}].")
    check_tensor("labels", labels, pairs.positive, (n,), f"[{n}], one integer per row", integer=True)
    # Put this rank's labels first, so that entry i of `numbers` belongs to row i.
    classes, numbers = torch.unique(torch.cat([labels, ranks.others(labels)]), return_inverse=True)
    number = numbers[:n].repeat(2)
    # The sum of an anchor's cosines with its class is one product with the sum of the class's rows, so no pairwise
    # matrix is needed. The anchor's cosine with itself is subtracted.
    rows = pairs.anchor
    of_class = ranks.sum_over_ranks(rows.new_zeros(classes.numel(), rows.size(1)).index_add(0, number, rows))
    positives = 2 * torch.bincount(numbers)[number] - 1
    mean_positive = ((rows * of_class[number]).sum(dim=1) - rows.square().sum(dim=1)) / positives
    # Exactly 0 for a class of one graph, so that rounding errors do not exceed the softplus of a confident anchor.
    further = torch.where(positives == 1, 0.0, pairs.positive - mean_positive)
    (total,) = pairs.logsumexp(linear(1 / temperature))
    return softplus(total - pairs.positive / temperature) + further / temperature
