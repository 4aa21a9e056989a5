"""Search sparse rows by inner product with an inverted index."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.errors import InputError
from graphcl.sparse.rows import SparseRows

PARTS = np.array([0.5, 2.0, 8.0])
"""A search looks whether it can skip columns after it has read so many values for each row."""
ROUNDING = 1e-9
"""Rows whose bound misses the k-th best score by less are not skipped."""
ARRAYS = ("column", "start", "row", "value", "largest")
"""Files of a segment, NAME.npy."""


@dataclass(frozen=True)
class Segment:
    """The values of some rows, sorted by column, in memory or in a file; none is negative.

    Attributes:
        column: number of each column `[V]`, ascending.
        start: boundaries of the columns in `row` and `value`, `[V + 1]`.
        row: row of each value `[M]`, ascending within a column.
        value: the values `[M]`.
        largest: largest value of each column `[V]`.
        rows: number of rows.
        place: folder of the files; None in memory.
    """

    column: np.ndarray
    start: np.ndarray
    row: np.ndarray
    value: np.ndarray
    largest: np.ndarray
    rows: int
    place: Path | None = None

    @classmethod
    def of(cls, h: SparseRows) -> Segment:
        """Return the segment of `h`."""
        matrix, column = h.scipy()
        matrix = matrix.tocsc()
        largest = np.maximum.reduceat(matrix.data, matrix.indptr[:-1]) if len(column) else matrix.data
        return cls(column, matrix.indptr, matrix.indices, matrix.data, largest, len(h))

    def best(self, queries: SparseRows, k: int, least: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return scores and rows of each query: all with a score above `least [queries]`, or at least the k best."""
        from scipy.sparse import csr_array

        asked, _ = queries.scipy(self.column)
        postings = csr_array((self.value, self.row, self.start), shape=(len(self.column), self.rows), copy=False)
        bounds = zip(asked.indptr[:-1], asked.indptr[1:], strict=True)
        return [
            self._best(
                postings, asked.indices[first:last], asked.data[first:last].astype(float), min(k, self.rows), one
            )
            for (first, last), one in zip(bounds, least, strict=True)
        ]

    def _best(self, postings: Any, column: np.ndarray, weight: np.ndarray, k: int, least: float) -> tuple[Any, Any]:
        """Return scores and rows of one query, see `best`.

        Columns are added from the rarest to the most frequent one. As soon as the remaining columns cannot bring a row
        that has not enough so far among the best (MaxScore, Turtle and Flood 1995), they are looked up for the
        others only.
        """
        size = self.start[column + 1] - self.start[column]
        order = np.argsort(size, kind="stable")
        column, weight, size = column[order], weight[order], np.cumsum(size[order])
        rest = np.append(np.cumsum((weight * self.largest[column])[::-1])[::-1], 0.0)
        scores, done = np.zeros(self.rows), 0
        for limit in (*(self.rows * PARTS), np.inf):
            to = np.searchsorted(size, limit, "right")
            # rows of `postings` are copied as a whole, and only those of the query are read from the file
            scores += postings[column[done:to]].T @ weight[done:to]
            done = to
            enough = max(least, np.partition(scores, -k)[-k])
            if rest[done] < enough:
                break
        found = np.flatnonzero(scores >= enough - rest[done] - ROUNDING)
        scores = scores[found]
        for each, factor in zip(column[done:], weight[done:], strict=True):
            some = slice(self.start[each], self.start[each + 1])
            place = np.minimum(np.searchsorted(self.row[some], found), some.stop - some.start - 1)
            scores += np.where(self.row[some][place] == found, factor * self.value[some][place], 0.0)
        return scores, found


class SparseIndex:
    """Exact search of sparse rows by inner product, which is the cosine for rows of norm 1.

    The index holds the rows sorted by column, so a query reads only the values of its own columns.

    Args:
        h: rows to search, such as those of `WLSparse`; None for an empty index.

    Example:
        >>> import torch
        >>> h = SparseRows(torch.tensor([0, 2, 4]), torch.tensor([3, 8, 3, 9]), torch.tensor([0.6, 0.8, 0.8, 0.6]))
        >>> scores, rows = SparseIndex(h).search(h, k=2)
        >>> rows.tolist()
        [[0, 1], [1, 0]]
    """

    def __init__(self, h: SparseRows | None = None) -> None:
        self._segments: list[Segment] = []
        if h is not None:
            self.add(h)

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(each.rows for each in self._segments)

    def add(self, h: SparseRows) -> None:
        """Add rows; their numbers follow those of the index. Rows that are there already are not sorted again."""
        self._segments.append(Segment.of(h))

    def search(self, queries: SparseRows, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the k largest inner products of each query, descending, and their rows, both `[queries, k]`.

        Of equal ones, the row with the smaller number is first.

        Args:
            queries: rows with the same columns.
            k: number of results, at most the number of rows.

        Raises:
            InputError: `k` is below 1 or above the number of rows.
        """
        if not 1 <= k <= len(self):
            raise InputError(f"`k` must be in 1 .. {len(self)}, the number of rows, got {k}.")
        scores, rows = np.full((len(queries), k), -np.inf), np.full((len(queries), k), -1)
        first = 0
        for segment in self._segments:
            for one, (more, at) in enumerate(segment.best(queries, k, scores[:, -1])):
                of, number = np.concatenate([scores[one], more]), np.concatenate([rows[one], at + first])
                scores[one], place = _largest(of, k)
                rows[one] = number[place]
            first += segment.rows
        return scores, rows

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a folder, as `.npy` files.

        Rows that were saved to or loaded from this folder are not written again, so saving costs as much as the rows
        added since.

        Raises:
            InputError: the folder holds other rows.
        """
        for number, segment in enumerate(self._segments):
            place = Path(folder) / f"{number:06d}-{segment.rows}"
            if segment.place == place.resolve():
                continue
            if any(Path(folder).glob(f"{number:06d}-*")):
                raise InputError(f"{folder} holds another index; pass a new folder.")
            place.mkdir(parents=True)
            for name in ARRAYS:
                np.save(place / f"{name}.npy", getattr(segment, name))
            self._segments[number] = replace(segment, place=place.resolve())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> SparseIndex:
        """Return the index in a folder; its files are mapped into memory, and read where a search needs them.

        Raises:
            InputError: the folder holds no index, or a file is missing or corrupted.
        """
        index, places = cls(), sorted(Path(folder).glob("[0-9]*-[0-9]*"))
        if not places:
            raise InputError(f"{folder} holds no index; write one with SparseIndex.save.")
        for place in places:
            arrays = {name: _mapped(place / f"{name}.npy") for name in ARRAYS}
            index._segments.append(Segment(**arrays, rows=int(place.name.split("-")[1]), place=place.resolve()))
        return index


def _mapped(file: Path) -> Any:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None


def _largest(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest of `scores`, descending, and their places, ascending where they are equal."""
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    place = np.concatenate([above[np.argsort(-scores[above], kind="stable")], equal[: k - len(above)]])
    return scores[place], place
