"""Read a data set in TU text layout, with the result of PyG's `read_tu_data`.

PyG's function drops the last line of a file that does not end with a line end. It assigns nodes and edges to wrong
graphs if `NAME_graph_indicator.txt` is not in ascending order, if an edge joins two graphs or ends at a missing node,
or if a file has fewer lines than there are nodes or graphs. Its messages name no file. Of a set with both labels and
attributes of graphs, it reads the attributes; here the labels are the classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.io.tu import split
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from graphcl.datasets.tu.text import TextFile
from graphcl.errors import InputError
from graphcl.system.memory import total_memory

PARTS = (
    "A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels",
    "edge_attributes",
)  # fmt: skip
"""Files of a TU set, NAME_PART.txt; only the first two are required."""
_MAX_LABEL = 2**16
"""Largest difference of two labels of a column, which is one-hot encoded."""
Texts = tuple[Data, dict[str, Tensor], dict[str, int]]
"""All graphs, collated; the slices; and numbers of columns, such as `num_node_labels`. Attributes precede labels."""


def read_texts(folder: Path, prefix: str, name: str) -> Texts:
    """Return the graphs in the files `prefix_PART.txt` in `folder`; messages call the data set `name`.

    Raises:
        InputError: a file is missing or wrong; the message names the file and the line.
    """
    files = {
        part: TextFile(folder, prefix, name, part)
        for part in PARTS
        if part in PARTS[:2] or (folder / f"{prefix}_{part}.txt").exists()
    }
    graph = _graphs(files["graph_indicator"])
    edges = torch.from_numpy(_edges(files["A"], graph).T - 1)
    rows = {"graph": int(graph.max(initial=0)), "node": len(graph), "edge": edges.size(1)}
    values = {part: torch.empty(rows[part.partition("_")[0]], 0) for part in PARTS[2:]}
    for part in values.keys() & files.keys():
        unit = part.partition("_")[0]
        files[part].check_length(rows[unit], f"{unit}s")
        values[part] = torch.from_numpy(files[part].numbers()).float() if "attr" in part else _labels(files[part])
        if "attr" in part or part == "graph_labels":
            files[part].check_decimals()

    x, edge_attr = (torch.cat([values[f"{each}_attributes"], values[f"{each}_labels"]], 1) for each in ("node", "edge"))
    y = values["graph_labels" if "graph_labels" in files else "graph_attributes"]
    edges, edge_attr = coalesce(*remove_self_loops(edges, edge_attr), len(graph))
    data = Data(edge_index=edges)
    for key, value in (("x", x), ("edge_attr", edge_attr), ("y", y)):
        if value.size(1):
            data[key] = value.squeeze(1) if key == "y" and value.size(1) == 1 else value
    sizes = {f"num_{part}": columns.size(1) for part, columns in values.items()}
    return *split(data, torch.from_numpy(graph - 1)), sizes


def _graphs(file: TextFile) -> NDArray[np.int64]:
    """Return the number of each node's graph, from 1."""
    graph = file.integers(1)[:, 0]
    if not len(graph):
        raise InputError(f"{file.name} is empty; write the number of each node's graph, from 1.")
    step = np.diff(graph, prepend=0)
    if (wrong := (step < 0) | (step > 1) | (graph < 1)).any():
        file.refuse(int(wrong.argmax()), "graphs must be numbered from 1 in ascending order, without gaps")
    return graph


def _edges(file: TextFile, graph: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the nodes of each edge, from 1, `[E, 2]`."""
    edges = file.integers(2)
    wrong = ((edges < 1) | (edges > len(graph))).any(axis=1)
    wrong |= np.ptp(graph.take(edges - 1, mode="clip"), axis=1) > 0
    if wrong.any():
        file.refuse(int(wrong.argmax()), f"an edge must join two of the nodes 1 to {len(graph)}, in one graph")
    return edges


def _labels(file: TextFile) -> Tensor:
    """Return class indices `[n, columns]` of graphs, or one-hot labels of nodes or edges."""
    labels = torch.from_numpy(file.labels())
    if file.part == "graph_labels":
        return labels.unique(return_inverse=True)[1]
    if not len(labels):
        return torch.empty(0, 0)
    low = labels.min(dim=0).values
    large = (labels.double() - low.double() > _MAX_LABEL).any(dim=1)  # a difference of int64 could overflow
    if large.any():
        file.refuse(
            int(large.int().argmax()), f"a label is more than {_MAX_LABEL} above the smallest; number them from 0"
        )
    labels = labels - low
    columns = int((labels.max(dim=0).values + 1).sum())
    size = 8 * len(labels) * columns  # while the columns are joined
    if size > total_memory():
        found = f"its {len(labels)} labels take {columns} columns, one for each number up to the largest"
        raise InputError(f"{file.name}: {found}, of {size / 1e9:.0f} GB; number the labels 0, 1, 2, ... without gaps.")
    return torch.cat([one_hot(column) for column in labels.unbind(dim=1)], dim=1)
