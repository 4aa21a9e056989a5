"""Whether one set of scores is above another by more than chance: paired over seeds and folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphcl.evaluate.scores import FoldScores, gains_by_fold


@dataclass(frozen=True)
class PairedTest:
    """The mean difference in percentage points, and the two-sided p that the truth is zero."""

    mean: float
    p: float


def paired_test(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> PairedTest:
    r"""The corrected t-test of repeated cross-validation.

    $$t = \bar d \Big/ \sqrt{\Big(\frac{1}{S K} + \frac{1}{K - 1}\Big) \hat\sigma^2_d}, \qquad
      d_{sk} = a_{sk} - b_{sk}$$

    over S seeds and K folds, with SK - 1 degrees of freedom. Training parts of different folds overlap, so accuracies
    of different folds are no independent draws; the term 1 / (K - 1), test over training graphs, makes up for that. A
    plain t-test over all folds calls noise a win several times as often as it says. Where a benchmark fixes the split,
    K is 1 and the term is left out: the paired t-test over seeds, which speaks of this split only (one seed: p = 1).

    Args:
        after: scores, one a seed.
        before: scores of the same seeds and folds.

    Raises:
        InputError: the two do not hold the same seeds with the same folds, in the same order.

    Example:
        >>> one = [FoldScores(0, (80.0, 82.0, 81.0), (1.0,) * 3, (80.0,) * 3, 3, 2)]
        >>> paired_test(one, one)
        PairedTest(mean=0.0, p=1.0)

    References:
        Nadeau and Bengio, "Inference for the Generalization Error", Machine Learning 2003. Bouckaert and Frank,
        "Evaluating the Replicability of Significance Tests for Comparing Learning Algorithms", PAKDD 2004.
    """
    from scipy.special import stdtr

    d = np.concatenate(gains_by_fold(after, before))
    folds = min(score.folds for score in after)
    if d.size == 1:
        return PairedTest(float(d[0]), 1.0)
    mean, variance = float(d.mean()), float(d.var(ddof=1))
    if variance == 0:
        return PairedTest(mean, float(mean == 0))
    overlap = 1 / (folds - 1) if folds > 1 else 0.0
    t = mean / np.sqrt((1 / d.size + overlap) * variance)
    return PairedTest(mean, float(2 * stdtr(d.size - 1, -abs(t))))


def holm(p: Sequence[float]) -> list[float]:
    """P-values of several tests, raised so that the chance of any false alarm among them stays what it says.

    Example:
        >>> holm([0.01, 0.04])
        [0.02, 0.04]

    References:
        Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.
    """
    order = np.argsort(p)
    raised = np.maximum.accumulate(np.asarray(p)[order] * (len(p) - np.arange(len(p))))
    out = np.empty(len(p))
    out[order] = np.minimum(raised, 1)
    return [float(each) for each in out]
