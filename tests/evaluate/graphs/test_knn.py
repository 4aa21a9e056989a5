"""Test the k-nearest-neighbour vote against loops over rows that follow the equation."""

import functools
from math import exp

import numpy as np
from sklearn.model_selection import StratifiedKFold

from graphcl.evaluate import knn
from tests.evaluate.data import blobs as any_blobs

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


def by_loops(h, y, seed=0, grid=GRID):
    accuracy, chosen = [], []
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    ties = np.random.default_rng(seed).permutation(len(h)).argsort()  # rank of each row among equal cosines

    def right(train, held, k):
        return np.mean([vote(h, y, train, row, k, ties) == y[row] for row in held])

    for train, test in folds.split(h, y):
        inner = list(folds.split(train, y[train]))
        means = [np.mean([right(train[fit], train[held], k) for fit, held in inner]) for k in grid]
        chosen.append(grid[int(np.argmax(means))])
        accuracy.append(100 * right(train, test, chosen[-1]))
    return tuple(accuracy), tuple(chosen)


CASES = {
    "three classes": blobs(classes=3),
    "unbalanced": (blobs()[0], np.arange(42) % 7 // 6),
    "twins": (np.repeat(blobs()[0][:14], 3, 0), blobs()[1]),
    "a row of zeros": (blobs()[0] * (np.arange(42) != 5)[:, None], blobs()[1]),
    "one column": (blobs()[0][:, :1], blobs()[1]),
    "ties": (np.round(blobs(features=2)[0]), blobs()[1]),
}


def test_equals_the_loops():
    for name, (h, y) in CASES.items():
        seed = int(name == "ties")
        result = knn(h, y, seed=seed, **FAST)
        assert (result.accuracy, result.chosen) == by_loops(h, y, seed), name
        assert all(type(k) is int for k in result.chosen)


def test_k_beyond_the_training_rows_takes_all_and_lengths_do_not_matter():
    h, y = blobs(n=12)
    arguments = {"folds": 2, "inner_folds": 2}
    assert knn(h, y, grid=(500,), **arguments).accuracy == knn(h, y, grid=(6,), **arguments).accuracy
    assert knn(h * 2.0 ** np.arange(12)[:, None], y, **arguments) == knn(h, y, **arguments)


def test_far_training_rows_are_found():
    h, y = blobs(n=200)
    h[:, 0] = 0
    h[:100, 0] = 50  # all rows of the test part are nearer to each other than to a training row
    ties = np.random.default_rng(0).permutation(200).argsort()
    train, test = np.arange(100), np.arange(100, 200)
    expected = 100 * np.mean([vote(h, y, train, row, 3, ties) == y[row] for row in test])
    assert knn(h, y, grid=(3,), inner_folds=2, cv=[(train, test)]).accuracy == (expected,)
