"""Search sparse rows by inner product, with SciPy's sparse matrices."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl.arguments import shown
from graphcl.errors import InputError, InputTypeError, reason
from graphcl.extensions.sparse.rows import SparseRows, same_encoder
from graphcl.system.arrays import id_arrays, ids_of, read_arrays
from graphcl.system.files import new_file, write_whole

LARGEST = 1e150
"""Values must be below it, so that sums of products are finite."""


@dataclass(frozen=True)
class Part:
    """Rows as a matrix of their values by column.

    Attributes:
        column: number of each column `[V]`, ascending.
        values: `scipy.sparse.csr_array [V, n]`.
        ids: id of each row, `[n]` of int64 or of Python strings.
    """

    column: np.ndarray
    values: Any
    ids: np.ndarray

    def products(self, queries: SparseRows) -> Iterator[np.ndarray]:
        """Yield the inner products `[n]` of each query with the rows."""
        asked = queries.scipy(self.column)[0]
        for first, last in itertools.pairwise(asked.indptr):
            # cut the columns of the query out first: faster than the product of two sparse matrices
            yield self.values[asked.indices[first:last]].T @ asked.data[first:last].astype(float)

    def joined(self, other: Part) -> Part:
        """Return these rows, and those of `other` below them."""
        from scipy.sparse import csr_array, hstack

        column, wide = np.concatenate([self.column, other.column]), []
        column.sort(kind="stable")  # two ascending runs, so faster than np.union1d
        column = column[np.diff(column, prepend=column[:1] - 1) != 0]
        for part in (self, other):
            ptr = np.zeros(len(column) + 1, part.values.indptr.dtype)
            ptr[np.searchsorted(column, part.column) + 1] = np.diff(part.values.indptr)
            arrays = part.values.data, part.values.indices, ptr.cumsum(dtype=ptr.dtype)
            wide.append(csr_array(arrays, shape=(len(column), len(part.ids))))
        return Part(column, hstack(wide, format="csr"), np.concatenate([self.ids, other.ids]))

    def kept(self, rows: np.ndarray) -> Part:
        """Return the rows where `rows [n]` is True, without the columns that only others have."""
        values = self.values[:, np.flatnonzero(rows)]
        used = np.flatnonzero(np.diff(values.indptr))
        return Part(self.column[used], values[used], self.ids[rows])


class SparseIndex:
    """Exact search of sparse rows by inner product, which is the cosine for rows of norm 1.

    A query reads the values of its own columns only. Additions are merged such that each part has at least twice the
    rows of the next one, so many small additions cost a query little.

    Args:
        h: rows to search, such as those of `GraphCL.sparse_rows`; None for an empty index.
        ids: id of each row, see `add`.

    Attributes:
        encoder: digest of the encoder of the rows, None if unknown. Rows of another encoder are refused.

    Example:
        >>> h = SparseRows(torch.tensor([0, 2, 4]), torch.tensor([3, 8, 3, 9]), torch.tensor([0.6, 0.8, 0.8, 0.6]))
        >>> index = SparseIndex(h, ids=["a", "b"])
        >>> scores, ids = index.search(h, k=2)
        >>> ids.tolist()
        [['a', 'b'], ['b', 'a']]
    """

    def __init__(self, h: SparseRows | None = None, ids: Iterable[int] | Iterable[str] | None = None) -> None:
        self.encoder: str | None = None
        self._parts: list[Part] = []
        self._names: set[int | str] = set()
        self._saved: tuple[Path, tuple[int, ...]] | None = None
        if h is not None:
            self.add(h, ids)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._names)

    @property
    def ids(self) -> np.ndarray:
        """Return the id of each row, `[n]` of int64 or of Python strings."""
        return np.concatenate([part.ids for part in self._parts]) if self._parts else np.zeros(0, np.int64)

    def add(self, h: SparseRows, ids: Iterable[int] | Iterable[str] | None = None) -> None:
        """Add rows.

        Args:
            h: the rows.
            ids: id of each row, all whole numbers or all strings; default: the numbers that follow the largest one.

        Raises:
            InputError: an id is in the index already or occurs twice, or the rows are of another encoder.
        """
        _check_rows(h)
        encoder = same_encoder(self.encoder, h.encoder)
        if ids is None:
            if self._parts and self._parts[0].ids.dtype == object:
                raise InputError("the ids of this index are strings; give `ids` for the rows to add.")
            first = int(self.ids.max()) + 1 if self._names else 0
            names = np.arange(first, first + len(h))
        else:
            names = _ids(ids)
        if len(names) != len(h):
            raise InputError(f"`ids` must have one id for each of {len(h)} rows, got {len(names)}.")
        if not len(h):
            return
        matrix, column = h.scipy()
        self._insert(Part(column, matrix.tocsc().T, names))
        self.encoder = encoder

    def _insert(self, part: Part) -> None:
        """Add a part with new ids, and merge parts."""
        if self._parts and part.ids.dtype != self._parts[0].ids.dtype:
            one, other = self._parts[0].ids[0], part.ids[0]
            raise InputError(f"ids must be all whole numbers or all strings, got {shown(one)} and {shown(other)}.")
        names = set(part.ids.tolist())
        if len(names) < len(part.ids):
            name, count = Counter(part.ids.tolist()).most_common(1)[0]
            raise InputError(f"id {shown(name)} occurs {count} times; ids must differ.")
        for name in names & self._names:
            raise InputError(f"id {shown(name)} is in the index already; remove it first, or give another id.")
        self._names |= names
        self._parts.append(part)
        self._merge(2)

    def _merge(self, ratio: float) -> None:
        """Merge the last parts until each has at least `ratio` times the rows of the next one."""
        while len(self._parts) > 1 and len(self._parts[-2].ids) < ratio * len(self._parts[-1].ids):
            last = self._parts.pop()
            self._parts[-1] = self._parts[-1].joined(last)

    def remove(self, ids: Iterable[int] | Iterable[str]) -> None:
        """Remove the rows with these ids.

        Raises:
            InputError: an id is not in the index.
        """
        gone = set(_ids(ids).tolist())
        for name in gone - self._names:
            raise InputError(f"id {shown(name)} is not in the index, so nothing was removed.")
        self._names -= gone
        masks = [np.array([name not in gone for name in part.ids.tolist()]) for part in self._parts]
        self._parts = [part.kept(mask) for part, mask in zip(self._parts, masks, strict=True) if mask.any()]

    def search(self, queries: SparseRows, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the k largest inner products of each query, descending, and the ids of their rows, `[queries, k]`.

        Of equal ones, the row that was added first is first.

        Args:
            queries: rows of the same encoder.
            k: number of rows.
        """
        _check_rows(queries)
        same_encoder(self.encoder, queries.encoder)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(self):
            raise InputError(f"`k` must be in 1 .. {len(self)}, the number of rows, got {shown(k)}.")
        scores, rows = np.zeros((len(queries), k)), np.zeros((len(queries), k), int)
        for one, products in enumerate(zip(*(part.products(queries) for part in self._parts), strict=True)):
            scores[one], rows[one] = _largest(np.concatenate(products), k)
        return scores, self.ids[rows]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the index to a file, atomically; `scipy.sparse.load_npz` reads the matrix of the rows from it.

        The file of an index that was loaded or saved before is replaced.

        Raises:
            InputError: another file is there, or the file changed since it was read.
        """
        path = Path(file).expanduser()
        if self._saved is None or self._saved[0] != path.resolve():
            new_file(path)
        elif path.exists() and self._saved[1] != _stamp(path):
            raise InputError(
                f"{path} changed since it was read; load it again and add the rows there, or give another."
            )
        path = path.resolve()
        self._merge(np.inf)
        part = self._parts[0] if self._parts else _empty()
        arrays = {name: getattr(part.values, name) for name in ("data", "indices", "indptr")}
        # the compressed rows of [V, n] are the compressed columns of [n, V]
        arrays |= {"format": b"csc", "shape": part.values.shape[::-1], "column": part.column, **id_arrays(part.ids)}
        write_whole(path, lambda file: np.savez(file, **arrays, encoder=self.encoder or ""))
        self._saved = path, _stamp(path)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> SparseIndex:
        """Return the index in a file of `save`, or of `graphcl embed` with sparse rows.

        Everything in the file is checked; large arrays are mapped into memory, and read where a search needs them.

        Raises:
            InputError: the file holds no index, or is corrupted.
        """
        index, path = cls(), Path(file).expanduser()
        if path.is_dir():
            raise InputError(f"{path} is a folder, as of an index of graphcl 0.1.0; build the index again in one file.")
        arrays = read_arrays(path)
        try:
            part = _part(arrays)
            if len(part.ids):
                index._insert(part)
        except Exception as error:  # the arrays may be of any kind
            raise InputError(f"{path} holds no index of sparse rows, or is corrupted: {reason(error)}") from None
        index.encoder = str(arrays.get("encoder", ""))[:64] or None
        if arrays["format"] == b"csc":  # a file of `graphcl embed` holds more, and is not replaced
            index._saved = path.resolve(), _stamp(path)
        return index


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what differs after another process wrote the file."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _empty() -> Part:
    from scipy.sparse import csr_array

    return Part(np.zeros(0, np.int64), csr_array((0, 0), dtype=np.float32), np.zeros(0, np.int64))


def _ids(values: Any) -> np.ndarray:
    """Return ids as an array of int64 or of Python strings."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputTypeError(f"ids must be a list, got {shown(values)}.")
    values = values.tolist() if isinstance(values, np.ndarray | torch.Tensor) else list(values)
    if values and all(isinstance(value, str) for value in values):
        try:
            "".join(values).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"ids must be Unicode, got {reason(error)}.") from None
        return np.array(values, object)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not -(2**63) <= value < 2**63:
            raise InputError(f"ids must be all whole numbers of 64 bits or all strings, got {shown(value)}.")
    return np.array(values, np.int64)


