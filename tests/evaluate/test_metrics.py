"""Test metrics over tasks with missing labels against OGB's evaluator."""

import numpy as np
import pytest

from graphcl.evaluate.on_split import task_mean


@pytest.mark.parametrize(
    ("metric", "name", "tasks"),
    [("rocauc", "ogbg-moltox21", 12), ("ap", "ogbg-molmuv", 17), ("acc", "ogbg-ppa", 1), ("rmse", "ogbg-molesol", 1)],
)
def test_equals_ogbs_evaluator(metric, name, tasks):
    evaluator, generator = pytest.importorskip("ogb.graphproppred").Evaluator(name), np.random.default_rng(0)
    truth = generator.integers(3 if metric == "acc" else 2, size=(60, tasks)).astype(float)
    predicted = generator.integers(3, size=truth.shape) if metric == "acc" else generator.normal(size=truth.shape)
    if tasks > 1:
        truth[generator.random(truth.shape) < 0.3] = np.nan
        truth[:, 1] = 1  # a task with one class only
    expected = evaluator.eval({"y_true": truth, "y_pred": predicted})[metric]
    assert task_mean(metric, truth, predicted) == pytest.approx(expected * (1 if metric == "rmse" else 100), rel=1e-12)


def test_errors_skip_missing_labels():
    truth, predicted = np.array([[0.0], [1.0], [np.nan]]), np.array([[1.0], [3.0], [9.0]])
    assert task_mean("mae", truth, predicted) == pytest.approx(1.5)
    assert task_mean("rmse", truth, predicted) == pytest.approx(2.5**0.5)
