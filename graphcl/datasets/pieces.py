"""Read large data sets in pieces of consecutive graphs, with at most one piece in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset, OnDiskDataset

from graphcl.datasets.collate import collate_dataset, collate_graphs
from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.groups import GroupNumbers
from graphcl.datasets.invalid import NoGraphLeftError, describe_invalid
from graphcl.datasets.preparation import prepare
from graphcl.datasets.settings import Loading
from graphcl.datasets.sources import Pieces
from graphcl.errors import InputError, warn

_GROUP = 4096
"""Number of graphs that are collated at a time."""


def read_pieces(source: Iterable[object], settings: Loading) -> Pieces:
    """Return graphs, or batches, lists and data sets of graphs, in pieces of consecutive graphs.

    Reading a piece raises InputError if `features` includes degrees, or `source` is empty; see also `prepare`.
    """
    name, invalid = str(getattr(source, "name", None) or "own"), list[Any]()
    return Pieces(name, _prepared(source, name, settings, invalid), invalid)


def _prepared(source: Iterable[object], name: str, settings: Loading, invalid: list[Any]) -> Iterator[GraphDataset]:
    """Yield each piece; append the invalid graphs that are left out to `invalid`."""
    if "degree" in settings.features:
        raise InputError(f"`features` {settings.features!r} needs all graphs at once; give `x` in the graphs.")
    done, numbers = 0, GroupNumbers()
    settings = settings.model_copy(update={"categories": settings.categories or isinstance(source, GraphDataset)})
    for graphs in _groups(source):
        what = name if done == 0 else f"{name} (graphs from {done} on)"
        collated = collate_graphs(graphs, what) if isinstance(graphs, list) else collate_dataset(graphs, what)
        start, done = done, done + len(graphs)
        try:
            piece = prepare(*collated, what, settings, numbers=numbers, start=start)
        except NoGraphLeftError as error:
            invalid += error.invalid
            continue
        invalid += piece.invalid
        settings = settings.model_copy(update={"features": piece.features})
        if isinstance(source, GraphDataset):  # keep its description, as its `x` holds computed features already
            piece.features, piece.degree_columns = source.features, source.degree_columns
            if source.classes is not None and piece.classes is not None:
                piece.classes = source.classes[np.asarray(piece.classes)]
        yield piece
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
            if waiting:
                yield waiting
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
