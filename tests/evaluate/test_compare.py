"""Test summaries and gains by hand, and the paired t-test against its equation and its rate of false positives."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, Summary, best_row, holm, paired_gain, paired_test, summarise


def scores(table):
    folds = len(table[0])
    return [FoldScores(seed, tuple(row), (1.0,) * folds, tuple(row), folds, 2) for seed, row in enumerate(table)]


def by_hand(a, b, ratio):
    d = [x - y for new, old in zip(a, b, strict=True) for x, y in zip(new, old, strict=True)]
    mean = math.fsum(d) / len(d)
    variance = math.fsum((each - mean) ** 2 for each in d) / (len(d) - 1)
    t = mean / math.sqrt((1 / len(d) + ratio) * variance)
    return mean, 2 * stats.t.sf(abs(t), len(d) - 1)


def test_against_the_equation():
    a, b = np.random.default_rng(0).normal(80, 3, size=(2, 5, 10))
    found = paired_test(scores(a), scores(b))
    assert (found.mean, found.p) == pytest.approx(by_hand(a, b, 1 / 9))
    # Random splits have a large test part, so the same differences are weaker evidence.
    splits = paired_test(*([dataclasses.replace(each, test_ratio=8.0) for each in scores(rows)] for rows in (a, b)))
    assert (splits.mean, splits.p) == pytest.approx(by_hand(a, b, 8))
    constant = np.full((2, 5), 80.0)
    assert paired_test(scores(constant), scores(constant)).p == 1
    assert paired_test(scores(constant + 1), scores(constant)).p == 0


def one(seed, value, metric="rocauc"):
    return FoldScores(seed, (value,), (1.0,), (value,), 1, 1, metric)


def test_summary_by_hand():
    summary = summarise(scores([(50.0, 70.0), (64.0, 64.0), (70.0, 66.0)]))
    # Means 60, 64, 68; within-seed deviations 10, 0 and 2 times the root of two.
    assert summary == Summary(64.0, pytest.approx(4.0), pytest.approx(4.0 * 2**0.5), (0, 1, 2))
    assert str(summary) == "64.00 ± 4.00"


def test_one_seed_or_fold_has_no_deviation():
    summary = summarise([one(0, 70.0)])
    assert (summary.std_seeds, summary.std_folds, str(summary)) == (None, None, "70.00")
    assert paired_gain([one(0, 70.0)], [one(0, 69.0)]).std_seeds is None
    assert (repr(one(0, 70.0)), repr(scores([(50.0, 70.0)])[0])) == (
        "FoldScores(ROC-AUC 70.00 %, seed 0)",
        "FoldScores(accuracy 60.00 ± 14.14 % over 2 folds, seed 0)",
    )


def test_paired_gain_by_hand():
    before, after = scores([(50, 70), (60, 60), (80, 90)]), scores([(58, 70), (58, 62), (81, 93)])
    gain = paired_gain(after, before)  # per seed: 4, 0, 2
    assert (gain.mean, gain.positive, gain.seeds) == (2.0, pytest.approx(2 / 3), (0, 1, 2))
    assert gain.std_seeds == pytest.approx(2.0)


def test_one_fold_is_compared_over_seeds():
    after, before = [one(0, 70.0), one(1, 74.0)], [one(0, 69.0), one(1, 72.0)]
    found = paired_test(after, before)
    assert (found.mean, found.p) == (1.5, pytest.approx(stats.ttest_rel([70.0, 74.0], [69.0, 72.0]).pvalue))
    assert paired_test(after[:1], before[:1]).p == 1  # one seed gives no evidence


def test_an_error_gains_by_falling():
    after, before = [one(0, 0.5, "rmse"), one(1, 0.7, "rmse")], [one(0, 0.9, "rmse"), one(1, 0.9, "rmse")]
    assert paired_gain(after, before).mean == pytest.approx(0.3)
    assert paired_gain(after, before).positive == 1
    assert best_row({"after": after, "before": before}) == "after"
    assert best_row({"low": [one(0, 60.0)], "high": [one(0, 70.0)], "equal": [one(0, 70.0)]}) == "high"
    assert paired_test(after, before).mean == pytest.approx(0.3)


MESSAGES = [
    (lambda: summarise([]), r"`scores` must hold one score or more, .* got seeds \[\]\."),
    (lambda: summarise([one(1, 0.0), one(1, 0.0)]), r"`scores` must hold one .* got seeds \[1, 1\]\."),
    (lambda: paired_gain([one(0, 1.0)], [one(1, 1.0)]), r"`before` must .* `after`, \[\(0, 1\)\], got \[\(1, 1\)\]\."),
    (lambda: paired_test([one(0, 1.0)], scores([(1, 2)])), r"`before` must have the \(seed, folds\) of `after`"),
    (lambda: paired_gain([one(0, 1.0)], [one(0, 1.0, "rmse")]), "scores by different metrics cannot be compared, got"),
]


def test_messages():
    for call, line in MESSAGES:
        with pytest.raises(InputError, match=f"^{line}"):
            call()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_against_its_definition(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    raised, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        raised[i] = highest
    assert holm(p) == pytest.approx(raised)
    assert holm([]) == []
