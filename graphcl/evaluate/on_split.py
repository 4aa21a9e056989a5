"""Divide rows into the training, validation and test part of a benchmark, and check such parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from graphcl.arguments import shown
from graphcl.errors import InputError, warn
from graphcl.evaluate.folds import as_array
from graphcl.evaluate.ranking import connected

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
