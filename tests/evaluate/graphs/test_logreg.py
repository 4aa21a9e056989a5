"""Test the linear probe against scikit-learn's GridSearchCV on the same outer folds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphcl.evaluate.graphs import logreg
from tests.evaluate.data import blobs

GRID = (1e-3, 1e-1, 1e2)
FAST = {"folds": 3, "inner_folds": 3, "grid": GRID}


def grid_search(h, y, *, seed=0, grid=GRID):
    """Return the accuracy in percent and the chosen C of each outer fold, by GridSearchCV with another solver."""
    probe = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cg", tol=1e-7, max_iter=1000))
    accuracy, chosen = [], []
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    for train, test in folds.split(h, y):
        search = GridSearchCV(probe, {"logisticregression__C": grid}, cv=folds).fit(h[train], y[train])
        accuracy.append(100 * search.score(h[test], y[test]))
        chosen.append(search.best_params_["logisticregression__C"])
    return tuple(accuracy), tuple(chosen)


CASES = {
    "binary": blobs(),
    "three classes": blobs(n=66, classes=3),
    "five classes": blobs(n=70, classes=5, noise=0.7),
    "separable": blobs(noise=0.01),
    "constant": (np.full((50, 3), 0.5), np.arange(50) % 3 // 2),
    "a constant column": (blobs()[0] * [1, 0, 1, 0, 1], blobs()[1]),
    "twin columns of different scale": (np.tile(blobs()[0], 2) * np.repeat([1, 1e4], 5), blobs()[1]),
    "more columns than rows": blobs(n=30, features=50),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_equals_grid_search(name):
    h, y = CASES[name]
    result = logreg(h, y, **FAST)
    assert (result.accuracy, result.chosen) == grid_search(h, y)


@given(seed=st.integers(0, 1000), classes=st.integers(2, 3), features=st.integers(1, 6))
@settings(max_examples=3, deadline=None)
def test_equals_grid_search_on_noise(seed, classes, features):
    rng = np.random.default_rng(seed)
    h, y = rng.normal(size=(48, features)), rng.permutation(np.arange(48) % classes)
    result = logreg(h, y, seed=seed, **FAST)
    assert (result.accuracy, result.chosen) == grid_search(h, y, seed=seed)


def test_the_order_of_the_grid_decides_ties_and_nothing_else():
    h, y = blobs(noise=0.01)  # every C classifies all rows
    assert set(logreg(h, y, **{**FAST, "grid": (1.0, 10.0)}).chosen) == {1.0}
    assert set(logreg(h, y, **{**FAST, "grid": (10.0, 1.0)}).chosen) == {10.0}
    h, y = blobs()
    ways = [logreg(h, y, **{**FAST, "grid": grid}) for grid in [(1e-3, 1e1), (1e1, 1e-3)]]
    decided = [a == b for a, b in zip(ways[0].chosen, ways[1].chosen, strict=True)]
    assert [a == b for a, b in zip(ways[0].accuracy, ways[1].accuracy, strict=True)] >= decided


def test_the_scale_of_a_column_does_not_matter():
    h, y = blobs()
    assert logreg(h * [1, 10, 100, 1000, 1e-3] + 7, y, **FAST) == logreg(h, y, **FAST)
