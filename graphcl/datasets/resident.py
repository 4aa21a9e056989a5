"""Batches cut out of a data set that lies on the device as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.loader import DataLoader

from graphcl.datasets.on_disk import MappedDataset
from graphcl.datasets.order import WHOLE, EpochBatches, Share
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs import native
from graphcl.graphs.batching import assemble, counts_nodes, unsupported
from graphcl.graphs.segment import pick, pointers, ranges

if TYPE_CHECKING:
    from graphcl.datasets.streaming import StreamingLoader

_CHUNK = 200_000
"""Nodes and edges of a chunk of batches that are cut out and augmented at once."""


@dataclass(frozen=True)
class _Level:
    """Attributes whose parts have the same sizes: all node-level ones, all edge-level ones, and so on."""

    start: Tensor
    """Where each graph's part starts, and the total at the end: `[n + 1]`, on the CPU."""
    attributes: dict[str, tuple[Tensor, int]]
    """Name -> values of the whole data set on the device, and the dimension along which graphs follow one another."""


class ResidentLoader:
    """Iterate over a data set that lies on the device as a whole, collated once.

    A batch is cut out by index arithmetic: no `Data` objects, no loop over graphs, no device synchronisation. It is a
    true PyG `Batch`, equal to `Batch.from_data_list` of the same graphs.

    Args:
        dataset: a PyG data set or a list of `Data`.
        batch_size: graphs in a batch, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: source of the orders, a CPU generator.
        device: where the data set lies.
        window: graphs that are shuffled together; default: all. See `batch_indices`.
        share: `(rank, ranks)`: which part of each batch is wanted. See `EpochOrder`.

    Raises:
        InputError: the data set cannot be held as plain tensors: it has a `transform` (which may change at each
            access), nested or sparse attributes, or a `Data` class with batching rules of its own.

    Example:
        >>> from torch_geometric.datasets import FakeDataset
        >>> dataset = FakeDataset(num_graphs=10)
        >>> [batch.num_graphs for batch in ResidentLoader(dataset, batch_size=4)]
        [4, 4, 2]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        window: int | None = None,
        share: Share = WHOLE,
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
        if self._mapped is not None and self.device.type != "cpu":  # all of it is read now, and no batch waits later
            ptr, edge_ptr = (pointers(slices[key].diff()) for key in ("x", "edge_index"))
            shift = ptr[:-1].repeat_interleave(edge_ptr.diff())
            self._mapped.check_edges(
                data.edge_index[:, slices["edge_index"][0] : slices["edge_index"][-1]] + shift, ptr, edge_ptr
            )
            self._mapped = None
        # A byte a graph, so that edges are looked at once, not in every epoch.
        self._unseen = torch.ones(0 if self._mapped is None else self._num_nodes.numel(), dtype=torch.bool)
        self.batch_sampler = EpochBatches(self._num_nodes.numel(), batch_size, shuffle, generator, window, share)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Batch]:
        for graphs in self.batch_sampler.draw():
            yield self.batch(graphs)

    def chunks(self, least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """The same batches, several small ones at a time: one batch of them all, and its batches' sizes.

        What is done to a chunk costs less than doing it to each of its batches, as small batches spend most of their
        time on starting operations; `graphcl.graphs.batching.split` takes it apart. A chunk ends with the batch that
        brings it to `least` graphs, or to so many nodes that nothing is gained by more.
        """
        yield from self.chunks_of(self.batch_sampler.draw(), least)

    def chunks_of(self, order: Sequence[Tensor], least: int = 1024) -> Iterator[tuple[Batch, list[int]]]:
        """`chunks` of batches that are drawn already."""
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
        """The graphs of these indices, `[B]` on the CPU, as a batch."""
        # Sizes are known on the CPU, so no step below has to ask the device for one.
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
                    shift = shift.to(torch.result_type(values, torch.tensor(0)))  # as adding a plain number does
                    later_axes = values.dim() - 1 - dim % values.dim()
                    fields[key] = fields[key] + shift.view(-1, *[1] * later_axes)
        if self._mapped is not None and bool(self._unseen[graphs].any()):
            self._mapped.check_edges(fields["edge_index"], ptr, slices["edge_index"])
            self._unseen[graphs] = False
        return assemble(self._class, fields, slices, incs, device_ptr, batch, self._keeps_num_nodes)


def make_loader(
    dataset: Any,
    batch_size: int,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    window: int | None = None,
    share: Share = WHOLE,
) -> ResidentLoader | StreamingLoader | DataLoader:
    """The loader that suits a data set and a device; all give the same batches in the same order.

    | loader | where |
    |---|---|
    | `ResidentLoader` | the data set lies in memory, and fills less than half of the device's free memory |
    | `StreamingLoader` | it is too large for that, or is mapped from disk and stays on the CPU |
    | PyG's `DataLoader` | `not_resident` names a reason; its batches come on the CPU |

    Args:
        dataset: a PyG data set or a list of `Data`.
        batch_size: graphs in a batch, >= 1.
        shuffle: whether each epoch draws a new order.
        generator: source of the orders, a CPU generator.
        device: where the batches are wanted.
        window: graphs that are shuffled together; default: all. See `batch_indices`.
        share: `(rank, ranks)`: which part of each batch is wanted, where several processes train together. All draw the
            same order, from generators of one seed, and `batch_size` is that of all parts together.

    Raises:
        InputError: sizes out of range, or fewer than two graphs of a batch for each rank.
    """
    from graphcl.datasets.streaming import StreamingLoader  # which is made of a `ResidentLoader`

    device = torch.device(device)
    if not_resident(dataset):
        batches = EpochBatches(len(dataset), batch_size, shuffle, generator, window, share)
        return DataLoader(dataset, batch_sampler=batches)
    if device.type == "cuda":
        streams = _bytes(dataset) > torch.cuda.mem_get_info(device)[0] / 2
    else:
        streams = isinstance(dataset, MappedDataset)
    kind = StreamingLoader if streams else ResidentLoader
    return kind(dataset, batch_size, shuffle, generator, device, window, share=share)


def not_resident(dataset: Any) -> str | None:
    """Why a data set cannot be held as plain tensors on a device, or None if it can.

    Raises:
        InputTypeError: no loader would be of use, as the graphs are heterogeneous or temporal.
    """
    source = dataset
    while source is not None:
        if getattr(source, "transform", None) is not None:
            return "it has a transform, which is to be applied at each access"
        source = getattr(source, "dataset", None)  # as torch's `Subset` has
    if len(dataset) == 0:
        return "it is empty"
    graph = dataset[0]
    if hint := unsupported(graph):
        raise InputTypeError(f"a data set must hold torch_geometric.data.Data, got {type(graph).__name__}{hint}.")
    if type(graph).__inc__ is not Data.__inc__ or type(graph).__cat_dim__ is not Data.__cat_dim__:
        return f"{type(graph).__name__} has batching rules of its own"
    for key, value in graph._store.items():
        plain = value.layout == torch.strided if isinstance(value, Tensor) else isinstance(value, (int, float, str))
        if not plain or type(value) not in (Tensor, int, float, str) or "batch" in key:
            return f"attribute `{key}` is neither a plain tensor nor a single number or text"
    return None


def _collated(dataset: Any) -> tuple[Data, dict[str, Tensor], Tensor]:
    """The concatenated attributes, the boundaries of the graphs' parts, and each graph's number of nodes."""
    whole = isinstance(dataset, InMemoryDataset) and dataset._indices is None and dataset.slices is not None
    indices = getattr(dataset, "_indices", None)
    if whole:
        data, slices = dataset._data, dict(dataset.slices)
    elif isinstance(dataset, MappedDataset) and isinstance(indices, range) and indices.step == 1:
        # Nothing is copied: the files as they are, and where the chosen graphs lie in them.
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


def _bytes(dataset: Any) -> int:
    data = _collated(dataset)[0]
    return sum(value.nbytes for value in data._store.values() if isinstance(value, Tensor))
