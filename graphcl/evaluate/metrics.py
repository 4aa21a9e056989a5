"""Compute metrics of predictions for one or more tasks with missing labels, by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from graphcl.errors import InputError
from graphcl.evaluate.scores import METRICS, NUMBERS

Metric = Callable[[np.ndarray, np.ndarray], float]


def task_mean(name: str, truth: np.ndarray, predicted: np.ndarray) -> float:
    r"""Return the mean over tasks of a metric, in percent unless it is of numbers.

    $$\frac{1}{|T|} \sum_{t \in T} m(\{y_{it}\}, \{o_{it}\})$$

    where $y_{it}$ and $o_{it}$ are the known label and the prediction of graph i for task t. T holds the tasks that
    have a known label; for ROC-AUC and average precision, the tasks that have both classes; for R2, those with two
    different labels. Graphs with a missing label (NaN) are excluded from that task.

    Args:
        name: `rocauc`, `ap`, `acc`, `rmse`, `mae` or `r2`.
        truth: labels `[n, tasks]`; NaN marks a missing label.
        predicted: predictions `[n, tasks]`: scores of the positive class for `rocauc` and `ap`, classes for `acc`,
            numbers for `rmse`, `mae` and `r2`.

    Raises:
        InputError: no task has the labels that the metric needs.

    Example:
        >>> task_mean("acc", np.array([[1.0, 0.0], [0.0, np.nan]]), np.array([[1.0, 1.0], [0.0, 0.0]]))
        50.0
    """
    scores = task_scores(name, truth, predicted)
    if np.isnan(scores).all():
        needed = {"rocauc": "both classes", "ap": "both classes", "r2": "two different labels"}.get(name, "a label")
        raise InputError(f"{METRICS[name]} is undefined: no task has {needed} among these {len(truth)} graphs.")
    return float(np.nanmean(scores))


def task_scores(name: str, truth: np.ndarray, predicted: np.ndarray) -> list[float]:
    """Return the metric of each task, NaN where it is undefined; for the arguments, see `task_mean`."""
    from sklearn import metrics

    functions: dict[str, Metric] = {
        "rocauc": metrics.roc_auc_score,
        "ap": metrics.average_precision_score,
        "acc": metrics.accuracy_score,
        "rmse": metrics.root_mean_squared_error,
        "mae": metrics.mean_absolute_error,
        "r2": metrics.r2_score,
    }
    scores, needs_two = [], name in ("rocauc", "ap", "r2")
    for labels, outputs in zip(truth.T, predicted.T, strict=True):
        labelled = ~np.isnan(labels)
        defined = len(np.unique(labels[labelled])) > needs_two
        value = float(functions[name](labels[labelled], outputs[labelled])) if defined else np.nan
        scores.append(value * (1 if name in NUMBERS else 100))
    return scores


def further_figures(name: str, truth: np.ndarray, predicted: np.ndarray, tasks: Sequence[str] = ()) -> dict[str, float]:
    """Return the other metrics of predicted numbers, and the metric of each of several tasks, where it is defined.

    Example:
        >>> further_figures("rmse", np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]]))
        {'MAE': 0.5, 'R2': -1.0}
    """
    figures = dict[str, float]()
    for other in ("rmse", "mae", "r2"):
        if name in NUMBERS and other != name:
            with suppress(InputError):
                figures[METRICS[other]] = task_mean(other, truth, predicted)
    if truth.shape[1] > 1:
        scores = zip(task_names(truth.shape[1], tasks), task_scores(name, truth, predicted), strict=True)
        label = METRICS[name].removesuffix(" %")
        figures |= {f"{label} of {task}": score for task, score in scores if not np.isnan(score)}
    return figures


def task_names(count: int, tasks: Sequence[str] = ()) -> list[str]:
    """Return the names `tasks` if there are any, else those of the columns in tables: y, or y0, y1, ..."""
    return [*tasks] or (["y"] if count == 1 else [f"y{task}" for task in range(count)])


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
