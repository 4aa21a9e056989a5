"""Test the paired t-test against its equation, and its rate of false positives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.model_selection import StratifiedKFold

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, holm, paired_test


def scores(table):
    folds = len(table[0])
    return [FoldScores(seed, tuple(row), (1.0,) * folds, tuple(row), folds, 2) for seed, row in enumerate(table)]


def by_hand(a, b, folds):
    d = [x - y for new, old in zip(a, b, strict=True) for x, y in zip(new, old, strict=True)]
    mean = math.fsum(d) / len(d)
    variance = math.fsum((each - mean) ** 2 for each in d) / (len(d) - 1)
    t = mean / math.sqrt((1 / len(d) + 1 / (folds - 1)) * variance)
    return mean, 2 * stats.t.sf(abs(t), len(d) - 1)


def test_against_the_equation():
    a, b = np.random.default_rng(0).normal(80, 3, size=(2, 5, 10))
    found = paired_test(scores(a), scores(b))
    assert (found.mean, found.p) == pytest.approx(by_hand(a, b, 10))
    assert paired_test(scores(b), scores(a)).mean == pytest.approx(-found.mean)


def test_no_difference_and_a_constant_one():
    a = np.full((2, 5), 80.0)
    assert paired_test(scores(a), scores(a)).p == 1
    assert paired_test(scores(a + 1), scores(a)).p == 0


def by_neighbours(h, y, seed):
    """Return the accuracy in percent of a 3-nearest-neighbour classifier in each of five folds."""
    found = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(h, y):
        nearest = ((h[test][:, None] - h[train]) ** 2).sum(axis=2).argsort(axis=1)[:, :3]
        found.append(100 * np.mean((y[train][nearest].mean(axis=1) > 0.5) == y[test]))
    return found


def test_the_rate_of_false_positives():
    """The null hypothesis is true, so at most about 5 % of the corrected tests may be significant.

    The plain t-test, which assumes independent folds, is significant more often.
    """
    rng = np.random.default_rng(0)
    corrected = plain = 0
    for _ in range(200):
        y = rng.integers(0, 2, 60)
        h = [np.c_[y + rng.normal(0, 1.0, 60), rng.normal(0, 1, (60, 3))] for _ in range(2)]
        h[1][:, 0] = h[0][:, 0]
        pair = [scores([by_neighbours(each, y, seed) for seed in range(3)]) for each in h]
        corrected += paired_test(*pair).p < 0.05
        d = np.subtract([each.accuracy for each in pair[0]], [each.accuracy for each in pair[1]])
        plain += stats.ttest_1samp(d.ravel(), 0).pvalue < 0.05
    # 5 % of 200 tests is 10; 19 or more significant tests have a probability below 1 %.
    assert corrected < 19 <= plain


def test_other_seeds_or_folds_are_refused():
    one = scores(np.ones((2, 3)))
    with pytest.raises(InputError, match=r"`before` must have the \(seed, folds\) of `after`"):
        paired_test(one, one[:1])
    with pytest.raises(InputError):
        paired_test([], [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    raised, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        raised[i] = highest
    assert holm(p) == pytest.approx(raised)
    assert holm([]) == []
