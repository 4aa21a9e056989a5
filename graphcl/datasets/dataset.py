"""The one kind of data set that the rest of the library sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark prescribes for a data set: who is trained on and who is tested, and by which metric.

    Args:
        name: by which the benchmark's own evaluator knows the set.
        split: numbers of the graphs in the parts `train`, `valid` and `test`.
        task_type: what is predicted, as the benchmark calls it, such as "binary classification".
        eval_metric: `rocauc`, `ap`, `acc` or `rmse`.
        num_tasks: columns of `y`.
    """

    name: str
    split: Mapping[str, Tensor]
    task_type: str
    eval_metric: str
    num_tasks: int


class GraphDataset(InMemoryDataset):
    """Graphs in memory, collated the way PyG does it: indexing, slicing, `DataLoader` and `transform` work as ever.

    Attributes:
        name: what the data set is called.
        features: what the columns of `x` are: "labels", "constant", "degree" or "labels+degree".
        labelled: whether every graph has one whole number as its class `y`.
        classes: the class values as they were given, `[C]`; `y` counts 0..C-1 in this order. `None` if not labelled.
        degree_columns: how many columns of `x`, the last ones, are degrees.
        benchmark: the split and metric of a benchmark's set, whose `y [n, tasks]` holds numbers, NaN for those that are
            missing, and whose `x` may hold category numbers (integers); `None` for other sets.

    Args:
        data: all graphs in one.
        slices: where each attribute is cut; `None` for one graph.
        name: see above.
        features: see above.
        classes: see above.
        degree_columns: see above.
        benchmark: see above.

    >>> from graphcl.datasets import load_dataset
    >>> pair = torch.tensor([[0, 1], [1, 0]])
    >>> dataset = load_dataset([Data(edge_index=pair, num_nodes=2, y=3), Data(edge_index=pair, num_nodes=4, y=8)])
    >>> dataset
    GraphDataset('own', 2 graphs, x: 1 column (constant), 2 classes)
    >>> dataset[1]
    Data(edge_index=[2, 2], y=[1], x=[4, 1])
    """

    def __init__(
        self,
        data: Data,
        slices: dict[str, Tensor] | None,
        name: str,
        features: str,
        classes: Tensor | None = None,
        degree_columns: int = 0,
        benchmark: Benchmark | None = None,
    ) -> None:
        super().__init__()
        self._data, self.slices = data, slices
        self.name, self.features, self.classes = name, features, classes
        self.degree_columns, self.benchmark = degree_columns, benchmark

    @property
    def labelled(self) -> bool:
        """Whether every graph has one whole number as its class."""
        return self.classes is not None

    @property
    def scored(self) -> bool:
        """Whether an embedding can be scored: the graphs are labelled, or a benchmark says how."""
        return self.labelled or self.benchmark is not None

    @property
    def num_classes(self) -> int:
        """How many classes there are; 0 where the graphs have none (no `y`, a regression, several targets)."""
        return 0 if self.classes is None else self.classes.numel()

    def __repr__(self) -> str:
        width = self.num_features
        graphs = f"{len(self)} graph{'s' * (len(self) != 1)}"
        columns = f"x: {width} column{'s' * (width != 1)} ({self.features})"
        if self.benchmark is not None:
            tasks = f"{self.benchmark.num_tasks} task{'s' * (self.benchmark.num_tasks != 1)}"
            targets = f"{tasks} ({self.benchmark.task_type})"
        else:
            targets = f"{self.num_classes or 'no'} classes"
        return f"{type(self).__name__}({self.name!r}, {graphs}, {columns}, {targets})"


def class_labels(y: object, y_slices: Tensor | None, num_graphs: int) -> tuple[Tensor, Tensor] | None:
    """`(y, classes)` with `y [n]` in 0..C-1 if `y` is one whole number per graph, else `None`.

    Like PyG's TU reader, which numbers the classes in ascending order of their values.
    """
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.numel() != num_graphs:
        return None
    if y_slices is None or not torch.equal(y_slices.cpu(), torch.arange(num_graphs + 1)):
        return None
    classes, number = y.flatten().long().unique(sorted=True, return_inverse=True)
    return number, classes
