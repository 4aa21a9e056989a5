"""List the invalid graphs of a source, or rows of a table that hold no graph."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphcl.errors import InputError
from graphcl.system.files import write_text


class InvalidGraph(NamedTuple):
    """An invalid graph: its index in the source, its attribute `id` (else the index), and what is wrong with it."""

    graph: int
    id: int | str
    reason: str


FORMULA = tuple("=+-@\t\r")
"""First characters of cells that spreadsheets take for a formula."""
Invalid = Sequence[Any]
"""Graphs that were left out, in the order of the source: `InvalidGraph`, or another named tuple, whose first field is
the index in the source and whose first field name, such as `row`, says what it is."""


class NoGraphLeftError(InputError):
    """All rows or graphs are `invalid`, and left out; `text` describes them."""

    def __init__(self, text: str, invalid: Invalid) -> None:
        super().__init__(f"{text}; nothing is left.")
        self.invalid = invalid


def kept_rows(count: int, invalid: Invalid, start: int = 0) -> np.ndarray:
    """Return the indices in the source, from `start` on, of the `count` graphs that were kept, `[count]`."""
    return np.delete(np.arange(start, start + count + len(invalid)), [row[0] - start for row in invalid])


def describe_invalid(graphs: Sequence[Any], count: int, what: str) -> str:
    """Return a message on the invalid ones of `count` graphs: how many, and the first three."""
    first = [f"graph {graph.graph} {graph.reason}" for graph in graphs[:3]]
    return f"{what}: {len(graphs)} of {count} graphs are invalid: {'; '.join(first)}{'; ...' * (len(graphs) > 3)}"


def invalid_csv(rows: Invalid) -> str:
    """Return the text of the file that `write_invalid` writes."""
    text = io.StringIO()  # lines end as in RFC 4180, else Python 3.11 does not quote a carriage return
    csv.writer(text).writerows([rows[0]._fields, *(map(_escaped, row) for row in rows)])
    return text.getvalue()


def write_invalid(rows: Invalid, path: Path) -> str:
    """Write rows or graphs, if there are any, to a CSV file with a column for each field, and return a status.

    Strings that begin like a formula (`=`, `+`, `-`, `@`, tab or carriage return) get a `'` in front, so that
    spreadsheets show them as text.
    """
    if not rows:
        return ""
    write_text(path, invalid_csv(rows))
    kind = f"{rows[0]._fields[0]}s"
    return f"; invalid {kind}: {len(rows)}, in {path}"


def _escaped(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
