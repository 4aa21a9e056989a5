"""Number the groups of graphs. Graphs of the same group are positives of each other; groups are not labels."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError, one_line

NO_GROUP = -1
"""Number of a graph without a group."""


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


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
        self._known: dict[str, int] = {}
        self._kind: type | None = None

    def __call__(self, groups: Sequence[Any] | Tensor, what: str = "own") -> Tensor:
        """Return the number of each graph's group, `[n]`; `what` names the graphs in messages.

        Raises:
            InputError: a group is neither a whole number from 0 on nor a string, or the groups mix both.
        """
        if isinstance(groups, Tensor) and groups.dtype in _WHOLE:  # not uint64, whose 2^64 - 1 would become -1
            numbers = groups.detach().cpu().flatten().long()
            self._of_kind(int, what, bool((numbers != NO_GROUP).any()))
            for graph in (numbers < NO_GROUP).nonzero().flatten()[:1].tolist():
                raise _invalid(int(numbers[graph]), graph, what)
            return numbers
        return torch.tensor([self._number(each, graph, what) for graph, each in enumerate(groups)], dtype=torch.long)

    def _number(self, value: Any, graph: int, what: str) -> int:
        if isinstance(value, Tensor | np.generic | np.ndarray):
            entries = value.reshape(-1).tolist()
            value = entries[0] if len(entries) == 1 else value
        if value is None or (isinstance(value, float) and value != value):
            return NO_GROUP
        if isinstance(value, str):
            if not value.strip():
                return NO_GROUP
            self._of_kind(str, what)
            return self._known.setdefault(value, len(self._known))
        if not isinstance(value, int | float) or value != value // 1 or not NO_GROUP <= value < 2**63:
            raise _invalid(value, graph, what)
        self._of_kind(int, what, value != NO_GROUP)
        return int(value)

    def _of_kind(self, kind: type, what: str, seen: bool = True) -> None:
        """Record that groups of this kind were seen; raise InputError if groups of the other kind were seen before."""
        if seen and self._kind not in (None, kind):
            raise InputError(f"{what}: `group` mixes numbers and strings; use one kind, or None for no group.")
        self._kind = kind if seen else self._kind


def with_groups(dataset: Any, groups: Iterable[Any] | Tensor) -> Any:
    """Return a copy of a `GraphDataset` with the groups `[n]`, see `GroupNumbers`; the copy shares all other tensors.

    Raises:
        InputError: there is not one group per graph, or a group is invalid.
    """
    groups = groups if isinstance(groups, Tensor) else list(groups)
    if len(groups) != len(dataset):
        raise InputError(f"`groups` must have one entry per graph, got {len(groups)} for {len(dataset)} graphs.")
    chosen = torch.as_tensor(list(dataset.indices()))
    found, found._data, found._data_list = copy.copy(dataset), copy.copy(dataset._data), None
    total = dataset.slices["edge_index"].numel() - 1  # also of the graphs that a part of a data set leaves out
    found._data.group = torch.full((total,), NO_GROUP).index_copy(0, chosen, GroupNumbers()(groups, dataset.name))
    found.slices = {**dataset.slices, "group": torch.arange(total + 1)}
    return found


def _invalid(value: Any, graph: int, what: str) -> InputError:
    rule = "a string or a whole number from 0 on (-1, None or '': no group)"
    return InputError(f"{what}: `group` of graph {graph} must be {rule}, got {one_line(repr(value), 40)}.")


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
