"""Define the data set class `GraphDataset` and `Benchmark`, the split and metric of a benchmark."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from graphcl.datasets.relation import NO_GROUP, GroupNumbers, Relation
from graphcl.datasets.tables import Invalid
from graphcl.errors import InputError, one_line, warn
from graphcl.graphs.columns import Scale, column_scale, standardise
from graphcl.graphs.compact import Compact

Collated = tuple[Data, dict[str, Tensor] | None]
"""A data set as in PyG's `InMemoryDataset`: all graphs in one `Data`, and the slices for each attribute."""
Classes = Tensor | np.ndarray
"""Class values `[C]` in ascending order: a tensor of whole numbers, or an array of strings."""


@dataclass(frozen=True)
class Benchmark:
    """The split and metric that a benchmark prescribes for a data set.

    Args:
        split: indices of the graphs in each part; the keys are `train`, `valid` and `test`.
        task_type: kind of task in the benchmark's terms, such as "binary classification".
        eval_metric: `rocauc`, `ap`, `acc`, `rmse`, `mae` or `r2`.
        num_tasks: number of targets, the columns of `y`.
        tasks: names of the targets, if they have any.
        classes: texts that the numbers 0, 1, ... of the only target stand for, if it was one of texts.
    """

    split: Mapping[str, Tensor]
    task_type: str
    eval_metric: str
    num_tasks: int
    tasks: Sequence[str] = ()
    classes: Sequence[str] = ()


