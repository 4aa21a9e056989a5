"""Read large data sets in pieces of consecutive graphs, with at most one piece in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data, Dataset, InMemoryDataset, OnDiskDataset

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.invalid import NoGraphLeftError, describe_invalid
from graphcl.datasets.networks import is_networkx
from graphcl.datasets.own import collate_dataset, collate_graphs
from graphcl.datasets.preparation import prepare
from graphcl.datasets.settings import Loading
from graphcl.errors import InputError, warn

_GROUP = 4096
"""Number of graphs that are collated at a time."""


def in_pieces(source: object) -> bool:
    """Return True if `source` must be read by `pieces`, False if `load_dataset` can read the whole source."""
    if isinstance(source, str | os.PathLike | bytes | Data | InMemoryDataset):
        return isinstance(source, GraphDataset) and source._indices is not None  # in a subset, `_data` has all graphs
    if isinstance(source, list | tuple):
        return any(isinstance(each, Batch | torch.utils.data.Dataset | list | tuple) for each in source)
    return isinstance(source, Iterable | Dataset) and not is_networkx(source)


def pieces(source: Iterable[object], name: str, settings: Loading, invalid: list[Any]) -> Iterator[GraphDataset]:
    """Yield each piece of consecutive graphs as a data set; append the invalid graphs that are left out to `invalid`.

    Raises:
        InputError: `features` includes degrees, or `source` is empty; see also `prepare`.
    """
    if "degree" in settings.features:
        raise InputError(f"`features` {settings.features!r} needs all graphs at once; give `x` in the graphs.")
    done, numbers = 0, GroupNumbers()
    settings = settings.model_copy(update={"categories": settings.categories or isinstance(source, GraphDataset)})
    for group in _groups(source):
        what = name if done == 0 else f"{name} (graphs from {done} on)"
        given = collate_graphs(group, what) if isinstance(group, list) else collate_dataset(group, what)
        start, done = done, done + len(group)
        try:
            shard = prepare(*given, what, settings, numbers=numbers, start=start)
        except NoGraphLeftError as error:
            invalid += error.invalid
            continue
        invalid += shard.invalid
        settings = settings.model_copy(update={"features": shard.features})
        if isinstance(source, GraphDataset):  # keep its description, as its `x` holds computed features already
            shard.features, shard.degree_columns = source.features, source.degree_columns
            if source.classes is not None and shard.classes is not None:
                shard.classes = source.classes[np.asarray(shard.classes)]
        yield shard
    if not done:
        raise InputError(f"{name} holds no graph.")
    if len(invalid) == done:
        raise NoGraphLeftError(describe_invalid(invalid, done, name), invalid)
    if invalid:
        warn(f"{describe_invalid(invalid, done, name)}; skipped.")


def _groups(source: Iterable[object]) -> Iterator[list[Data] | InMemoryDataset]:
    """Yield the graphs of `source` in lists of at most `_GROUP`; yield an `InMemoryDataset` in `source` unchanged."""
    if isinstance(source, OnDiskDataset):
        for start in range(0, len(source), _GROUP):
            yield source.multi_get(range(start, min(start + _GROUP, len(source))))
        return
    waiting: list[Any] = []
    for item in source:
        if isinstance(item, InMemoryDataset) and len(item) > 1:
            yield from [waiting] * bool(waiting)
            yield item
            waiting = []
        elif isinstance(item, Batch | list | tuple | torch.utils.data.Dataset):
            waiting += [item[number] for number in range(len(item))]  # type: ignore[arg-type]
        else:
            waiting.append(item)
        while len(waiting) >= _GROUP:
            yield waiting[:_GROUP]
            waiting = waiting[_GROUP:]
    if waiting:
        yield waiting
