"""Score predictions on the split of a benchmark: what evaluators on a split have in common.

- A model is fitted for each task (column of `y`) on the training part. A graph with a missing label (NaN) is excluded
  from that task.
- The candidate, such as C or k, with the best metric on the validation part, averaged over tasks, is chosen. Of equally
  good ones, the first is chosen.
- Score: the metric on the test part, see `graphcl.evaluate.metrics`. The score equals that of
  `ogb.graphproppred.Evaluator`, but is in percent unless the metric is of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import get_args

import numpy as np
from torch import Tensor

from graphcl.arguments import MetricName, shown
from graphcl.errors import InputError, warn
from graphcl.evaluate.folds import as_array, worker_count
from graphcl.evaluate.metrics import further_figures, task_mean
from graphcl.evaluate.ranking import connected
from graphcl.evaluate.scores import LOWER, NUMBERS, FoldScores

PARTS = ("train", "valid", "test")
HELD_OUT = 0.1
"""Fraction of the graphs in the validation part and in the test part of a split by group."""
Predict = Callable[[np.ndarray], list[np.ndarray]]
"""Function from rows to their predictions, one array per candidate."""
OnPredicted = Callable[[np.ndarray, np.ndarray], object]
"""Function called with the rows of the test part and their predictions `[rows, tasks]`.

They are numbers, probabilities of class 1 or, for accuracy, classes.
"""


def split_parts(split: Mapping[str, Tensor | np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Return part -> row indices for `split`; raise InputError if the split is invalid."""
    if not isinstance(split, Mapping) or set(split) != set(PARTS):
        found = ", ".join(map(str, split)) or "none" if isinstance(split, Mapping) else shown(split)
        raise InputError(f"`split` must have the parts train, valid and test, got {found}.")
    parts = {part: as_array(f"split[{part!r}]", split[part]) for part in PARTS}
    every = np.concatenate([part.ravel() for part in parts.values()])
    whole = all(part.ndim == 1 and part.size and part.dtype.kind in "iu" for part in parts.values())
    if not whole or every.min() < 0 or every.max() >= n or len(np.unique(every)) < len(every):
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
    of = np.asarray(as_array(what, group, "iu", "whole numbers, -1 for none"))
    seen: dict[str, np.ndarray] = {}
    for part, rows in parts.items():
        own = np.unique(of[rows][of[rows] >= 0])
        for other, theirs in seen.items():
            if len(both := np.intersect1d(own, theirs)):
                more = f", and so are {len(both) - 1} more" if len(both) > 1 else ""
                raise InputError(f"{what} {both[0]} is in the parts {other} and {part}{more}; put each into one.")
        seen[part] = own


def on_split(
    z: np.ndarray,
    y: Tensor | np.ndarray,
    parts: Mapping[str, np.ndarray],
    metric: str,
    seed: int,
    candidates: Sequence[float],
    fit: Callable[[np.ndarray, np.ndarray, Sequence[float], str], Predict],
    workers: int | None,
) -> tuple[FoldScores, np.ndarray]:
    """Return the test score of the best of the `candidates`, for rows `z [n, D]`, and its predictions `[test, tasks]`.

    `fit` takes the training rows and targets of one task, the candidates and the metric; threads fit different tasks.

    Raises:
        InputError: `y` has a wrong shape or labels, or the metric is unknown or undefined on a part.
    """
    from threadpoolctl import threadpool_limits

    y = as_array("y", y)
    if y.ndim != 2 or len(y) != len(z) or y.shape[1] < 1:
        raise InputError(f"`y` must be [{len(z)}, tasks], got shape {list(y.shape)}.")
    if not isinstance(metric, str) or metric not in get_args(MetricName):
        raise InputError(f"`eval_metric` must be rocauc, ap, acc, rmse, mae or r2, got {shown(metric)}.")
    known = y[~np.isnan(y)]
    if not np.isfinite(known).all() or (metric not in NUMBERS and (known != np.trunc(known)).any()):
        wanted = "finite numbers" if metric in NUMBERS else "whole numbers"
        raise InputError(f"`y` must hold {wanted}, or NaN for a missing label, if `eval_metric` is {metric}.")
    if metric in ("rocauc", "ap") and len(np.unique(known)) > 2:
        raise InputError(f"`y` must have two classes if `eval_metric` is {metric}, got {len(np.unique(known))}.")
    rows = {part: z[index] for part, index in parts.items()}
    truth = {part: y[index].astype(np.float64) for part, index in parts.items()}

    def predictions(task: int) -> list[list[np.ndarray]]:
        known = ~np.isnan(truth["train"][:, task])
        labels = truth["train"][known, task]
        if len(np.unique(labels)) < 2:  # models reject targets of one class or none
            constant = float(labels.mean()) if len(labels) else 0.0
            if metric in ("rocauc", "ap") and len(labels):
                constant = 60 * constant - 30  # the logarithm of the odds that is next to certain
            return [[np.full(len(parts[part]), constant)] * len(candidates) for part in ("valid", "test")]
        predict = fit(rows["train"][known], labels, candidates, metric)
        return [predict(rows[part]) for part in ("valid", "test")]

    # One BLAS thread per worker: more BLAS threads would slow the workers down.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(worker_count(workers)) as pool:
        found = list(pool.map(predictions, range(y.shape[1])))
    valid, test = ([np.stack([task[j][i] for task in found], axis=1) for i in range(len(candidates))] for j in (0, 1))
    inner = [task_mean(metric, truth["valid"], each) for each in valid]
    best = int(np.argmin(inner) if metric in LOWER else np.argmax(inner))
    score = task_mean(metric, truth["test"], test[best])
    return FoldScores(seed, (score,), (candidates[best],), (inner[best],), 1, 1, metric), test[best]


def with_figures(
    score: FoldScores, y: Tensor | np.ndarray, test: np.ndarray, predicted: np.ndarray, tasks: Sequence[str]
) -> FoldScores:
    """Return the score with `further_figures` of the rows `test`, whose columns of `y` have the names `tasks`."""
    truth = as_array("y", y)[test].astype(np.float64)
    if tasks and len(tasks) != truth.shape[1]:
        raise InputError(f"`tasks` must name the {truth.shape[1]} columns of `y`, got {len(tasks)} names.")
    return replace(score, figures=further_figures(score.metric, truth, predicted, tasks))
