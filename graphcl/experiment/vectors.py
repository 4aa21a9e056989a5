"""Match the vectors of `clip` with the graphs of a data set, and warn if they tell what is scored."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from graphcl.datasets.invalid import kept_rows
from graphcl.errors import InputError, warn
from graphcl.graphs.columns import read_vectors
from graphcl.tasks.task import Task

_SAME = 0.999
"""Rank correlation from which a column of the vectors counts as a target."""
_SAMPLE = 1000
"""Graphs on which columns are compared first, as ranking all takes long."""


def matched_vectors(vectors: Any, dataset: Any) -> Any:
    """Return a row for each graph, if `vectors` have a row for each row of the source, of which some were left out.

    Raises:
        InputError: the number of rows fits neither.
    """
    invalid = getattr(dataset, "invalid", ())
    if not invalid or (isinstance(vectors, str) and not vectors):
        return vectors
    n, rows = len(dataset), read_vectors(vectors, check=False)
    if len(rows) not in (n, n + len(invalid)):
        both = f"each of the {n + len(invalid)} rows of the table, or of the {n} that were read"
        raise InputError(f"`vectors` must have one row for {both}, got {len(rows)}.")
    return rows if len(rows) == n else rows[kept_rows(n, invalid)]


def warn_of_vectors(task: Task) -> None:
    """Warn if the method trains on vectors of test graphs, or on vectors that hold a target.

    Raises:
        InputError: the vectors are not a file, so the run could not be repeated.
    """
    config, dataset = task.config, task.dataset
    if (vectors := config.method.get("vectors")) is None:
        return
    if not isinstance(vectors, str):
        raise InputError("`method.vectors` of a run must be a file, to repeat it; write the array by numpy.save.")
    if not config.eval or not dataset.scored:
        return
    held = "in the test folds" if dataset.split is None else f"in the test part ({len(dataset.split['test'])} graphs)"
    rows = read_vectors(matched_vectors(vectors, dataset))
    y = np.asarray(dataset.y, np.float64).reshape(len(dataset), -1)
    copies, order = [], np.random.default_rng(0).permutation(len(y))
    for (number, truth), (column, values) in itertools.product(enumerate(y.T), enumerate(rows.T)):
        present = order[~np.isnan(truth[order]) & ~np.isnan(values[order])]
        # a column that orders a sample otherwise does not order all graphs as the target
        if _correlation(truth, values, present[:_SAMPLE]) > 0.99 and _correlation(truth, values, present) >= _SAME:
            names = dataset.benchmark.tasks if dataset.benchmark is not None else ()
            copies.append(f"column {column} orders the graphs as the target{f' {names[number]}' if names else ''}")
    if copies:
        listed = f"{'; '.join(copies[:3])}{'; ...' * (len(copies) > 3)}"
        warn(f"`vectors` hold what is scored, also of graphs {held}: {listed}; the score is invalid, remove it.")
    else:
        warn(f"training sees the `vectors` of graphs {held} too; new graphs will lack them, so leave out measurements.")


def _correlation(truth: np.ndarray, values: np.ndarray, graphs: np.ndarray) -> float:
    """Return the absolute rank correlation of a target and a column over these graphs; 0 where one is constant."""
    from scipy.stats import spearmanr

    pair = truth[graphs], values[graphs]
    return abs(float(spearmanr(*pair)[0])) if len(graphs) > 2 and all(np.ptp(part) > 0 for part in pair) else 0.0
