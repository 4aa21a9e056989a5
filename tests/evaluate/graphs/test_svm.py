"""Test the SVM score against scikit-learn's GridSearchCV on the same outer folds."""

import itertools
import sys

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from graphcl.evaluate import Kernel, svm
from tests.evaluate.data import blobs

MODULE = sys.modules["graphcl.evaluate.graphs.svm"]  # the attribute `graphcl.evaluate.svm` is the function
GRID = (1e-2, 1.0, 1e2)
FAST = {"folds": 3, "inner_folds": 2, "grid": GRID}


def grid_search(h, y, *, seed=0, folds=3, inner_folds=2, grid=GRID, scale=False):
    """Return the accuracy in percent and the chosen C of each outer fold, by scikit-learn's GridSearchCV."""
    h, accuracy, c = np.asarray(h, dtype=np.float64), [], []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(h, y):
        machine = SVC(kernel="rbf", gamma="scale")
        steps = [("scale", StandardScaler()), ("svc", machine)] if scale else [("svc", machine)]
        inner = StratifiedKFold(inner_folds, shuffle=True, random_state=seed)
        search = GridSearchCV(Pipeline(steps), {"svc__C": grid}, cv=inner, scoring="accuracy")
        search.fit(h[train], y[train])
        accuracy.append(100 * search.score(h[test], y[test]))
        c.append(search.best_params_["svc__C"])
    return tuple(accuracy), tuple(c)


def pooled(seed=0):
    """Return an embedding like a sum readout, with columns and rows of very different scale, and the classes."""
    h, y = blobs(seed=seed)
    return h * np.random.default_rng(seed).gamma(1, 20, (len(h), 1)) * [1, 10, 100, 0.1, 0.0], y


