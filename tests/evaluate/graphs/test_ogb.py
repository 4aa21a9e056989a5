"""Test the evaluators on a benchmark's split against scikit-learn."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    average_precision_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.preprocessing import StandardScaler

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores, ogb, ogb_forest
from graphcl.evaluate.folds import C_GRID

N = 150
SPLIT = dict(zip(("train", "valid", "test"), np.split(np.random.default_rng(9).permutation(N), [90, 120]), strict=True))


def data(tasks: int, seed: int = 0, missing: float = 0.2):
    generator = np.random.default_rng(seed)
    h = generator.normal(size=(N, 6)) * 10.0 ** np.arange(-2, 4) + 5
    signal = (h - 5) / 10.0 ** np.arange(-2, 4) @ generator.normal(size=(6, tasks))
    y = (signal + 2 * generator.normal(size=(N, tasks)) > 0).astype(float)
    y[generator.random((N, tasks)) < missing] = np.nan
    return h, y


def by_hand(h, y, split, score, grid):
    """Return `(c, validation score, test score)` for the C with the best validation score; scores are task means."""
    rows = []
    for c in grid:
        means = []
        for part in ("valid", "test"):
            found = []
            for task in range(y.shape[1]):
                fit, held = (split[each][~np.isnan(y[split[each], task])] for each in ("train", part))
                model = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
                scaler = StandardScaler().fit(h[split["train"]])  # all training graphs, also unlabelled ones
                model.fit(scaler.transform(h[fit]), y[fit, task])
                found.append(score(y[held, task], model.decision_function(scaler.transform(h[held]))))
            means.append(100 * np.mean(found))
        rows.append((c, *means))
    return max(rows, key=lambda row: row[1])


def test_classification_equals_scikit_learn_by_task():
    for metric, tasks, score in [("rocauc", 3, roc_auc_score), ("ap", 2, average_precision_score)]:
        h, y = data(tasks)
        grid = C_GRID[2:4]
        found = ogb(h, y, split=SPLIT, eval_metric=metric, seed=3, grid=grid)
        c, inner, test = by_hand(h, y, SPLIT, score, grid)
        assert dataclasses.replace(found, figures={}) == FoldScores(
            3, (pytest.approx(test),), (c,), (pytest.approx(inner),), 1, 1, metric
        )
        # The result does not depend on tensors, threads or the order of the grid.
        split = {part: torch.from_numpy(rows) for part, rows in SPLIT.items()}
        tensors = torch.from_numpy(h), torch.from_numpy(y)
        assert ogb(*tensors, split=split, eval_metric=metric, seed=3, workers=3, grid=grid[::-1]) == found


def test_regression_is_ridge_regression():
    h, _ = data(1)
    y = (h[:, :1] * 100 + np.random.default_rng(1).normal(size=(N, 1))) / 50
    y[::7] = np.nan
    found = ogb(h, y, split=SPLIT, eval_metric="rmse")
    parts = {part: rows[~np.isnan(y[rows, 0])] for part, rows in SPLIT.items()}
    z, errors = StandardScaler().fit(h[SPLIT["train"]]).transform(h), []
    for c in C_GRID:
        model = Ridge(1 / c).fit(z[parts["train"]], y[parts["train"], 0])
        errors.append([np.sqrt(np.mean((model.predict(z[parts[p]]) - y[parts[p], 0]) ** 2)) for p in ("valid", "test")])
    inner, test = min(errors)
    assert (found.inner, found.accuracy) == ((pytest.approx(inner),), (pytest.approx(test),))
    assert found.chosen == (C_GRID[[row[0] for row in errors].index(inner)],)


def test_a_rare_value_does_not_decide_the_probe():
    """One test graph has a value that is 1000 deviations from the training part; the error must stay finite."""
    h, _ = data(1)
    y = h[:, :1] / 100
    h[SPLIT["test"][0], 1:] += 1e6
    assert ogb(h, y, split=SPLIT, eval_metric="rmse").mean < 10 * y.std()


@pytest.mark.parametrize("metric", ["rmse", "rocauc", "acc"])
def test_forest_equals_that_of_scikit_learn(metric):
    """Columns of few values are not coded, so the forest is scikit-learn's; an increasing function changes nothing."""
    generator = np.random.default_rng(0)
    h = generator.integers(0, 10, (N, 6)).astype(float)
    signal = h[:, 0] * (h[:, 1] > 4) + generator.normal(size=N)
    classes = {"rmse": signal, "rocauc": signal > 2, "acc": np.digitize(signal, [1, 4])}
    y = classes[metric].astype(float)
    known = {part: rows[rows % 5 > 0] for part, rows in SPLIT.items()}
    make, columns = (RandomForestRegressor, 1 / 3) if metric == "rmse" else (RandomForestClassifier, "sqrt")

    def scores(leaf, trees):
        model = make(trees, min_samples_leaf=leaf, max_features=columns, random_state=7)
        model.fit(h[known["train"]], y[known["train"]])
        predict = (lambda x: model.predict_proba(x)[:, 1]) if metric == "rocauc" else model.predict
        pairs = [(y[known[part]], predict(h[known[part]])) for part in ("valid", "test")]
        score = {"rocauc": roc_auc_score, "acc": lambda a, b: np.mean(a == b)}
        return [
            100 * score[metric](*each) if metric in score else np.sqrt(np.mean(np.subtract(*each) ** 2))
            for each in pairs
        ]

    leaf = (min if metric == "rmse" else max)((1, 10), key=lambda leaf: scores(leaf, 10)[0])
    inner, test = scores(leaf, 50)
    targets = np.full((N, 2), np.nan)
    for rows in known.values():
        targets[rows] = y[rows, None]
    for workers, values in ((1, h), (3, np.exp(h))):
        found = ogb_forest(
            values, targets, split=SPLIT, eval_metric=metric, seed=7, grid=(1, 10), trees=50, workers=workers
        )
        assert (found.mean, found.inner[0], found.chosen) == (pytest.approx(test), pytest.approx(inner), (leaf,))
        found = dataclasses.replace(found, figures={})
        one = ogb_forest(
            values, targets[:, :1], split=SPLIT, eval_metric=metric, seed=7, grid=(1, 10), trees=50, workers=2
        )
        assert dataclasses.replace(one, figures={}) == found  # both tasks are the same


