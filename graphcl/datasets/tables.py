"""Read tables (Parquet, Excel, frames of pandas, polars and pyarrow), and list invalid rows and graphs of a source."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphcl.errors import InputError, reason
from graphcl.system.files import write_text
from graphcl.system.optional import optional

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""Delimiters of a .csv file."""
Invalid = Sequence[Any]
"""Graphs that were left out, in the order of the source: `InvalidGraph`, or another named tuple, whose first field is
the index in the source and whose first field name, such as `row`, says what it is."""
_FORMULA = tuple("=+-@\t\r")
"""First characters of cells that spreadsheets take for a formula."""


def frame(source: Any) -> tuple[list[str], Callable[[int], list[Any]]] | None:
    """Return the names of a frame's columns, and a function from the index of a column to its cells.

    A frame is a DataFrame of pandas or polars, or a table of pyarrow; for other objects, return None.
    """
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return list(map(str, source.columns)), lambda place: source.iloc[:, place].tolist()
    if hasattr(source, "to_series") and hasattr(source, "columns"):
        return list(source.columns), lambda place: source.to_series(place).to_list()
    if hasattr(source, "column_names") and hasattr(source, "to_pylist"):
        return list(source.column_names), lambda place: source.column(place).to_pylist()
    return None


def read_frame(path: Path) -> Any:
    """Return a .parquet file as a table of pyarrow, or the first sheet of an .xlsx file as a DataFrame of pandas."""
    if path.suffix.lower() == ".parquet":
        read = optional("pyarrow.parquet", "a .parquet table needs pyarrow", "parquet").read_table
    else:
        optional("openpyxl", "an .xlsx table needs openpyxl", "excel")
        pandas = optional("pandas", "an .xlsx table needs pandas", "excel")
        read = partial(pandas.read_excel, dtype=object, keep_default_na=False)
    try:
        with open(path, "rb") as file:
            return read(file)
    except Exception as error:  # of a damaged file, any
        raise InputError(f"cannot read {str(path)!r}: {reason(error)}.") from None


def delimiter_of(header: str, wanted: set[str]) -> str:
    """Return the delimiter that gives a header the most wanted columns, then the most columns."""

    def fit(delimiter: str) -> tuple[int, int]:
        cells = next(csv.reader([header], delimiter=delimiter))
        return len({name.lower() for name in wanted} & {cell.strip().lower() for cell in cells}), len(cells)

    return max(DELIMITERS, key=fit)


class InvalidGraph(NamedTuple):
    """An invalid graph: its index in the source, its attribute `id` (else the index), and what is wrong with it."""

    graph: int
    id: int | str
    reason: str


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
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
