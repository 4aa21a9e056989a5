"""Test metrics over tasks with missing labels against OGB's evaluator."""

import numpy as np
import pytest

from graphcl.errors import InputError
from graphcl.evaluate.metrics import task_mean

NAMES = {"rocauc": "ogbg-moltox21", "ap": "ogbg-molmuv", "acc": "ogbg-ppa", "rmse": "ogbg-molesol"}
TASKS = {"rocauc": 12, "ap": 17, "acc": 1, "rmse": 1}


def labels_and_predictions(metric, tasks):
    generator = np.random.default_rng(0)
    truth = generator.integers(3 if metric == "acc" else 2, size=(60, tasks)).astype(float)
    predicted = generator.normal(size=truth.shape)
    if metric == "acc":
        predicted = generator.integers(3, size=truth.shape)
    elif tasks > 1:
        truth[generator.random(truth.shape) < 0.3] = np.nan
        truth[:, 1] = 1  # a task with one class only
    return truth, predicted


@pytest.mark.parametrize("metric", NAMES)
def test_equals_ogbs_evaluator(metric):
    evaluator = pytest.importorskip("ogb.graphproppred").Evaluator(NAMES[metric])
    truth, predicted = labels_and_predictions(metric, TASKS[metric])
    expected = evaluator.eval({"y_true": truth, "y_pred": predicted})[metric]
    assert task_mean(metric, truth, predicted) == pytest.approx(expected * (1 if metric == "rmse" else 100), rel=1e-12)


def test_errors_skip_missing_labels():
    truth, predicted = np.array([[0.0], [1.0], [np.nan]]), np.array([[1.0], [3.0], [9.0]])
    assert task_mean("mae", truth, predicted) == pytest.approx(1.5)
    assert task_mean("rmse", truth, predicted) == pytest.approx(2.5**0.5)


def test_undefined():
    cases = {"rocauc": (1, "ROC-AUC % is undefined: no task has both classes among these 2 graphs.")}
    cases["rmse"] = np.nan, "RMSE is undefined: no task has a label among these 2 graphs."
    for metric, (label, message) in cases.items():
        with pytest.raises(InputError) as caught:
            task_mean(metric, np.full((2, 1), label), np.zeros((2, 1)))
        assert str(caught.value) == message
