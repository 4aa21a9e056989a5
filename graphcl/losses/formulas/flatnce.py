"""FlatNCE: a contrastive gradient that does not vanish in low precision (Chen et al. 2021)."""

from typing import Literal

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.formulas.dcl import dcl
from graphcl.losses.loss import Pairs, pairwise, softplus


@pairwise("flatnce")
def flatnce(
    pairs: Pairs, *, temperature: Temperature = 0.2, form: Literal["log", "ratio", "released"] = "log"
) -> Tensor:
    r"""Compute FlatNCE: the self-normalised gap between the logsumexp of the negatives and the positive.

    $$v_i = \log \sum_j e^{s_{ij}} - s_i^+, \qquad s = c / \tau$$

    Here c_ij is the cosine of anchor i and its negative j, c_i^+ the cosine of anchor i and its positive, and tau the
    temperature. With sg the stop-gradient, the three forms are:

    | `form`     | $L_i$                          | value   |
    |------------|--------------------------------|---------|
    | `log`      | $v_i$                          | DCL     |
    | `ratio`    | $\exp(v_i - \mathrm{sg}(v_i))$ | 1       |
    | `released` | ratio - 1 + sg(InfoNCE)        | InfoNCE |

    All three have the gradient of DCL: softmax(s_ij) on the negatives and exactly -1 on s_i^+.

    Differs: the paper uses `negatives="all"` and temperature 0.1; the released code is `form="released"`.

    Args:
        form: form of the loss, see the table.

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> float(flatnce(z, z, form="ratio"))
        1.0

    References:
        Chen et al., "Simpler, Faster, Stronger: Breaking The log-K Curse On Contrastive Learners With FlatNCE",
        2021, Eq. 9 (arXiv 2107.01152).
    """
    gap = dcl.formula(pairs, temperature=temperature)
    if form == "log":
        return gap
    ratio = (gap - gap.detach()).exp()
    return ratio if form == "ratio" else ratio - 1 + softplus(gap).detach()
