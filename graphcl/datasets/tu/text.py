"""Read the text files of a TU set; a message about a wrong file names the file and the line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from graphcl.errors import InputError, one_line, warn

_NUMBERS_GO = {"graph_labels": "graph_attributes", "node_labels": "node_attributes", "edge_labels": "edge_attributes"}
"""File of labels -> file for numbers that are not labels."""
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*").fullmatch
_FRACTION = re.compile(r".*,0\d+\s*").fullmatch


class TextFile:
    """Text file of a TU set: one line for each node, edge or graph, with values separated by commas.

    Args:
        folder: folder of the file.
        prefix: name of the file before `_PART.txt`.
        name: name of the data set, for messages.
        part: what the file holds, such as `node_labels`.

    Raises:
        InputError: the file is missing, or is not UTF-8 text.
    """

    def __init__(self, folder: Path, prefix: str, name: str, part: str) -> None:
        path, self.part, self.name = folder / f"{prefix}_{part}.txt", part, f"{name}_{part}.txt"
        if not path.is_file():
            raise InputError(f"file {self.name} not found.")
        content = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.refuse(content[: error.start].count(b"\n"), "not UTF-8 text; save the file as UTF-8")
        self.lines = text.split("\n") if text else []

    def refuse(self, row: int, rule: str) -> NoReturn:
        """Raise InputError about line `row`, counted from 0."""
        raise InputError(f"{self.name} line {row + 1}: {rule}.")

    def check_length(self, wanted: int, unit: str) -> None:
        """Raise InputError unless the file has `wanted` lines, one for each `unit`."""
        if len(self.lines) != wanted:
            raise InputError(f"{self.name} has {len(self.lines)} lines for {wanted} {unit}; write one line for each.")

    def check_decimals(self) -> None:
        """Refuse decimal commas, or warn of them where two columns of whole numbers look the same."""
        if not all(map(_DECIMAL_COMMA, self.lines)):
            return
        for row, line in enumerate(self.lines):
            if _FRACTION(line):
                self.refuse(row, f"{_quoted(line)} has a decimal comma; write a decimal point")
        if self.lines and not all(cell.strip("-+ ") in ("0", "1") for line in self.lines for cell in line.split(",")):
            advice = "if they are one number with a decimal comma, write a decimal point"
            warn(f"{self.name}: every line, such as {_quoted(self.lines[0])}, is read as two whole numbers; {advice}")

    def numbers(self) -> NDArray[np.float64]:
        """Return numbers `[lines, columns]`; some may be NaN."""
        if (found := self._load(np.float64)) is None:
            self._refuse_first(self._columns(), "a number", lambda cell: _number(cell) is not None)
        return found

    def integers(self, columns: int) -> NDArray[np.int64]:
        """Return whole numbers `[lines, columns]`."""
        if (found := self._integers()) is None or (self.lines and found.shape[1] != columns):
            self._refuse_first(columns, "a whole number", _is_whole)
        return found.reshape(-1, columns)

    def labels(self) -> NDArray[np.int64]:
        """Return labels `[lines, columns]`; strings are numbered from 0, in each column in alphabetical order."""
        if (found := self._integers()) is not None:
            return found
        self._check(self._columns(), "a label", str.strip)
        columns = zip(*(line.split(",") for line in self.lines), strict=True)
        return np.stack([self._numbered(list(map(str.strip, column))) for column in columns], axis=1)

    def _numbered(self, column: Sequence[str]) -> NDArray[np.int64]:
        """Return a column of labels as whole numbers; raise InputError if only some are, or if one is a fraction."""
        values = [_number(cell) for cell in column]
        if all(value is None for value in values):
            return np.unique(np.array(column, object), return_inverse=True)[1].astype(np.int64)
        for row, (cell, value) in enumerate(zip(column, values, strict=True)):
            if value is None:
                self.refuse(row, f"{_quoted(cell)} is a string, but other labels are numbers; use one kind")
            if not _is_whole(cell):
                other = self.name.replace(self.part, _NUMBERS_GO[self.part])
                rule = "a label must be a whole number or a string"
                self.refuse(row, f"{rule}, got {_quoted(cell)}; other numbers belong in {other}")
        return np.array(values, np.int64)

    def _integers(self) -> NDArray[np.int64] | None:
        """Return all values as whole numbers, which may be written as 1.0; None if one is not."""
        if (found := self._load(np.int64)) is not None:
            return found
        floats = self._load(np.float64)
        whole = floats is not None and ((abs(floats) < 2**53) & (floats == np.trunc(floats))).all()
        return floats.astype(np.int64) if floats is not None and whole else None

    def _load(self, kind: type[Any]) -> NDArray[Any] | None:
        """Return the values as numbers of type `kind`, `[lines, columns]`; None if there are other values."""
        if not self.lines:
            return np.empty((0, 1), kind)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # else NumPy 1 reads 1.5 as 1
                found: NDArray[Any] = np.loadtxt(self.lines, kind, delimiter=",", comments=None, ndmin=2)
        except (ValueError, Warning):
            return None
        return found if len(found) == len(self.lines) else None  # NumPy skips blank lines

    def _columns(self) -> int:
        return self.lines[0].count(",") + 1

    def _check(self, columns: int, what: str, valid: Callable[[str], object]) -> None:
        """Raise InputError about the first line that is blank, has not `columns` values, or holds an invalid value."""
        for row, line in enumerate(self.lines):
            cells = line.split(",")
            if not line.strip():
                self.refuse(row, "the line is blank; remove it, or write its values")
            if len(cells) != columns:
                self.refuse(
                    row, f"expected {columns} value{'s' * (columns > 1)} separated by commas, got {_quoted(line)}"
                )
            for cell in cells:
                if not valid(cell):
                    self.refuse(row, f"{_quoted(cell)} is not {what}")

    def _refuse_first(self, columns: int, what: str, valid: Callable[[str], object]) -> NoReturn:
        self._check(columns, what, valid)
        raise InputError(f"{self.name} cannot be read as numbers separated by commas.")


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    value = _number(cell)
    return value is not None and abs(value) < 2**53 and value == int(value)


def _quoted(text: str) -> str:
    return one_line(repr(text.strip()), 60)
