"""FlatNCE: the contrastive gradient that does not vanish in low precision (Chen et al. 2021)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from graphcl.arguments import Temperature
from graphcl.losses.dcl import dcl
from graphcl.losses.engine.comparison import Pairs
from graphcl.losses.engine.pairwise import pairwise, soft_positive_part


@pairwise("flatnce")
def flatnce(
    pairs: Pairs, *, temperature: Temperature = 0.2, form: Literal["log", "ratio", "released"] = "log"
) -> Tensor:
    r"""FlatNCE: the gap between the negatives' logsumexp and the positive, self-normalised.

    $$v_i = \log \sum_j e^{s_{ij}} - s_i^+, \qquad s = c / \tau$$

    With sg the stop-gradient:

    | `form`     | value                            | prints          |
    |------------|----------------------------------|-----------------|
    | `log`      | $v_i$                            | DCL             |
    | `ratio`    | $\exp(v_i - \mathrm{sg}(v_i))$   | 1               |
    | `released` | ratio - 1 + sg(InfoNCE)          | InfoNCE         |

    All three have the same gradient, softmax(s_ij) over the negatives and exactly -1 on s+, which is DCL's too.

    Differs: the paper uses `negatives="all"` and temperature 0.1; the released code prints InfoNCE's value.

    Args:
        pairs: anchors, positives and negatives.
        temperature: what cosines are divided by, > 0 (tau).
        form: which value to print, see the table.

    Returns:
        A scalar, or `[A]`.

    Raises:
        InputError: an argument out of range, shapes that differ, fewer than two graphs.

    Example:
        >>> import torch
        >>> z = torch.eye(3)
        >>> float(flatnce(z, z, form="ratio"))
        1.0

    References:
        Chen et al., "Simpler, Faster, Stronger: Breaking The log-K Curse On Contrastive Learners With FlatNCE",
        2021, Eq. 9 (arXiv 2107.01152).
    """
    gap = dcl.terms(pairs, temperature=temperature)
    if form == "log":
        return gap
    ratio = (gap - gap.detach()).exp()
    return ratio if form == "ratio" else ratio - 1 + soft_positive_part(gap).detach()
