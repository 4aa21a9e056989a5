"""Read tables of Parquet and Excel files, and the frames of pandas, polars and pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from graphcl.errors import InputError, reason
from graphcl.system.files import check_regular
from graphcl.system.optional import optional

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""Delimiters of a .csv file."""


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
    check_regular(path)
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
