"""Read the facts that evaluators are registered with, by `graphcl.registry.evaluators.register(name, **facts)`.

| fact       | meaning                                                                     | default              |
|------------|-----------------------------------------------------------------------------|----------------------|
| `needs`    | what rows are scored by, see `NEEDS`; "a or b" takes a where the data has it | `labels`            |
| `rows`     | kind of rows that it scores, such as `graphs`                               | any kind             |
| `forms`    | forms of rows that it scores: `dense`, `sparse` (of SciPy), `kernel`        | `dense`              |
| `task`     | `predict`, `search` or `copies`; some reference rows belong to one task     | `predict`            |
| `usual`    | the need, or kind of rows, whose usual evaluator it is                      | none                 |
| `chooses`  | what the inner folds or the validation part choose                          | `C`                  |
| `protocol` | the protocol in words, where it is not that of the folds or of the split    | none                 |
| `note`     | a line below the scores                                                     | none                 |

The metric, and whether lower is better, are in the `FoldScores` that an evaluator returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection

from graphcl.registry import evaluators

NEEDS = {
    "labels": "y",
    "split": "y, split",
    "targets": "y, split, eval_metric",
    "groups": "group or pairs and targets, place, split",
    "copies": "copies, source",
}
"""Need of an evaluator -> arguments that it gets in addition to `h`, those of them that it has."""


def need_of(name: str, rows: str, offered: Collection[str]) -> str | None:
    """Return what the evaluator `name` scores by, out of what the data set offers; None if it does not fit.

    Args:
        name: name of the evaluator.
        rows: kind of the rows, such as "graphs".
        offered: keys of `NEEDS`.

    Example:
        >>> need_of("svm", "graphs", {"labels", "groups"}), need_of("instance", "atoms", {"copies"})
        ('labels', None)
    """
    if evaluators.fact(name, "rows") not in ("", rows):
        return None
    return next((need for need in evaluators.fact(name, "needs").split(" or ") if need in offered), None)


def usual(of: str) -> str:
    """Return the usual evaluator of a need or of a kind of rows."""
    return next(name for name in evaluators if evaluators.fact(name, "usual") == of)


def takes(name: str, argument: str) -> bool:
    """Return whether the evaluator `name` has an argument of this name."""
    return argument in inspect.signature(evaluators[name]).parameters


def is_by_copies(name: str) -> bool:
    """Return whether the evaluator scores by augmented copies, which tells nothing about labels or groups."""
    return evaluators.fact(name, "task") == "copies"