@pytest.mark.filterwarnings("error")
def test_what_cannot_be_learnt_scores_as_a_guess():
    h, y = data(2, missing=0)
    assert ogb(np.ones((N, 2)), y, split=SPLIT, eval_metric="rocauc").mean == 50  # a constant embedding
    y[SPLIT["train"], 1] = 1  # a task of one class in the training part
    both = ogb(h, y, split=SPLIT, eval_metric="rocauc", grid=[1.0])
    one = ogb(h, y[:, :1], split=SPLIT, eval_metric="rocauc", grid=[1.0])
    assert both.mean == pytest.approx((one.mean + 50) / 2)
    y[SPLIT["train"], 1] = np.nan
    assert ogb(h, y, split=SPLIT, eval_metric="rocauc", grid=[1.0]).mean == both.mean


@pytest.mark.parametrize("evaluator", [ogb, ogb_forest])
@pytest.mark.parametrize("metric", ["rmse", "mae", "r2", "rocauc"])
def test_predictions_and_figures_are_those_of_the_score(evaluator, metric):
    h, y = data(2)
    if metric != "rocauc":
        y = y + h[:, :1] / 100
    kept = []
    options = {"grid": [1], "trees": 10} if evaluator is ogb_forest else {}
    found = evaluator(
        h, y, split=SPLIT, eval_metric=metric, tasks=["a", "b"], on_predicted=lambda *each: kept.append(each), **options
    )
    ((rows, predicted),) = kept
    assert np.array_equal(rows, SPLIT["test"])
    own, score = {"rmse": "RMSE", "mae": "MAE", "r2": "R2", "rocauc": "ROC-AUC"}[metric], []
    scorers = {"RMSE": root_mean_squared_error, "MAE": mean_absolute_error, "R2": r2_score, "ROC-AUC": roc_auc_score}
    if metric == "rocauc":
        assert ((predicted >= 0) & (predicted <= 1)).all()
    for name, scorer in scorers.items():
        if (metric == "rocauc") == (name == "ROC-AUC"):
            known = [~np.isnan(y[rows, task]) for task in (0, 1)]
            score = [scorer(y[rows, task][known[task]], predicted[known[task], task]) for task in (0, 1)]
            scale = 100 if metric == "rocauc" else 1
            value = found.mean if name == own else found.figures[name]
            assert value == pytest.approx(scale * np.mean(score))
            if name == own:
                assert [found.figures[f"{name} of {task}"] for task in "ab"] == pytest.approx(
                    [scale * s for s in score]
                )
    assert list(found.figures)[-2:] == [f"{own} of a", f"{own} of b"]


H, Y = data(1)
PARTS = "`split` must have three parts of different graphs out of the 150"


MESSAGES = [
    ({"y": Y[:, 0]}, r"`y` must be \[150, tasks\], got shape \[150\]\."),
    ({"y": Y + 0.5}, r"`y` must hold whole numbers, or NaN for a missing label, if `eval_metric` is rocauc\."),
    ({"y": np.full((N, 1), np.inf), "eval_metric": "rmse"}, r"`y` must hold finite numbers, or NaN"),
    ({"y": np.arange(N)[:, None] % 3}, r"`y` must have two classes if `eval_metric` is rocauc, got 3\."),
    *(({"split": {**SPLIT, "test": test}}, PARTS) for test in (SPLIT["valid"], [150], [])),
    ({"y": np.ones((N, 1))}, r"ROC-AUC % is undefined: no task has both classes among these 30 graphs"),
    ({"y": Y * np.nan, "eval_metric": "rmse"}, "RMSE is undefined: no task has a label among these 30 graphs"),
]


@pytest.mark.parametrize("evaluator", [ogb, ogb_forest])
def test_messages(evaluator):
    for change, message in MESSAGES:
        with pytest.raises(InputError, match=message):
            evaluator(**{"h": H, "y": Y, "split": SPLIT, "eval_metric": "rocauc", **change})
