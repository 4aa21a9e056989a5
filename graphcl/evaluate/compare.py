"""Test whether two sets of scores differ, paired over seeds and folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphcl.evaluate.scores import FoldScores, gains_by_fold


@dataclass(frozen=True)
class PairedTest:
    """Result of a paired test.

    Attributes:
        mean: mean difference of the scores, in percentage points or the unit of the error.
        p: two-sided p-value of the null hypothesis that the scores do not differ.
    """

    mean: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p < 0.05


def paired_test(after: Sequence[FoldScores], before: Sequence[FoldScores]) -> PairedTest:
    r"""Return the corrected paired t-test of `after` against `before` for repeated cross-validation.

    $$t = \bar d \Big/ \sqrt{\Big(\frac{1}{S K} + \frac{1}{K - 1}\Big) \hat\sigma^2_d}, \qquad
      d_{sk} = a_{sk} - b_{sk}$$

    where $a_{sk}$ and $b_{sk}$ are the scores of `after` and `before` for seed s and fold k, $\bar d$ and
    $\hat\sigma^2_d$ the mean and variance of their differences, and S and K the numbers of seeds and folds. t has
    SK - 1 degrees of freedom. Training parts of different folds overlap, so scores are not independent, and a plain
    t-test over all folds rejects a true null hypothesis several times too often. The term 1 / (K - 1), the ratio of
    test to training graphs, corrects the variance for the overlap. For random splits, the term is
    `FoldScores.test_ratio`: 8 for parts of 10, 10 and 80 %, which is strict. On a benchmark's split (K = 1) it is
    omitted; the result is the paired t-test over seeds, valid for this split only. For one seed, p = 1.

    Args:
        after: scores of one embedding, one entry per seed.
        before: scores of the other embedding, with the same seeds and folds.

    Raises:
        InputError: `after` and `before` differ in seeds, folds, their order or the metric.

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
    if (ratio := after[0].test_ratio) is not None:
        overlap = ratio
    t = mean / np.sqrt((1 / d.size + overlap) * variance)
    return PairedTest(mean, float(2 * stdtr(d.size - 1, -abs(t))))


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values `p` of several tests, adjusted by Holm's method to control the family-wise error rate.

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
