"""Check the strings of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_geometric.data import Data

from graphcl.errors import InputError, one_line, warn

_MOST_IDS = 2**24
"""Larger data sets are not searched for equal ids."""


def warn_of_equal_ids(dataset: Any) -> None:
    """Warn if several graphs of a `GraphDataset` have one id."""
    ids = dataset.ids if "id" in dataset._data else np.empty(0, np.int64)
    if len(ids) > _MOST_IDS or (ids.dtype != object and bool((np.diff(ids) > 0).all())):
        return
    values, counts = np.unique(ids, return_counts=True)
    if (several := np.flatnonzero(counts > 1)).size:
        shown = f"{one_line(repr(values.tolist()[several[0]]), 60)} ({counts[several[0]]} graphs)"
        found = f"ids of several graphs: {len(several)}, such as {shown}"
        warn(f"{dataset.name}: {found}; no table can be joined by them")


def check_texts(data: Data, what: str) -> None:
    """Raise InputError if an attribute has a string that is not valid Unicode, which no file could hold."""
    for key, values in data.to_dict().items():
        if isinstance(values, list) and all(isinstance(each, str) for each in values):
            try:
                "".join(values).encode()
            except UnicodeEncodeError:
                graph = next(i for i, each in enumerate(values) if each != each.encode(errors="replace").decode())
                rule = f"`{key}` of graph {graph} must be valid Unicode, got {one_line(ascii(values[graph]), 60)}"
                raise InputError(f"{what}: {rule}.") from None
