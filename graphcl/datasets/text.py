"""The TU text layout: what its files hold, and whether they fit together.

| file | lines | line |
|---|---|---|
| NAME_A.txt | edges | two node numbers, from 1 |
| NAME_graph_indicator.txt | nodes | graph number, from 1, ascending |
| NAME_graph_labels.txt | graphs | class (optional) |
| NAME_graph_attributes.txt | graphs | numbers (optional, regression) |
| NAME_node_labels.txt, NAME_edge_labels.txt | nodes, edges | whole numbers (optional) |
| NAME_node_attributes.txt, NAME_edge_attributes.txt | nodes, edges | numbers (optional) |

PyG's reader believes the files; the checks here run before it, in numpy's C reader, and name the file and line.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from graphcl.errors import InputError, reason

PARTS: dict[str, tuple[type, int | None]] = {
    "A": (int, 2),
    "graph_indicator": (int, 1),
    "graph_labels": (int, None),
    "graph_attributes": (float, None),
    "node_labels": (int, None),
    "node_attributes": (float, None),
    "edge_labels": (int, None),
    "edge_attributes": (float, None),
}
"""Parts of the layout: type of the values, values per line (`None`: as many as in the first line)."""

MOST_ONE_HOT_BYTES = 8 * 2**30
FREE_ONE_HOT_BYTES, MOST_COLUMNS = 16 * 2**20, 4096
"""Beyond so many bytes, labels may not take more columns than so many; the largest of the public sets takes 1323."""


def check_text(folder: Path, name: str, origin: str) -> None:
    """Check the TU text files in `folder`, which is ours: line ends are tidied in place (PyG drops an unended line).

    Args:
        folder: holds `NAME_A.txt` and so on.
        name: the prefix.
        origin: where the files came from, for messages.

    Raises:
        InputError: a file is missing, empty or damaged, or the files do not fit together; names the file and line.
    """
    values = {}
    for part in PARTS:
        path = folder / f"{name}_{part}.txt"
        if path.is_file():
            values[part] = _read(path, part, origin)
        elif part in ("A", "graph_indicator"):
            raise InputError(f"{origin}: {path.name} is missing; it is needed to read {name}.")

    def refuse(part: str, line: int | np.integer[Any], what: str) -> NoReturn:
        raise InputError(f"{origin}: {name}_{part}.txt line {line}: {what}.")

    graph = values["graph_indicator"][:, 0]
    if graph[0] != 1:
        refuse("graph_indicator", 1, f"the first graph must be 1, got {graph[0]}")
    step = np.diff(graph)
    if step.size and (step.min() < 0 or step.max() > 1):
        at = int(np.flatnonzero((step < 0) | (step > 1))[0])
        rule = "graphs must be in ascending order" if step[at] < 0 else "a graph has no node"
        refuse("graph_indicator", at + 2, f"graph {graph[at]} is followed by graph {graph[at + 1]}; {rule}")

    if graph[-1] == 1:
        raise InputError(f"{origin}: {name} holds 1 graph; contrasting graphs needs at least two.")

    edges, nodes = values["A"], graph.size
    if len(edges) < 2:
        raise InputError(f"{origin}: {name}_A.txt has {len(edges)} line; PyG's reader needs at least two edges.")
    if edges.min() < 1 or edges.max() > nodes:
        at = int(np.flatnonzero(((edges < 1) | (edges > nodes)).any(1))[0])
        refuse("A", at + 1, f"edge {edges[at, 0]}, {edges[at, 1]}, but nodes are numbered 1 to {nodes}")
    ends = graph[edges - 1]
    crossing = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if crossing.size:
        at = int(crossing[0])
        where = f"graph {ends[at, 0]} with graph {ends[at, 1]}"
        refuse("A", at + 1, f"edge {edges[at, 0]}, {edges[at, 1]} joins {where}; edges must stay within a graph")

    wanted = {"graph": int(graph[-1]), "node": nodes, "edge": len(edges)}
    for part, array in values.items():
        kind = part.split("_")[0]
        if part not in ("A", "graph_indicator") and len(array) != wanted[kind]:
            raise InputError(
                f"{origin}: {name}_{part}.txt has {len(array)} lines, but there are {wanted[kind]} {kind}s; "
                f"it needs one line per {kind}."
            )
    for part in ("node_labels", "edge_labels"):
        if part in values:
            _check_one_hot(values[part], f"{origin}: {name}_{part}.txt")


def _check_one_hot(labels: NDArray[Any], what: str) -> None:
    width = sum(int(high) - int(low) + 1 for low, high in zip(labels.min(0), labels.max(0), strict=True))
    size = width * len(labels) * 4
    if size > MOST_ONE_HOT_BYTES or (size > FREE_ONE_HOT_BYTES and width > MOST_COLUMNS):
        raise InputError(
            f"{what}: labels from {labels.min()} to {labels.max()} are too many for one-hot columns; number them anew."
        )


def _read(path: Path, part: str, origin: str) -> NDArray[Any]:
    """The values of one file, `[lines, values per line]`."""
    raw = path.read_bytes()
    body = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip()
    if not body:
        raise InputError(f"{origin}: {path.name} is empty.")
    if raw != body + b"\n":
        path.write_bytes(body + b"\n")
    kind, columns = PARTS[part]
    dtype = np.int64 if kind is int else np.float64
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # numpy 1 reads 1.5 as 1, and 1e20 as -2^63, and says so
            array = np.loadtxt(path, dtype, delimiter=",", comments=None, ndmin=2, encoding="utf-8")
    except (ValueError, OverflowError, DeprecationWarning) as error:
        _find_bad_line(body, kind, columns, f"{origin}: {path.name}")
        raise InputError(f"{origin}: {path.name} cannot be read: {reason(error)}.") from None
    if len(array) != body.count(b"\n") + 1 or columns not in (None, array.shape[1]):
        _find_bad_line(body, kind, columns, f"{origin}: {path.name}")
    return array


def _find_bad_line(body: bytes, kind: type, columns: int | None, what: str) -> None:
    """Say which line is wrong. Slow, and only reached when one is."""
    noun = "whole number" if kind is int else "number"
    for number, ended in enumerate(io.BytesIO(body), 1):  # line by line, as a list of all takes many times the file
        line = ended.removesuffix(b"\n")
        fields = line.split(b",")
        columns = columns or len(fields)
        try:
            good = len(fields) == columns and all(-(2**63) <= kind(f) < 2**63 or kind is float for f in fields)
        except ValueError:
            good = False
        if not good:
            expected = f"{columns} {noun}{'s, separated by commas' if columns > 1 else ''}"
            got = repr(line[:60].decode("utf-8", "replace"))
            raise InputError(f"{what} line {number}: expected {expected}, got {got if line.strip() else 'nothing'}.")