def _check_rows(h: object) -> None:
    """Raise InputError unless `h` are rows whose arrays fit together, with finite values."""
    if not isinstance(h, SparseRows):
        raise InputTypeError(f"rows must be SparseRows, as of `GraphCL.sparse_rows`, got {type(h).__name__}.")
    if h.column.dtype != torch.long or h.value.dtype not in (torch.float16, torch.float32, torch.float64):
        kinds = f"{h.column.dtype} and {h.value.dtype}".replace("torch.", "")
        raise InputError(f"columns must be int64, and values float16, float32 or float64, got {kinds}.")
    ptr, size = h.ptr, len(h.column)
    bounds = ptr.dim() == 1 and ptr.dtype == torch.long and len(ptr) > 0 and int(ptr[0]) == 0 and int(ptr[-1]) == size
    if not bounds or bool((ptr[1:] < ptr[:-1]).any()) or h.column.shape != h.value.shape or h.column.dim() != 1:
        raise InputError("the arrays of the rows do not fit: `ptr` must ascend from 0 to the number of values.")
    bad = int((~(h.value.abs() < LARGEST)).sum())
    if bad:
        raise InputError(f"the values of rows must be finite and below {LARGEST:.0e}, got {bad} that are not.")


def _part(arrays: dict[str, np.ndarray]) -> Part:
    """Return the rows in the arrays of a file; raise an exception for arrays that are not as `SparseIndex.save`'s."""
    from scipy.sparse import csc_array, csr_array

    kinds: dict[str, tuple[Any, ...]] = {"data": (np.float32, np.float64), "column": (np.int64,)}
    for name in ("data", "indices", "indptr", "column"):
        array, allowed = arrays[name], kinds.get(name, (np.int32, np.int64))
        _need(array.ndim == 1 and array.dtype in allowed, f"`{name}` is {list(array.shape)} of {array.dtype}")
    form, shape = arrays["format"].item(), tuple(arrays["shape"].tolist())
    _need(form in (b"csr", b"csc"), f"its format is {shown(form)}")
    _need(len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape), f"its shape is {shown(shape)}")
    major, minor = shape if form == b"csr" else shape[::-1]
    data, indices, indptr, column = (arrays[name] for name in ("data", "indices", "indptr", "column"))
    _need(len(column) == shape[1] and bool((column[1:] > column[:-1]).all()), "`column` does not ascend or fit")
    fits = len(indptr) == major + 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
    _need(bool(fits) and bool((indptr[1:] >= indptr[:-1]).all()), "`indptr` does not ascend or fit")
    _need(not len(indices) or (indices.min() >= 0 and indices.max() < minor), f"`indices` are not all in [0, {minor})")
    finite = not len(data) or (float(data.min()) > -LARGEST and float(data.max()) < LARGEST)  # NaN is neither
    _need(finite, f"`data` is not all finite and below {LARGEST:.0e}")
    ids = ids_of(arrays)
    _need(len(ids) == shape[0], f"it has {len(ids)} ids for {shape[0]} rows")
    matrix = (csr_array if form == b"csr" else csc_array)((data, indices, indptr), shape=shape)
    return Part(column, matrix.tocsc().T, ids)


def _need(valid: object, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _largest(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest of `scores`, descending, and their places, ascending where they are equal."""
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    place = np.concatenate([above[np.argsort(-scores[above], kind="stable")], equal[: k - len(above)]])
    return scores[place], place
