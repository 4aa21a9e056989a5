"""Define the loader for a data set that fits on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import log2
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.collate import collate

from graphcl.arguments import named_arguments
from graphcl.datasets.collate import not_resident
from graphcl.datasets.on_disk import CHECKED, MappedDataset
from graphcl.errors import InputError
from graphcl.graphs import native
from graphcl.graphs.batching import assemble, counts_nodes
from graphcl.graphs.compact import Compact
from graphcl.graphs.segment import pick, pointers, segment_ids, to_device
from graphcl.loaders.samplers import EpochBatches

_CHUNK = 200_000
"""Number of nodes plus edges at which a chunk of batches is complete on the CPU."""
_CHUNK_ON_DEVICE = 2**26
"""Bytes at which a chunk is complete on a GPU, or 1/512 of its memory if that is more.

Making both views at once takes some sixteen times the memory of the chunk, and the previous views are kept meanwhile.
"""
_BLOCK = 2**16
"""Graphs whose sizes are computed at once: operations for each batch cost the host's time, and an epoch's memory."""


class ResidentLoader:
    """Loader that collates a data set once and keeps the whole data set on the device.

    Each batch is a PyG `Batch`, equal to `Batch.from_data_list` of the same graphs. Batches are made by indexing the
    collated tensors, without `Data` objects, loops over graphs or device synchronisation.

    Compact columns, see `graphcl.graphs.compact`, are expanded in each batch; after `loader.expands = False`, they stay
    compact.

    With a sampler of pairs, `EpochPairs` or `ListedPairs`, a batch is a pair `(batch1, batch2)`, whose graphs i are
    positives of each other.

    Args:
        dataset: a PyG data set or a list of `Data`.
        batch_size: number of graphs in a batch, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: CPU generator that draws the orders.
        device: device of the data set and the batches.
        batch_sampler: which graphs are in the batches, instead of the three arguments before `device`: `EpochBatches`,
            which divides batches between ranks and shuffles within a window, or a sampler of pairs.
        targets: data set of the second graphs of pairs; default: `dataset`.

    Raises:
        InputError: the data set cannot be held as plain tensors: it has a `transform` (which may change at each
            access), nested or sparse attributes, or a `Data` class with batching rules of its own.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> from graphcl.loaders.samplers import EpochPairs
        >>> dataset = FakeDataset(num_graphs=10)
        >>> [batch.num_graphs for batch in ResidentLoader(dataset, batch_size=4)]
        [4, 4, 2]
        >>> pairs = EpochPairs([0, 0, 1, 1, 2, 2, 3, 3, 3, 3], batch_size=4)
        >>> first, second = next(iter(ResidentLoader(dataset, batch_sampler=pairs)))
        >>> (first.num_graphs, second.num_graphs)
        (4, 4)
    """

    expands = True

    @named_arguments
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        *,
        batch_sampler: EpochBatches | None = None,
        targets: Any = None,
    ) -> None:
        reason = not_resident(dataset)
        if reason:
            raise InputError(f"this data set cannot be held on the device: {reason}; use PyG's DataLoader.")
        self.batch_sampler = batch_sampler or EpochBatches(len(dataset), batch_size, shuffle, generator)
        check_sampler(self.batch_sampler, dataset)
        self.targets = None if targets is None else ResidentLoader(targets, device=device)
        data, slices, self._node_start = _collated(dataset)
        self.device, self._class = torch.device(device), type(data)
        self._keeps_num_nodes = "num_nodes" in data._store
        # Attributes with the same slices, such as all of nodes: the first row of each graph and the number of rows,
        # `[n + 1]`, on the CPU; and by attribute its values on the device, and the dimension of the rows.
        self._levels: list[tuple[Tensor, dict[str, tuple[Tensor, int]]]] = []
        self._lists: dict[str, list[Any]] = {}
        for key, start in slices.items():
            value = data[key]
            if not isinstance(value, Tensor):
                self._lists[key] = value
                continue
            level = next((level for level in self._levels if torch.equal(level[0], start)), (start, {}))
            if not level[1]:
                self._levels.append(level)
                if torch.equal(start, self._node_start):
                    self._node_start = start
            level[1][key] = value.to(self.device), data.__cat_dim__(key, value) or 0
        # The size of a row of each level: in bytes on a GPU, where compact columns count expanded, 1 on the CPU.
        self._widths: list[tuple[Tensor, int]] = []
        for start, kept in self._levels:
            size = sum(value.numel() * value.element_size() for value, _ in kept.values())
            self._widths.append((start, size // max(1, int(start[-1])) if self.device.type == "cuda" else 1))
        self._mapped = dataset if isinstance(dataset, MappedDataset) else None
        if self._mapped is not None and self.device.type != "cpu":
            _check_whole(self._mapped, data, slices)
            self._mapped = None
        # marks the graphs with unchecked values, so that each graph is checked only once
        self._unseen = torch.ones(0 if self._mapped is None else self._node_start.numel() - 1, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        for graphs in self.batch_sampler.draw():
            yield self.batch(graphs)

    def chunks(self, least: int = 1024, order: Sequence[Tensor] | None = None) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the batches of a new epoch in chunks `(chunk, sizes)`.

        `chunk` is one `Batch` (of pairs: two) with the graphs of several batches, and `sizes` holds the number of
        graphs of each batch (of pairs: two such lists). `graphcl.graphs.batching.split` splits a chunk into its
        batches. Augmenting a chunk is faster than augmenting small batches one by one, because fewer operations are
        launched. On the CPU a chunk is complete with `least` graphs, or with so many nodes and edges that a larger
        chunk would not be faster; on a GPU it is complete with 1/512 of its memory (a power of two, at least 64 MiB).
        `order` holds the batches as graph indices, `[B]` or pairs of them; default: those of a new epoch.
        """
        order = self.batch_sampler.draw() if order is None else order
        if not order:
            return
        pairs = isinstance(order[0], tuple)
        sides: list[Sequence[Tensor]] = list(zip(*order, strict=True)) if pairs else [order]
        loaders = (self, self.targets or self)[: len(sides)]
        counts = [list(map(len, batches)) for batches in sides]
        on_device, first, graphs, size = self.device.type == "cuda", 0, 0, 0
        most = _CHUNK
        if on_device:  # a power of two, equal on all GPUs of a kind
            memory = torch.cuda.get_device_properties(self.device).total_memory
            most = max(_CHUNK_ON_DEVICE, 2 ** int(log2(memory / 512)))
        sizes = zip(*(loader._sizes_of(batches) for loader, batches in zip(loaders, sides, strict=True)), strict=True)
        for last, (of_batch, members) in enumerate(zip(sizes, zip(*counts, strict=True), strict=True), start=1):
            size, graphs = size + sum(of_batch), graphs + sum(members)
            if size >= most or (not on_device and graphs >= least * len(sides)) or last == len(order):
                joined = [torch.cat(tuple(batches[first:last])) for batches in sides]
                parts = [lengths[first:last] for lengths in counts]
                yield (self.batch((joined[0], joined[1])), parts) if pairs else (self.batch(joined[0]), parts[0])
                first, graphs, size = last, 0, 0

    def _sizes_of(self, batches: Sequence[Tensor]) -> Iterator[int]:
        """Yield the sizes of the batches: in bytes on a GPU, in rows on the CPU."""
        count = -(-_BLOCK // len(batches[0]))
        for begin in range(0, len(batches), count):
            block = batches[begin : begin + count]
            graphs = torch.cat(tuple(block))
            ends = torch.tensor([0, *accumulate(map(len, block))])
            size = sum(width * _bounds(start, graphs)[0].index_select(0, ends).diff() for start, width in self._widths)
            yield from torch.as_tensor(size).tolist()

    def batch(self, graphs: Tensor | tuple[Tensor, Tensor]) -> Any:
        """Return a batch, on the loader's device, of the graphs with the indices `graphs [B]` (a CPU tensor).

        Of a pair of indices, return a pair of batches.
        """
        if isinstance(graphs, tuple):
            return self.batch(graphs[0]), (self.targets or self).batch(graphs[1])
        # sizes are computed on the CPU, so no operation below waits for the device
        ptr, num_nodes = _bounds(self._node_start, graphs)
        device_ptr = to_device(ptr, self.device)
        batch = segment_ids(device_ptr.diff(), num_nodes)
        fields: dict[str, Any] = {key: [values[i] for i in graphs.tolist()] for key, values in self._lists.items()}
        slices: dict[str, Tensor] = {key: torch.arange(graphs.numel() + 1) for key in self._lists}
        incs: dict[str, Tensor | None] = dict.fromkeys(self._lists)
        for start, attributes in self._levels:
            part, total = (ptr, num_nodes) if start is self._node_start else _bounds(start, graphs)
            compiled = native.takes(start, graphs)
            rows, member = None, batch
            for key, (column, dim) in attributes.items():
                values = column.raw if isinstance(column, Compact) else column
                slices[key] = part
                shifts = counts_nodes(key) and graphs.numel() > 1
                if shifts:
                    incs[key] = ptr[:-1]
                if compiled and not shifts and dim == 0 and values.device.type == "cpu" and values.is_contiguous():
                    fields[key] = native.cut(values, start, graphs, total)
                elif compiled and shifts and values.dim() == 2 and dim % 2 == 1 and native.takes(values):
                    fields[key] = native.cut_pairs(values, start, graphs, total, ptr)
                else:
                    if rows is None:
                        of_graph, shift = to_device(torch.stack([part.diff(), start[graphs] - part[:-1]]), self.device)
                        member = batch if part.equal(ptr) else segment_ids(of_graph, total)
                        rows = torch.arange(total, device=self.device) + pick(shift, member)
                    fields[key] = pick(values, rows, dim)
                    if shifts:
                        shift = pick(device_ptr, member)
                        shift = shift.to(torch.result_type(values, torch.tensor(0)))  # PyG's dtype: tensor + int
                        fields[key] = fields[key] + shift.view(-1, *[1] * (values.dim() - 1 - dim % values.dim()))
                if isinstance(column, Compact):
                    raw = fields[key]
                    fields[key] = column.form.expand(raw) if self.expands else Compact(raw, column.form)
        if self._mapped is not None and bool(self._unseen[graphs].any()):
            self._mapped.check(fields, ptr, slices["edge_index"])
            self._unseen[graphs] = False
        return assemble(self._class, fields, slices, incs, device_ptr, batch, self._keeps_num_nodes)


def _bounds(start: Tensor, graphs: Tensor) -> tuple[Tensor, int]:
    """Return the boundaries `[B + 1]` of the given graphs' rows in a batch, and their number; see `native.cut`."""
    if native.takes(start, graphs):
        return native.cut_bounds(start, graphs)
    ptr = pointers(start[graphs + 1] - start[graphs])
    return ptr, int(ptr[-1])


def _check_whole(mapped: MappedDataset, data: Data, slices: dict[str, Tensor]) -> None:
    """Check all values of a mapped data set at once, where all its pages are read anyway."""
    ptr, edge_ptr = (pointers(slices[key].diff()) for key in ("x", "edge_index"))
    whole = {key: data[key] for key in CHECKED if key in slices}
    for key, values in whole.items():
        if not isinstance(values, Compact):
            start, stop = int(slices[key][0]), int(slices[key][-1])
            whole[key] = values.narrow(data.__cat_dim__(key, values), start, stop - start)
    shift = ptr[:-1].repeat_interleave(edge_ptr.diff())
    mapped.check(whole | {"edge_index": whole["edge_index"] + shift}, ptr, edge_ptr)


def check_sampler(sampler: EpochBatches, dataset: Any) -> None:
    """Raise InputError if `sampler` was made for another number of graphs."""
    if sampler.total != len(dataset):
        raise InputError(f"the sampler is for {sampler.total} graphs, but the data set has {len(dataset)}.")


def num_bytes(dataset: Any) -> int:
    """Return the size of all tensors of a data set, in bytes."""
    return sum(value.nbytes for value in _collated(dataset)[0]._store.values() if isinstance(value, Tensor))


def _collated(dataset: Any) -> tuple[Data, dict[str, Tensor], Tensor]:
    """Return the collated graphs of `dataset`, their slices, and the boundaries of their nodes, `[n + 1]`."""
    indices = getattr(dataset, "_indices", None)
    if isinstance(dataset, InMemoryDataset) and indices is None and dataset.slices is not None:
        data, slices = dataset._data, dict(dataset.slices)
    elif isinstance(dataset, MappedDataset) and isinstance(indices, range) and indices.step == 1:
        # select the graphs by slices, so that the mapped files are not copied
        data = dataset._data
        slices = {key: cut[indices.start : indices.stop + 1] for key, cut in (dataset.slices or {}).items()}
    else:
        graphs = [dataset[i] for i in range(len(dataset))]
        data, slices, _ = collate(type(graphs[0]), data_list=graphs, increment=False, add_batch=False)
    slices.pop("num_nodes", None)
    if hasattr(data._store, "_num_nodes"):
        start = pointers(torch.tensor(data._store._num_nodes))
    elif "x" in slices:
        start = slices["x"]
    else:
        start = pointers(torch.tensor([dataset[i].num_nodes for i in range(len(dataset))]))
    return data, slices, start
