"""Test the linear probe against scikit-learn's GridSearchCV on the same outer folds."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphcl.evaluate import logreg
from graphcl.evaluate.graphs.logreg import use_newton
from tests.evaluate.data import blobs

GRID = (1e-3, 1e-1, 1e2)
FAST = {"folds": 2, "inner_folds": 2, "grid": GRID}


def grid_search(h, y, *, seed=0, grid=GRID):
    """Return the accuracy in percent and the chosen C of each outer fold, by GridSearchCV with another solver."""
    probe = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cg", tol=1e-7, max_iter=1000))
    accuracy, chosen = [], []
    folds = StratifiedKFold(2, shuffle=True, random_state=seed)
    for train, test in folds.split(h, y):
        search = GridSearchCV(probe, {"logisticregression__C": grid}, cv=folds).fit(h[train], y[train])
        accuracy.append(100 * search.score(h[test], y[test]))
        chosen.append(search.best_params_["logisticregression__C"])
    return tuple(accuracy), tuple(chosen)


CASES = {
    "binary": blobs(n=42),
    "three classes": blobs(n=42, classes=3),
    "five classes": blobs(n=50, classes=5, noise=0.7),
    "separable": blobs(n=42, noise=0.01),
    "a constant column": (blobs(n=42)[0] * [1, 0, 1, 0, 1], blobs(n=42)[1]),
    "twin columns of different scale": (np.tile(blobs(n=42)[0], 2) * np.repeat([1, 1e4], 5), blobs(n=42)[1]),
    "more columns than rows": blobs(n=30, features=50),
    "noise": (np.random.default_rng(0).normal(size=(42, 4)), np.arange(42) % 3),
}


def test_both_solvers_agree_and_wide_embeddings_of_several_classes_use_less_memory(monkeypatch):
    pytest.importorskip("sklearn", "1.6", reason="its Newton method takes two classes only")
    h, y = CASES["five classes"]
    found = logreg(h, y, **FAST)
    assert use_newton(y, 800)
    assert not use_newton(y, 900)
    assert use_newton(y % 2, 9000)
    monkeypatch.setattr(sys.modules["graphcl.evaluate.graphs.logreg"], "LARGEST_HESSIAN", 0)
    assert logreg(h, y, **FAST) == found


@pytest.mark.filterwarnings("error")
def test_equals_grid_search():
    for name, (h, y) in CASES.items():
        for seed in (0, 5) if name == "noise" else (0,):
            result = logreg(h, y, seed=seed, **FAST)
            assert (result.accuracy, result.chosen) == grid_search(h, y, seed=seed), (name, seed)
