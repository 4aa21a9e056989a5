"""Check the text files of a TU data set, which have this layout:

| file | one line per | content of a line |
|---|---|---|
| NAME_A.txt | edge | two node numbers, from 1 |
| NAME_graph_indicator.txt | node | graph number, from 1, ascending |
| NAME_graph_labels.txt | graph | class (optional) |
| NAME_graph_attributes.txt | graph | numbers (optional, regression) |
| NAME_node_labels.txt, NAME_edge_labels.txt | node, edge | integers (optional) |
| NAME_node_attributes.txt, NAME_edge_attributes.txt | node, edge | numbers (optional) |

PyG's reader does not check the files. The checks here run before it and name the file and line of a mistake.
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
"""Part of the file name -> type of its values, and number of values per line (`None`: as in the first line)."""

MAX_ONE_HOT_BYTES = 8 * 2**30
FREE_ONE_HOT_BYTES, MAX_COLUMNS = 16 * 2**20, 4096
"""One-hot labels of more than `FREE_ONE_HOT_BYTES` may have at most `MAX_COLUMNS` columns; public sets need 1323."""


def check_text(folder: Path, name: str, origin: str) -> None:
    """Check TU text files and normalise their line ends in place; PyG drops a last line without a line end.

    Args:
        folder: folder that holds `NAME_A.txt` and so on; a copy, as its files are rewritten.
        name: NAME, with which the file names begin.
        origin: the source of the files, for messages.

    Raises:
        InputError: a file is missing, empty, damaged or inconsistent with another file; the message names file and
            line.
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
    if size > MAX_ONE_HOT_BYTES or (size > FREE_ONE_HOT_BYTES and width > MAX_COLUMNS):
        raise InputError(
            f"{what}: labels from {labels.min()} to {labels.max()} are too many for one-hot columns; renumber them."
        )


def _read(path: Path, part: str, origin: str) -> NDArray[Any]:
    """Return the values of one text file, `[lines, values per line]`; normalise its line ends in place."""
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
            warnings.simplefilter("error", DeprecationWarning)  # else numpy 1 reads 1.5 as 1 and 1e20 as -2^63
            array = np.loadtxt(path, dtype, delimiter=",", comments=None, ndmin=2, encoding="utf-8")
    except (ValueError, OverflowError, DeprecationWarning) as error:
        _find_bad_line(body, kind, columns, f"{origin}: {path.name}")
        raise InputError(f"{origin}: {path.name} cannot be read: {reason(error)}.") from None
    if len(array) != body.count(b"\n") + 1 or columns not in (None, array.shape[1]):
        _find_bad_line(body, kind, columns, f"{origin}: {path.name}")
    return array


def _find_bad_line(body: bytes, kind: type, columns: int | None, what: str) -> None:
    """Raise InputError for the first invalid line of `body`; slow, so call it for invalid files only."""
    noun = "whole number" if kind is int else "number"
    for number, ended in enumerate(io.BytesIO(body), 1):  # not a list of lines, which takes many times the memory
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
