"""Test summaries and gains by hand, and the paired t-test against its equation and its rate of false positives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.model_selection import StratifiedKFold

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Summary, holm, paired_gain, paired_test, summarise


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


def one(seed, value, metric="rocauc"):
    return FoldScores(seed, (value,), (1.0,), (value,), 1, 1, metric)


def test_summary_by_hand():
    summary = summarise(scores([(50.0, 70.0), (64.0, 64.0), (70.0, 66.0)]))
    # Means 60, 64, 68; within-seed deviations 10, 0, 2.
    assert summary == Summary(64.0, pytest.approx((32 / 3) ** 0.5), 4.0, (0, 1, 2))
    assert str(summary) == "64.00 ± 3.27"


def test_paired_gain_by_hand():
    before, after = scores([(50, 70), (60, 60), (80, 90)]), scores([(58, 70), (58, 62), (81, 93)])
    gain = paired_gain(after, before)  # per seed: 4, 0, 2
    assert (gain.mean, gain.positive, gain.seeds) == (2.0, pytest.approx(2 / 3), (0, 1, 2))
    assert gain.std_seeds == pytest.approx((8 / 3) ** 0.5)
    back = paired_gain(before, after)
    assert (back.mean, back.std_seeds, back.positive) == (-2.0, gain.std_seeds, 0.0)


def test_one_fold_is_compared_over_seeds():
    after, before = [one(0, 70.0), one(1, 74.0)], [one(0, 69.0), one(1, 72.0)]
    found = paired_test(after, before)
    assert (found.mean, found.p) == (1.5, pytest.approx(stats.ttest_rel([70.0, 74.0], [69.0, 72.0]).pvalue))
    assert paired_test(after[:1], before[:1]).p == 1  # one seed gives no evidence


def test_an_error_gains_by_falling():
    after, before = [one(0, 0.5, "rmse"), one(1, 0.7, "rmse")], [one(0, 0.9, "rmse"), one(1, 0.9, "rmse")]
    assert paired_gain(after, before).mean == pytest.approx(0.3)
    assert paired_gain(after, before).positive == 1
    assert paired_test(after, before).mean == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: summarise([]), r"`scores` must hold one score or more, .* got seeds \[\]\."),
        (lambda: summarise([one(1, 0.0), one(1, 0.0)]), r"`scores` must hold one .* got seeds \[1, 1\]\."),
        (
            lambda: paired_gain([one(0, 1.0)], [one(1, 1.0)]),
            r"`before` must .* `after`, \[\(0, 1\)\], got \[\(1, 1\)\]\.",
        ),
        (lambda: paired_test([one(0, 1.0)], scores([(1, 2)])), r"`before` must have the \(seed, folds\) of `after`"),
        (lambda: paired_test([], []), "`before` must have"),
        (
            lambda: paired_gain([one(0, 1.0)], [one(0, 1.0, "rmse")]),
            "scores by different metrics cannot be compared, got rmse, rocauc",
        ),
    ],
)
def test_messages(call, line):
    with pytest.raises(InputError, match=f"^{line}"):
        call()


def test_the_paired_test_corrects_for_large_test_parts():
    """With a test part eight times as large as the training part, the same differences are weaker evidence."""
    rng = np.random.default_rng(0)
    before = tuple(80 + rng.normal(size=20))
    after = tuple(each + 1 + 0.5 * rng.normal() for each in before)

    def p(ratio):
        scores = [FoldScores(0, each, (1.0,) * 20, each, 20, 1, test_ratio=ratio) for each in (after, before)]
        return paired_test([scores[0]], [scores[1]]).p

    assert p(None) < 1e-4
    assert p(8.0) > 0.2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    raised, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        raised[i] = highest
    assert holm(p) == pytest.approx(raised)
    assert holm([]) == []