CASES = {
    "binary": blobs(),
    "three classes": blobs(n=66, classes=3),
    "five classes": blobs(n=70, classes=5, noise=0.7),
    "unbalanced": (blobs()[0], np.arange(60) % 7 // 6),
    "sum-pooled": pooled(),
    "ties: integers": (np.round(blobs()[0]), blobs()[1]),
    "ties: noise": (blobs()[0], np.random.default_rng(3).permutation(60) % 2),
    "twins": (np.repeat(blobs()[0][:20], 3, 0), blobs()[1]),
    "float32": (blobs()[0].astype(np.float32), blobs()[1]),
}


SCALED = ["binary", "three classes", "sum-pooled", "twins", "float32"]


def test_equals_grid_search(monkeypatch):
    solver = MODULE._svm
    for name, scale in [*((name, False) for name in CASES), *((name, True) for name in SCALED)]:
        h, y = CASES[name]
        expected = grid_search(h, y, scale=scale)
        for machine in {solver, None}:
            monkeypatch.setattr(MODULE, "_svm", machine)
            result = svm(h, y, scale=scale, **FAST)
            assert (result.accuracy, result.chosen) == expected, (name, scale, machine)


def test_equals_grid_search_with_the_default_grid():
    h, y = blobs(n=50, seed=5)
    result = svm(torch.from_numpy(h).float(), torch.from_numpy(y), seed=7, folds=2, inner_folds=2)
    grid = [10.0**k for k in range(-3, 4)]
    expected = grid_search(h.astype(np.float32), y, seed=7, folds=2, inner_folds=2, grid=grid)
    assert (result.accuracy, result.chosen) == expected
    assert (result.seed, result.mean) == (7, np.mean(expected[0]))


def test_a_kernel_is_searched_with_c_and_every_test_row_is_reported():
    h, y = blobs()
    rows = h.astype(float) / np.linalg.norm(h, axis=1, keepdims=True)
    tables = {1: rows @ rows.T, 2: (rows @ rows.T) ** 2}
    kernel = Kernel(lambda power, train: lambda one, two: torch.from_numpy(tables[power])[one][:, two], (1, 2), len(y))
    tested = {}
    found = svm(kernel, y, **FAST, on_test=lambda held, hits: tested.update(zip(held.tolist(), hits, strict=True)))
    accuracy, powers, predicted = [], [], np.full(len(y), -1)
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(h, y):
        inner = StratifiedKFold(2, shuffle=True, random_state=0)
        best = []
        for power, table in tables.items():
            search = GridSearchCV(SVC(kernel="precomputed"), {"C": GRID}, cv=inner)
            search.fit(table[np.ix_(train, train)], y[train])
            best.append((search.best_score_, -power, search))
        _, power, search = max(best, key=lambda each: each[:2])
        predicted[test] = search.predict(tables[-power][np.ix_(test, train)])
        accuracy.append(100 * np.mean(predicted[test] == y[test]))
        powers.append(-power)
    assert (found.accuracy, found.chosen) == (tuple(accuracy), tuple(powers))
    assert [tested[row] for row in range(len(y))] == (predicted == y).tolist()


def test_a_margin_of_zero_is_left_to_libsvm():
    # All rows are equal and the classes balanced, so the sign of the decision value depends on rounding.
    for n, c in itertools.product(range(4, 40, 2), (0.3, 1.0)):
        fit, held, labels = np.ones((n, n)), np.ones((4, n)), np.r_[np.arange(n) >= n // 2, [False] * 4].astype(int)
        model = SVC(C=c, kernel="precomputed").fit(fit, labels[:n])
        expected = [model.score(held, labels[n:])]
        kernel = np.pad(fit.astype(np.float32), [(0, 0), (0, -n % MODULE.BLOCK)]), held
        (hits,) = MODULE.kernel_hits(kernel, labels, (np.arange(n), np.arange(n, n + 4)), [c])
        assert [hits.mean()] == expected, (n, c)


def rbf(h, train, held):
    """Return both parts of the kernel."""
    buffer = np.empty((len(train) + len(held)) * (len(train) + MODULE.BLOCK))
    return MODULE.rbf_kernel(h, (train, held), MODULE.squared_distances(h), buffer)


@pytest.mark.skipif(MODULE._svm is None, reason="the solver is not compiled")
def test_the_compiled_kernel_is_within_one_unit_of_the_last_place():
    table = -np.r_[0, np.geomspace(1e-300, 699.9, 5000), np.linspace(0, 699.9, 5000)][None]
    places = np.r_[0, 0], np.random.default_rng(0).permutation(table.size)[:9001]
    one, two = np.empty((2, 9001)), np.empty((2, 9008), np.float32)
    MODULE._exponentials(table, *places, 1.0, one)
    MODULE._exponentials(table, *places, 1.0, two)
    exact = np.exp(table[np.ix_(*places)].astype(np.longdouble))
    assert (np.abs(one - exact) < np.spacing(exact.astype(float))).all()
    assert (two[:, :9001] == exact.astype(np.float32)).all()
    assert not two[:, 9001:].any()
    with pytest.raises(IndexError, match=r"rows and columns must be inside the table"):
        MODULE._exponentials(table, np.r_[1], np.r_[0], 1.0, one)


@pytest.mark.skipif(MODULE._svm is None, reason="the solver is not compiled")
def test_multipliers_are_those_of_libsvm_bit_for_bit():
    train = np.sort(blobs(n=301)[1])
    for h in (blobs(n=301)[0], np.round(blobs(n=301, features=2)[0])):  # noise, and duplicates
        kernel, positive = rbf(h, np.arange(301), np.arange(0))[0], np.count_nonzero(train == 0)
        for c in (0.1, 1000.0):
            model = SVC(C=c, kernel="precomputed").fit(kernel[:, :301].astype(float), train)
            threshold, multipliers, converged = MODULE._svm.machine(
                kernel, 301, positive, c, MODULE.TOLERANCE, MODULE.STEPS
            )
            assert converged
            alpha = np.frombuffer(multipliers)
            assert threshold == model.intercept_[0]
            assert np.flatnonzero(alpha).tolist() == model.support_.tolist()
            assert (alpha[model.support_] == np.abs(model.dual_coef_[0])).all()


@pytest.mark.skipif(MODULE._svm is None, reason="the solver is not compiled")
def test_the_solver_reads_nothing_beyond_its_kernel():
    kernel = np.eye(8, 16, dtype=np.float32)
    sizes = [(kernel, n, positive) for n, positive in [(9, 4), (8, 8), (8, 0), (-1, 1), (1, 1), (2**62, 4), (2**61, 4)]]
    sizes += [(kernel[:, :15].copy(), 8, 4), (np.eye(8, 24, dtype=np.float32), 8, 4), (kernel[:0], 8, 4)]
    sizes += [(np.zeros((16, 32), np.float32)[::2, ::2], 8, 4)]
    for size in sizes:
        with pytest.raises((BufferError, ValueError), match=r"kernel must be float32|contiguous"):
            MODULE._svm.machine(*size, 1.0, 1e-3, 100)


DEGENERATE = {
    "nearly constant": lambda h, rng: 1e3 * (1 + 3e-16 * h),
    "huge": lambda h, rng: 1e140 * h,
    "tiny": lambda h, rng: 1e-160 * h,
    "offset": lambda h, rng: h + 10 ** rng.uniform(7, 12),
    "offset of a column": lambda h, rng: h + np.eye(1, h.shape[1]) * 10 ** rng.uniform(3, 7),
    "outlier": lambda h, rng: np.concatenate([1e6 * h[:1], h[1:]]),
}


def test_degenerate_rows():
    """Held-out rows have the accuracy of an SVC on centred columns, with the gamma of the columns as they are."""
    for name, seed in itertools.product(DEGENERATE, range(3)):
        rng = np.random.default_rng(seed)
        features, classes = int(rng.choice([1, 4, 200])), int(rng.integers(2, 6))
        h, y = blobs(int(rng.integers(3, 12)) * classes, features, classes, seed=seed)
        h = DEGENERATE[name](h, rng)
        train, held = np.split(rng.permutation(len(y)), [len(y) - 2])
        train, held = MODULE.sorted_by_class((train, held), y)
        kernel = rbf(h, train, held)
        assert all((part.min() >= 0, part.max() <= 1) == (True, True) for part in kernel), name
        variance, centred = h[train].var(), h - h.mean(0)
        gamma = 1 / (features * variance) if variance > 1e-300 else 1.0
        for c in (1e-3, 1.0, 1e4):
            model = SVC(C=c, gamma=gamma).fit(centred[train], y[train])
            right = [model.score(centred[held], y[held])]
            (hits,) = MODULE.kernel_hits(kernel, y, (train, held), [c])
            assert [hits.mean()] == right, (name, seed, c)


def test_a_fit_that_does_not_converge_warns(monkeypatch):
    monkeypatch.setattr(MODULE, "STEPS", 5)
    with pytest.warns(UserWarning, match=r"did not converge in 5 steps for C = 100; use a smaller C|max_iter=5"):
        svm(*blobs(), **{**FAST, "grid": (100.0,)})
