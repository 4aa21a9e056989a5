"""Compute metrics of predictions for one or more tasks with missing labels, by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.scores import LOWER, METRICS

Metric = Callable[[np.ndarray, np.ndarray], float]


def task_mean(name: str, truth: np.ndarray, predicted: np.ndarray) -> float:
    r"""Return the mean over tasks of a metric, in percent unless it is an error.

    $$\frac{1}{|T|} \sum_{t \in T} m(\{y_{it}\}, \{o_{it}\})$$

    where $y_{it}$ and $o_{it}$ are the known label and the prediction of graph i for task t. T holds the tasks that
    have a known label; for ROC-AUC and average precision, the tasks that have both classes. Graphs with a missing label
    (NaN) are excluded from that task.

    Args:
        name: `rocauc`, `ap`, `acc`, `rmse` or `mae`.
        truth: labels `[n, tasks]`; NaN marks a missing label.
        predicted: predictions `[n, tasks]`: scores of the positive class for `rocauc` and `ap`, classes for `acc`,
            numbers for `rmse` and `mae`.

    Raises:
        InputError: no task has the labels that the metric needs.

    Example:
        >>> task_mean("acc", np.array([[1.0, 0.0], [0.0, np.nan]]), np.array([[1.0, 1.0], [0.0, 0.0]]))
        50.0
    """
    from sklearn import metrics

    known_metrics: dict[str, Metric] = {
        "rocauc": metrics.roc_auc_score,
        "ap": metrics.average_precision_score,
        "acc": metrics.accuracy_score,
        "rmse": metrics.root_mean_squared_error,
        "mae": metrics.mean_absolute_error,
    }
    found = []
    for labels, outputs in zip(truth.T, predicted.T, strict=True):
        known = ~np.isnan(labels)
        if len(np.unique(labels[known])) > (name in ("rocauc", "ap")):
            found.append(float(known_metrics[name](labels[known], outputs[known])))
    if not found:
        needed = "both classes" if name in ("rocauc", "ap") else "a label"
        raise InputError(f"{METRICS[name]} is undefined: no task has {needed} among these {len(truth)} graphs.")
    return float(np.mean(found)) * (1 if name in LOWER else 100)


def check_metric(name: str, y: Tensor, split: Mapping[str, Tensor]) -> None:
    """Raise InputError if a metric is undefined on the validation or the test part, as no task has the labels for it.

    Args:
        name: see `task_mean`.
        y: labels `[n, tasks]`; NaN marks a missing label.
        split: indices of the graphs in the parts.
    """
    for part in ("valid", "test"):
        truth = y[split[part]].numpy()
        task_mean(name, truth, np.zeros_like(truth))
