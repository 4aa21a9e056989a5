"""Define the loader for a data set that fits on the device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate

from graphcl.arguments import named_arguments
from graphcl.datasets.disk.on_disk import MappedDataset
from graphcl.datasets.store import not_resident
from graphcl.errors import InputError
from graphcl.graphs import native
from graphcl.graphs.batching import assemble, counts_nodes
from graphcl.graphs.segment import pick, pointers, ranges
from graphcl.loaders.order import WHOLE, EpochBatches, Shard

_CHUNK = 200_000
"""Number of nodes plus edges at which a chunk of batches is complete."""


@dataclass(frozen=True)
class _Level:
    """Attributes with the same slices, such as all node attributes or all edge attributes."""

    start: Tensor
    """Index of the first row of each graph, and the number of rows, `[n + 1]`, on the CPU."""
    attributes: dict[str, tuple[Tensor, int]]
    """Attribute -> its values for all graphs, on the device, and the dimension along which graphs are concatenated."""


class ResidentLoader:
    """Loader that collates a data set once and keeps the whole data set on the device.

    Each batch is a PyG `Batch`, equal to `Batch.from_data_list` of the same graphs. Batches are made by indexing the
    collated tensors, without `Data` objects, loops over graphs or device synchronisation.

    Args:
        dataset: a PyG data set or a list of `Data`.
        batch_size: number of graphs in a batch, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: CPU generator that draws the orders.
        device: device of the data set and the batches.
        window: number of graphs that are shuffled together; default: all. See `EpochBatches`.
        shard: `(rank, ranks)`: the number of this process and the number of processes that share each batch. See
            `graphcl.loaders.order.batches`.

    Raises:
        InputError: the data set cannot be held as plain tensors: it has a `transform` (which may change at each
            access), nested or sparse attributes, or a `Data` class with batching rules of its own.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> dataset = FakeDataset(num_graphs=10)
        >>> [batch.num_graphs for batch in ResidentLoader(dataset, batch_size=4)]
        [4, 4, 2]
    """

    @named_arguments
    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        window: int | None = None,
        shard: Shard = WHOLE,
    ) -> None:
        if reason := not_resident(dataset):
            raise InputError(f"this data set cannot be held on the device: {reason}; use PyG's DataLoader.")
        data, slices, self._num_nodes = _collated(dataset)
        self.device, self._class = torch.device(device), type(data)
        self._keeps_num_nodes = "num_nodes" in data._store
        self._levels: list[_Level] = []
        self._lists: dict[str, list[Any]] = {}
        for key, start in slices.items():
            value = data[key]
            if not isinstance(value, Tensor):
                self._lists[key] = value
                continue
            level = next((level for level in self._levels if torch.equal(level.start, start)), None)
            if level is None:
                level = _Level(start, {})
                self._levels.append(level)
            level.attributes[key] = value.to(self.device), data.__cat_dim__(key, value) or 0
        self._mapped = dataset if isinstance(dataset, MappedDataset) else None
        if self._mapped is not None and self.device.type != "cpu":  # check all edges now, as all pages are read anyway
            ptr, edge_ptr = (pointers(slices[key].diff()) for key in ("x", "edge_index"))
            shift = ptr[:-1].repeat_interleave(edge_ptr.diff())
            self._mapped.check_edges(
                data.edge_index[:, slices["edge_index"][0] : slices["edge_index"][-1]] + shift, ptr, edge_ptr
            )
            self._mapped = None
        # marks the graphs with unchecked edges, so that each graph is checked only once
        self._unseen = torch.ones(0 if self._mapped is None else self._num_nodes.numel(), dtype=torch.bool)
        self.batch_sampler = EpochBatches(self._num_nodes.numel(), batch_size, shuffle, generator, window, shard)

    def with_batches(self, batches: EpochBatches) -> ResidentLoader:
        """Return a loader of `batches` that shares this loader's tensors."""
        other = copy.copy(self)
        other.batch_sampler = batches
        return other

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        for graphs in self.batch_sampler.draw():
            yield self.batch(graphs)

    def chunks(self, least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the batches of a new epoch in chunks `(chunk, sizes)`.

        `chunk` is one `Batch` with the graphs of several batches, and `sizes` holds the number of graphs of each batch.
        `graphcl.graphs.batching.split` splits a chunk into its batches. Augmenting a chunk is faster than augmenting
        small batches one by one, because fewer operations are launched.

        Args:
            least: number of graphs at which a chunk is complete. A chunk is also complete when it has so many nodes and
                edges that a larger chunk would not be faster.
        """
        yield from self.chunks_of(self.batch_sampler.draw(), least)

    def chunks_of(self, order: Sequence[Tensor], least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the chunks of `chunks`, but for the batches in `order`, a sequence of graph indices `[B]`."""
        group: list[Tensor] = []
        graphs = elements = 0
        for number, batch in enumerate(order, start=1):
            group.append(batch)
            graphs += batch.numel()
            elements += sum(int((level.start[batch + 1] - level.start[batch]).sum()) for level in self._levels)
            if graphs >= least or elements >= _CHUNK or number == len(order):
                yield self.batch(torch.cat(group)), list(map(len, group))
                group, graphs, elements = [], 0, 0

    def batch(self, graphs: Tensor) -> Batch:
        """Return a batch, on the loader's device, of the graphs with the indices `graphs [B]` (a CPU tensor)."""
        # sizes are computed on the CPU, so no operation below waits for the device
        num_nodes = self._num_nodes[graphs]
        ptr = pointers(num_nodes)
        device_ptr = ptr.to(self.device, non_blocking=True)
        device_nodes = num_nodes.to(self.device, non_blocking=True)
        position = torch.arange(graphs.numel(), device=self.device)
        batch = position.repeat_interleave(device_nodes, output_size=int(ptr[-1]))

        fields: dict[str, Any] = {key: [values[i] for i in graphs.tolist()] for key, values in self._lists.items()}
        slices: dict[str, Tensor] = {key: torch.arange(graphs.numel() + 1) for key in self._lists}
        incs: dict[str, Tensor | None] = dict.fromkeys(self._lists)
        for level in self._levels:
            start = level.start[graphs]
            counts = level.start[graphs + 1] - start
            part = pointers(counts)
            compiled = native.takes(level.start, graphs)
            rows = None
            for key, (values, dim) in level.attributes.items():
                slices[key] = part
                shifts = counts_nodes(key) and graphs.numel() > 1
                if shifts:
                    incs[key] = ptr[:-1]
                total = int(part[-1])
                if compiled and not shifts and dim == 0 and values.device.type == "cpu" and values.is_contiguous():
                    fields[key] = native.cut(values, level.start, graphs, total)
                    continue
                if compiled and shifts and values.dim() == 2 and dim % 2 == 1 and native.takes(values):
                    fields[key] = native.cut_pairs(values, level.start, graphs, total, ptr)
                    continue
                if rows is None:
                    rows = ranges(start, counts, total).to(self.device, non_blocking=True)
                fields[key] = pick(values, rows, dim)
                if shifts:
                    device_counts = counts.to(self.device, non_blocking=True)
                    shift = device_ptr[:-1].repeat_interleave(device_counts, output_size=total)
                    shift = shift.to(torch.result_type(values, torch.tensor(0)))  # PyG's dtype: tensor + int
                    later_axes = values.dim() - 1 - dim % values.dim()
                    fields[key] = fields[key] + shift.view(-1, *[1] * later_axes)
        if self._mapped is not None and bool(self._unseen[graphs].any()):
            self._mapped.check_edges(fields["edge_index"], ptr, slices["edge_index"])
            self._unseen[graphs] = False
        return assemble(self._class, fields, slices, incs, device_ptr, batch, self._keeps_num_nodes)


def num_bytes(dataset: Any) -> int:
    """Return the size of all tensors of a data set, in bytes."""
    data = _collated(dataset)[0]
    return sum(value.nbytes for value in data._store.values() if isinstance(value, Tensor))


def _collated(dataset: Any) -> tuple[Data, dict[str, Tensor], Tensor]:
    """Return the collated graphs of `dataset`, their slices, and the number of nodes of each graph, `[n]`."""
    whole = isinstance(dataset, InMemoryDataset) and dataset._indices is None and dataset.slices is not None
    indices = getattr(dataset, "_indices", None)
    if whole:
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
        num_nodes = torch.tensor(data._store._num_nodes)
    elif "x" in slices:
        num_nodes = slices["x"].diff()
    else:
        num_nodes = torch.tensor([dataset[i].num_nodes for i in range(len(dataset))])
    return data, slices, num_nodes