class GraphDataset(InMemoryDataset):
    """PyG data set of graphs in memory; indexing, slicing, `DataLoader` and `transform` work as usual.

    Attributes:
        rows: kind of the rows of an embedding, `graphs` unless an extension has others.
        name: name of the data set.
        features: kind of node features in `x`: "labels", "constant", "degree" or "labels+degree".
        labelled: whether every graph has one class `y`, a whole number or a string.
        groups: number of each graph's group; graphs of the same group are positives of each other.
        classes: the original class values, `[C]`; `y` holds indices into them. `None` if not labelled.
        degree_columns: number of one-hot degree columns; they are the last columns of `x`.
        scales: mean and deviation of the columns of `x` and `edge_attr` before `standardised`; else empty.
        benchmark: split and metric of a benchmark's data set; `None` for other sets. In a benchmark's set,
            `y [n, tasks]` is floating-point, NaN where a target is missing; `x` may hold category indices (integers).
        split: indices of the graphs in the parts `train`, `valid` and `test` of `benchmark`; `None` without one.
        invalid: what was left out: rows of a table, each with `row` (its index), `line`, `id` and `reason`; or graphs,
            each with `graph` (its index), `id` and `reason`.
        relation: the listed pairs that the graphs are queries, or also targets, of; None without a list.
        targets: data set of the targets of these pairs; None if it is this one.

    Args:
        data: all graphs, collated.
        slices: attribute -> index of each graph's first row, and the number of rows, `[n + 1]`; `None` for one graph.
        name: see above, like the others.

    >>> from graphcl.datasets import load_dataset
    >>> pair = torch.tensor([[0, 1], [1, 0]])
    >>> dataset = load_dataset([Data(edge_index=pair, num_nodes=2, y=3), Data(edge_index=pair, num_nodes=4, y=8)])
    >>> dataset
    GraphDataset('own', 2 graphs, x: 1 column (constant), 2 classes)
    >>> dataset[1]
    Data(edge_index=[2, 2], y=[1], x=[4, 1])
    """

    rows: ClassVar[str] = "graphs"
    relation: Relation | None = None
    targets: GraphDataset | None = None
    invalid: Invalid = ()
    scales: Mapping[str, Scale] = MappingProxyType({})

    def __init__(
        self,
        data: Data,
        slices: dict[str, Tensor] | None,
        name: str,
        features: str,
        classes: Classes | None = None,
        degree_columns: int = 0,
        benchmark: Benchmark | None = None,
    ) -> None:
        super().__init__()
        self._data, self.slices = data, slices
        self.name, self.features, self.classes = one_line(name), features, classes
        self.degree_columns, self.benchmark = degree_columns, benchmark

    @property
    def labelled(self) -> bool:
        """Whether every graph has one class `y`, a whole number or a string."""
        return self.classes is not None

    @property
    def scored(self) -> bool:
        """Whether an embedding can be scored: the data set has classes or a benchmark's targets."""
        return self.labelled or self.benchmark is not None

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 if the data set is not labelled."""
        return 0 if self.classes is None else len(self.classes)

    @property
    def split(self) -> Mapping[str, Tensor] | None:
        """Indices of the graphs in the parts `train`, `valid` and `test`; None without a benchmark."""
        return None if self.benchmark is None else self.benchmark.split

    @property
    def groups(self) -> Tensor | None:
        """Number of each graph's group, int64 `[n]`, -1 for no group; None if no graph has a `group`, and for nodes.

        Graphs of the same group are positives of each other. Groups are not labels.
        """
        group = self._data.get("group") if self.rows == "graphs" else None
        return group if group is None or self._indices is None else group[torch.as_tensor(list(self.indices()))]

    @property
    def ids(self) -> np.ndarray:
        """Id of each row, `[n]` of int64 or of Python strings: the attribute `id` of the graphs; else its index."""
        ids = self._data.get("id") if self.rows == "graphs" else None
        if ids is None:
            return np.arange(len(self) if self.rows == "graphs" else self.num_rows)
        chosen = slice(None) if self._indices is None else np.asarray(self._indices)
        total = len(self.slices["edge_index"]) - 1 if self.slices else 1
        if isinstance(ids, Tensor) and ids.dtype == torch.long and ids.shape == (total,):
            return ids.numpy()[chosen]
        values = [_id(value) for value in (ids.tolist() if isinstance(ids, Tensor) else ids)]
        if len(values) != total or not all(isinstance(value, int | str) for value in values):
            warn(f"`id` of {self.name} is not one whole number or string for each graph; positions are used instead.")
            return np.arange(len(self))
        if all(isinstance(value, int) for value in values):
            return np.array(values, np.int64)[chosen]
        return np.array([str(value) for value in values], object)[chosen]

    @property
    def has_edge_weight(self) -> bool:
        """Whether the graphs have weights of edges, as the first one has."""
        return self[0].get("edge_weight") is not None

    @property
    def components(self) -> Tensor | None:
        """Number of each row's component of the listed pairs, `[num_rows]`; without a list, of each graph's group."""
        return self.groups if self.relation is None else self.relation.component

    @property
    def sides(self) -> list[GraphDataset]:
        """This data set and, if there are any, its targets."""
        return [self] if self.targets is None else [self, self.targets]

    @property
    def num_rows(self) -> int:
        """Number of rows of an embedding: the graphs, then the graphs of `targets`."""
        return len(self) + (0 if self.targets is None else len(self.targets))

    def protocol(self) -> dict[str, Any]:
        """Return the arguments of evaluators that the data set prescribes, such as its split; empty without any."""
        return {} if self.benchmark is None else vars(self.benchmark)

    def column_scales(self, graphs: Tensor | None = None) -> dict[str, Scale]:
        """Return the mean and the deviation of the columns of `x` and `edge_attr`, where they are numbers.

        `graphs` are the indices of the graphs to measure; default: all. See `graphcl.graphs.columns.column_scale`.
        """
        scales, mask = dict[str, Scale](), None
        if graphs is not None or self._indices is not None:
            rows = torch.arange(len(self)) if self._indices is None else torch.as_tensor(list(self._indices))
            chosen = rows if graphs is None else rows[graphs]
            mask = torch.zeros(int(chosen.max()) + 1, dtype=torch.bool).index_fill(0, chosen, True)
        for key in ("x", "edge_attr"):
            values = self._data.get(key)
            if isinstance(values, Tensor) and values.is_floating_point() and values.dim() in (1, 2) and len(values):
                if mask is not None:
                    rows = mask.repeat_interleave((self.slices or {})[key][: len(mask) + 1].diff())
                    values = values[: len(rows)][rows]
                scales[key] = column_scale(values)
        return scales

    def standardised(self, scales: Mapping[str, Scale] | None = None) -> GraphDataset:
        """Return a copy with standardised columns of `x` and `edge_attr`, which shares all other tensors.

        Args:
            scales: mean and deviation of each column; default: `column_scales()`.
        """
        changed = self.with_values()
        changed.scales = self.column_scales() if scales is None else scales
        for key, scale in changed.scales.items():
            values = changed._data.get(key)
            if values is not None:
                changed._data[key] = standardise(values, torch.tensor(scale, dtype=torch.float64, device=values.device))
        return changed

    def with_values(self, slices: Mapping[str, Tensor] | None = None, **values: Any) -> GraphDataset:
        """Return a copy with other values of some attributes, and other slices if given; all others are shared."""
        changed = copy.copy(self)
        changed._data, changed._data_list = copy.copy(self._data), None
        changed.slices = self.slices if slices is None else {**(self.slices or {}), **slices}
        for key, value in values.items():
            changed._data[key] = value
        return changed

    def sample(self) -> list[Data]:
        """Return two graphs, to try settings on."""
        return [self[0], self[1]]

    def fingerprint(self) -> dict[str, Any]:
        """Return the numbers of graphs, nodes and edges, and a digest of all data; equal data give equal values.

        Example:
            >>> from graphcl import load_dataset
            >>> found = load_dataset("synthetic").fingerprint()
            >>> found["graphs"], found == load_dataset("synthetic").fingerprint()
            (600, True)
        """
        digest, parts = hashlib.sha256(), dict[str, Any](self._data.to_dict())
        parts |= {f"{key}.slices": value for key, value in (self.slices or {}).items()}
        parts |= {f"split.{part}": rows for part, rows in (self.split or {}).items()}
        classes = [] if self.classes is None else self.classes.tolist()
        if classes != list(range(len(classes))):  # 0, 1, ... are left out, for the digests of earlier versions
            parts["dataset.classes"] = classes
        fields = {} if self.relation is None else vars(self.relation)
        parts |= {f"relation.{key}": fields[key] for key in fields if key != "component"}
        if self.targets is not None:
            parts["targets"] = [self.targets.fingerprint()["digest"]]
        for key, value in sorted(parts.items()):
            if isinstance(value, list) and all(isinstance(entry, str | int | float | np.generic) for entry in value):
                digest.update(repr((key, value)).encode())
            elif isinstance(value, Tensor):
                digest.update(f"{key} {value.dtype} {list(value.shape)}\n".encode())
                self._add_bytes(digest, key, value)
        sizes = {"graphs": len(self), "nodes": self._data.x.size(0), "edges": self._data.edge_index.size(1)}
        return {**sizes, "digest": digest.hexdigest()[:16]}

    def _add_bytes(self, digest: Any, key: str, value: Tensor) -> None:
        """Add the bytes of one tensor to `digest`."""
        parts = value.parts() if isinstance(value, Compact) else (value,)
        for part in parts:
            digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())

    def __repr__(self) -> str:
        labels = self._data.x[:1000, : self.num_features - self.degree_columns]  # enough to see if they are one-hot
        numbers = labels.is_floating_point() and not bool(((labels == 0) | (labels == 1)).all())
        kind = self.features.replace("labels", "numbers") if numbers else self.features
        columns = f"x: {_count(self.num_features, 'column')} ({kind})"
        if self.num_edge_features:
            columns += f", edge_attr: {_count(self.num_edge_features, 'column')}"
        if self.benchmark is not None:
            targets = f"{_count(self.benchmark.num_tasks, 'task')} ({self.benchmark.task_type})"
        elif self.labelled:
            targets = f"{self.num_classes} classes"
        else:
            targets = "no classes" + ", as `y` is not one whole number a graph" * ("y" in self._data)
        return f"{type(self).__name__}({self.name!r}, {_count(len(self), 'graph')}, {columns}, {targets})"


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


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}"


def class_labels(
    y: object, y_slices: Tensor | None, num_graphs: int, what: str = "own"
) -> tuple[Tensor, Classes] | None:
    """Return class indices `[n]` and class values `[C]`; `None` if `y` is not one whole number or string per graph.

    A float such as 1.0 counts as a whole number. Class values are in ascending order, as in PyG's TU reader.

    Raises:
        InputError: `y` mixes strings and numbers.
    """
    if isinstance(y, list):  # as PyG collates strings
        values = [value[0] if isinstance(value, list | np.ndarray) and np.size(value) == 1 else value for value in y]
        texts = [isinstance(value, str) for value in values]
        if any(texts) and not all(texts):
            graph = texts.index(not texts[0])
            both = f"{one_line(repr(values[0]), 40)} of graph 0, {one_line(repr(values[graph]), 40)} of graph {graph}"
            raise InputError(f"{what}: `y` mixes strings and numbers: {both}; use one kind.")
        if all(texts) and len(texts) == num_graphs:
            names, index = np.unique(np.array(values, dtype=object), return_inverse=True)
            return torch.from_numpy(index), names
    if not isinstance(y, Tensor) or y.is_complex() or y.numel() != num_graphs or y_slices is None:
        return None
    if not torch.equal(y_slices.cpu(), torch.arange(num_graphs + 1)) or not is_whole(y).all():
        return None
    classes, number = y.flatten().long().unique(sorted=True, return_inverse=True)
    return number, classes


def is_whole(y: Tensor) -> Tensor:
    """Return a mask of the whole numbers in `y`: integers, and floats without a fraction, below 2^53."""
    return (y.abs() < 2**53) & (y == y.trunc()) if y.is_floating_point() else torch.ones_like(y, dtype=torch.bool)


def _id(value: Any) -> Any:
    """Return an id as it is, a list of one as its entry, and a whole float, if float32 can hold it, as an integer."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**24 else value
