"""Name the rows of a table that hold no valid molecule."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from graphcl.system.files import write_text


class InvalidRow(NamedTuple):
    """A row of a table that holds no valid molecule: its index, its line in the file (else None), and its text."""

    id: int
    line: int | None
    smiles: str


def write_invalid(rows: Iterable[InvalidRow], path: Path) -> str:
    """Write rows, if there are any, to a CSV file with the columns of `InvalidRow`, and return a status."""
    if not (rows := list(rows)):
        return ""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([InvalidRow._fields, *rows])
    write_text(path, text.getvalue())
    return f"; invalid rows: {len(rows)}, in {path}"
