"""Search sparse rows by inner product with an inverted index."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphcl.errors import InputError
from graphcl.sparse.rows import SparseRows

ARRAYS = ("column", "start", "row", "value")
"""Files of a segment, NAME.npy."""


@dataclass(frozen=True)
class Segment:
    """The values of some rows, sorted by column, in memory or in a file.

    Attributes:
        column: number of each column `[V]`, ascending.
        start: boundaries of the columns in `row` and `value`, `[V + 1]`.
        row: row of each value `[M]`, ascending within a column.
        value: the values `[M]`.
        rows: number of rows.
    """

    column: np.ndarray
    start: np.ndarray
    row: np.ndarray
    value: np.ndarray
    rows: int

    @classmethod
    def of(cls, h: SparseRows) -> Segment:
        """Return the segment of `h`."""
        matrix, column = h.scipy()
        matrix = matrix.tocsc()
        return cls(column, matrix.indptr, matrix.indices, matrix.data, len(h))

    def scores(self, queries: SparseRows) -> np.ndarray:
        """Return the inner products of queries and rows, `[queries, rows]`, in float64."""
        from scipy.sparse import csr_array

        asked, _ = queries.scipy(self.column)
        postings = csr_array((self.value, self.row, self.start), shape=(len(self.column), self.rows), copy=False)
        found = np.empty((len(queries), self.rows))
        for at, (first, last) in enumerate(zip(asked.indptr[:-1], asked.indptr[1:], strict=True)):
            # rows of `postings` are copied as a whole, and only those of the query are read from the file
            found[at] = postings[asked.indices[first:last]].T @ asked.data[first:last].astype(float)
        return found


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

    def search(self, queries: SparseRows, k: int = 10, block: int = 64) -> tuple[np.ndarray, np.ndarray]:
        """Return the k largest inner products of each query, descending, and their rows, both `[queries, k]`.

        Of equal ones, the row with the smaller number is first.

        Args:
            queries: rows with the same columns.
            k: number of results, at most the number of rows.
            block: number of queries whose scores are held at a time.

        Raises:
            InputError: `k` is below 1 or above the number of rows.
        """
        if not 1 <= k <= len(self):
            raise InputError(f"`k` must be in 1 .. {len(self)}, the number of rows, got {k}.")
        found = []
        for first in range(0, len(queries), block):
            some = queries[first : first + block]
            found += [_largest(each, k) for each in np.hstack([each.scores(some) for each in self._segments])]
        return np.array([each[0] for each in found]).reshape(-1, k), np.array([each[1] for each in found]).reshape(
            -1, k
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a new folder, as `.npy` files."""
        for number, segment in enumerate(self._segments):
            place = Path(folder) / f"{number:06d}-{segment.rows}"
            place.mkdir(parents=True)
            for name in ARRAYS:
                np.save(place / f"{name}.npy", getattr(segment, name))

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
            index._segments.append(Segment(**arrays, rows=int(place.name.split("-")[1])))
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
