"""Number the groups of graphs. Graphs of the same group are positives of each other; groups are not labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.datasets.dataset import GraphDataset
from graphcl.errors import InputError, one_line

NO_GROUP = -1
"""Number of a graph without a group."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""Dtypes whose numbers are kept; not uint64, whose 2^64 - 1 would become -1."""


class GroupNumbers:
    """Converter of groups to int64; one converter gives the pieces of a data set the same numbers.

    Whole numbers are kept; strings are numbered from 0 in order of first occurrence. None, NaN, -1 and a blank string
    mean no group.

    Example:
        >>> numbers = GroupNumbers()
        >>> numbers(["b", "a", None, "b"]), numbers(["c", "a"])
        (tensor([ 0,  1, -1,  0]), tensor([2, 1]))
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._kind: type | None = None

    def __call__(self, groups: Sequence[Any] | Tensor, what: str = "own") -> Tensor:
        """Return the number of each graph's group, `[n]`; `what` names the graphs in messages.

        Raises:
            InputError: a group is neither a whole number from 0 on nor a string, or the groups mix both.
        """
        if not isinstance(groups, Tensor) or groups.dtype not in _WHOLE:
            return torch.tensor([self._number(value, graph, what) for graph, value in enumerate(groups)]).long()
        numbers = groups.detach().cpu().flatten().long()
        for graph in (numbers < NO_GROUP).nonzero().flatten()[:1].tolist():
            self._number(int(numbers[graph]), graph, what)  # raises
        for graph in (numbers != NO_GROUP).nonzero().flatten()[:1].tolist():
            self._number(int(numbers[graph]), graph, what)  # records the kind
        return numbers

    def _number(self, value: Any, graph: int, what: str) -> int:
        if isinstance(value, Tensor | np.generic | np.ndarray):
            entries = value.reshape(-1).tolist()
            value = entries[0] if len(entries) == 1 else value
        text = isinstance(value, str)
        if value is None or (isinstance(value, float) and value != value) or (text and not value.strip()):
            return NO_GROUP
        if not text and not (isinstance(value, int | float) and value == value // 1 and NO_GROUP <= value < 2**63):
            rule = "a string or a whole number from 0 on (-1, None or '': no group)"
            raise InputError(f"{what}: `group` of graph {graph} must be {rule}, got {one_line(repr(value), 40)}.")
        if text or value != NO_GROUP:
            if self._kind is not None and text != (self._kind is str):
                raise InputError(f"{what}: `group` mixes numbers and strings; use one kind, or None for no group.")
            self._kind = str if text else int
        return self._names.setdefault(value, len(self._names)) if text else int(value)


def with_groups(dataset: GraphDataset, groups: Iterable[Any] | Tensor) -> GraphDataset:
    """Return a copy of a data set with the groups `[n]`, see `GroupNumbers`; the copy shares all other tensors.

    Raises:
        InputError: there is not one group per graph, or a group is invalid.
    """
    groups = groups if isinstance(groups, Tensor) else list(groups)
    if len(groups) != len(dataset):
        raise InputError(f"`groups` must have one entry per graph, got {len(groups)} for {len(dataset)} graphs.")
    chosen = torch.as_tensor(list(dataset.indices()))
    total = len((dataset.slices or {})["edge_index"]) - 1  # also of the graphs that a part of a data set leaves out
    numbers = torch.full((total,), NO_GROUP).index_copy(0, chosen, GroupNumbers()(groups, dataset.name))
    return dataset.with_values({"group": torch.arange(total + 1)}, group=numbers)


def describe_groups(groups: Tensor) -> str:
    """Return the numbers of groups, members and single graphs in words; `groups [n]` has -1 for no group.

    Example:
        >>> describe_groups(torch.tensor([0, 0, 1, 1, 1, 2, -1]))
        '2 groups of 2 to 3 members (5 graphs), 2 graphs without a partner; groups are positives, not labels'
    """
    sizes = groups[groups != NO_GROUP].unique(return_counts=True)[1]
    sizes = sizes[sizes > 1]
    members = int(sizes.sum())
    low, high = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
    of = f" of {low}{f' to {high}' * (high > low)} members ({members} graphs)" if members else ""
    alone = f"{len(groups) - members} graphs without a partner"
    return f"{len(sizes)} groups{of}, {alone}; groups are positives, not labels"
