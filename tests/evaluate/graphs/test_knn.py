"""Test the k-nearest-neighbour vote against loops over rows that follow the equation."""

import functools
import sys
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from graphcl.evaluate import knn
from tests.evaluate.data import blobs as any_blobs

MODULE = sys.modules["graphcl.evaluate.graphs.knn"]
GRID = (1, 3, 10)
FAST = {"folds": 3, "inner_folds": 3, "grid": GRID}
blobs = functools.partial(any_blobs, n=42, features=4)


def cosine(a, b):
    lengths = np.linalg.norm(a), np.linalg.norm(b)
    return float((a / (lengths[0] or 1)) @ (b / (lengths[1] or 1)))


def vote(h, y, train, row, k, ties):
    near = sorted(train, key=lambda other: (-cosine(h[row], h[other]), ties[other]))[:k]
    total = dict.fromkeys(sorted(set(y.tolist())), 0.0)
    for other in near:
        total[y[other]] += exp(cosine(h[row], h[other]) / 0.07)
    return max(total, key=total.get)


def right(h, y, train, held, k, ties):
    return np.mean([vote(h, y, train, row, k, ties) == y[row] for row in held])


def by_loops(h, y, seed=0, grid=GRID):
    accuracy, chosen = [], []
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    ties = np.random.default_rng(seed).permutation(len(h)).argsort()  # rank of each row among equal cosines
    for train, test in folds.split(h, y):
        inner = list(folds.split(train, y[train]))
        means = [np.mean([right(h, y, train[fit], train[held], k, ties) for fit, held in inner]) for k in grid]
        chosen.append(grid[int(np.argmax(means))])
        accuracy.append(100 * right(h, y, train, test, chosen[-1], ties))
    return tuple(accuracy), tuple(chosen)


CASES = {
    "binary": blobs(),
    "three classes": blobs(classes=3),
    "unbalanced": (blobs()[0], np.arange(42) % 7 // 6),
    "twins": (np.repeat(blobs()[0][:14], 3, 0), blobs()[1]),
    "a row of zeros": (blobs()[0] * (np.arange(42) != 5)[:, None], blobs()[1]),
    "zero": (np.zeros((42, 2)), blobs()[1]),
    "one column": (blobs()[0][:, :1], blobs()[1]),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_loops(name):
    h, y = CASES[name]
    result = knn(h, y, **FAST)
    assert (result.accuracy, result.chosen) == by_loops(h, y)
    assert all(type(k) is int for k in result.chosen)


@given(seed=st.integers(0, 1000), step=st.sampled_from([0.0, 1.0]))
@settings(max_examples=6, deadline=None)
def test_equals_the_loops_with_ties(seed, step):
    h, y = blobs(n=30, features=2, seed=seed)
    h = np.round(h / step) * step if step else h
    result = knn(h, y, seed=seed, **FAST)
    assert (result.accuracy, result.chosen) == by_loops(h, y, seed)


def test_equals_scikit_learn_without_ties():
    h, y = blobs(n=90, seed=3)
    machine = KNeighborsClassifier(7, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07))
    expected = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=1).split(h, y):
        expected.append(100 * machine.fit(h[train], y[train]).score(h[test], y[test]))
    assert knn(h, y, seed=1, folds=5, inner_folds=2, grid=(7,)).accuracy == pytest.approx(expected)


def test_training_rows_at_the_end_of_the_order_are_found():
    order = np.tile(np.arange(100, dtype=np.int32), (100, 1))
    train = np.arange(90, 100)
    assert MODULE._neighbours(order, (train, np.array([0, 3])), 4).tolist() == [[90, 91, 92, 93]] * 2
    assert MODULE._neighbours(order, (train, np.array([0])), 10).tolist() == [list(range(90, 100))]


def test_k_beyond_the_training_rows_takes_all():
    h, y = blobs(n=12)
    arguments = {"folds": 2, "inner_folds": 2}
    assert knn(h, y, grid=(500,), **arguments).accuracy == knn(h, y, grid=(6,), **arguments).accuracy


def test_the_length_of_a_row_does_not_matter():
    h, y = blobs()
    lengths = 2.0 ** (np.arange(42) % 9)
    assert knn(h * lengths[:, None], y, **FAST) == knn(h, y, **FAST)


def test_the_order_of_equal_rows_does_not_matter():
    """Two of six equal rows have class 0; the accuracy is the same whether these rows come first or last."""
    h = np.repeat(np.random.default_rng(0).normal(size=(30, 3)), 6, 0)
    y = np.tile([0, 0, 1, 1, 1, 1], 30)
    scores = [
        np.mean([knn(h[rows], y[rows], seed=seed, grid=(1,)).mean for seed in range(5)])
        for rows in (y.argsort(kind="stable"), (-y).argsort(kind="stable"))
    ]
    assert abs(scores[0] - scores[1]) < 6
