"""Divide rows into a training, a validation and a test part, and compute metrics of the predictions for a part.

There may be several tasks with missing labels; the metrics are those of scikit-learn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from graphcl.arguments import shown
from graphcl.errors import InputError, warn
from graphcl.evaluate.folds import as_array
from graphcl.evaluate.ranking import connected
from graphcl.evaluate.scores import METRICS, NUMBERS

PARTS = ("train", "valid", "test")
HELD_OUT = 0.1
"""Fraction of the graphs in the validation part and in the test part of a split by group."""
OnPredicted = Callable[[np.ndarray, np.ndarray], object]
"""Function called with the rows of the test part and their predictions `[rows, tasks]`.

They are numbers, probabilities of class 1 or, for accuracy, classes.
"""


def split_parts(split: Mapping[str, Tensor | np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Return part -> row indices for `split`; raise InputError if the split is invalid."""
    if not isinstance(split, Mapping) or set(split) != set(PARTS):
        names = ", ".join(map(str, split)) or "none" if isinstance(split, Mapping) else shown(split)
        raise InputError(f"`split` must have the parts train, valid and test, got {names}.")
    parts = {part: as_array(f"split[{part!r}]", split[part]) for part in PARTS}
    rows = np.concatenate([part.ravel() for part in parts.values()])
    whole = all(part.ndim == 1 and part.size and part.dtype.kind in "iu" for part in parts.values())
    if not whole or rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows):
        raise InputError(f"`split` must have three parts of different graphs out of the {n} rows of `h`.")
    return parts


def group_split(
    group: Tensor | np.ndarray, project: Tensor | np.ndarray | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return the rows of random parts `train` (80 %), `valid` (10 %) and `test` (10 %), with no group on two parts.

    The validation part and then the test part take random groups until they have a tenth of the graphs; groups of more
    than a tenth are taken last, the smallest first, so the largest group is in the training part. A warning names the
    sizes if one is more than a tenth of the graphs off. A graph without a group counts as a group of its own.

    Args:
        group: group of each graph `[n]`, whole numbers, -1 for none.
        project: project of each graph `[n]`, whole numbers, -1 for none; no project is on two parts either. A group
            that occurs in several projects joins them.
        seed: seed of the parts.

    Raises:
        InputError: there are fewer than three groups, or projects that no group joins.

    Example:
        >>> parts = group_split(np.repeat(np.arange(10), 2))
        >>> {part: len(rows) for part, rows in parts.items()}
        {'train': 16, 'valid': 2, 'test': 2}
    """
    n = len(group)
    nodes, first = [], n
    for name, key in (("group", group), ("project", project)):  # edges between graphs and their groups and projects
        numbers = np.full(n, -1) if key is None else as_array(name, key, "iu", "whole numbers, -1 for none")
        graph = np.flatnonzero(numbers >= 0)
        node = np.unique(numbers[graph], return_inverse=True)[1].reshape(-1)
        nodes.append((graph, first + node))
        first += int(node.max(initial=-1)) + 1
    graphs, keys = (np.concatenate(ends) for ends in zip(*nodes, strict=True))
    unit = np.unique(connected(graphs, keys, first)[:n], return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(unit)
    if len(sizes) < 3:
        needed = "groups" if project is None else "projects without a common group"
        raise InputError(f"a split by group needs 3 {needed} or more, for training, validation and test.")
    order = np.random.default_rng(seed).permutation(len(sizes))
    large = np.where(sizes > HELD_OUT * n, sizes, 0)
    order = order[np.argsort(large[order], kind="stable")]
    part, taken, place = np.zeros(len(sizes), np.int64), 0, 0
    for number in (1, 2):
        while not taken or (taken < HELD_OUT * n and place < len(sizes) - 3 + number):
            part[order[place]], taken, place = number, taken + int(sizes[order[place]]), place + 1
        taken = 0
    parts = {name: np.flatnonzero(part[unit] == number) for number, name in enumerate(PARTS)}
    train, valid, test = (len(rows) / n for rows in parts.values())
    if max(abs(train - 1 + 2 * HELD_OUT), abs(valid - HELD_OUT), abs(test - HELD_OUT)) > 0.1:
        what = "group" if project is None else "project"
        shares = f"{100 * train:.0f}, {100 * valid:.0f} and {100 * test:.0f} % training, validation and test graphs"
        reason = f"as no {what} is divided"
        warn(f"the split by {what} has {shares}, not 80, 10 and 10 %, {reason}; name parts of your own in `part`.")
    return parts


def check_groups_apart(parts: Mapping[str, np.ndarray], group: Tensor | np.ndarray, what: str = "group") -> None:
    """Raise InputError if a group (or what `what` names) of the graphs `[n]` is on two of the parts."""
    numbers = np.asarray(as_array(what, group, "iu", "whole numbers, -1 for none"))
    groups = {part: np.unique(numbers[rows][numbers[rows] >= 0]) for part, rows in parts.items()}
    for first, second in itertools.combinations(parts, 2):
        both = np.intersect1d(groups[first], groups[second])
        if len(both):
            more = f", and so are {len(both) - 1} more" if len(both) > 1 else ""
            raise InputError(f"{what} {both[0]} is in the parts {first} and {second}{more}; put each into one.")


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

    functions: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
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
