"""Hold embeddings as sparse rows, and search them by inner product, with SciPy's sparse matrices."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.arguments import shown
from graphcl.errors import InputError, InputTypeError, reason
from graphcl.graphs.segment import pointers, ranges
from graphcl.models.contrastive import Embeddings
from graphcl.system.arrays import id_arrays, ids_of, read_arrays
from graphcl.system.files import new_file, write_whole


@dataclass(frozen=True)
class SparseRows(Embeddings):
    """Sparse embeddings of B graphs: M values in 2^64 possible columns.

    Attributes:
        ptr: boundaries of the rows `[B + 1]`.
        column: number of each value's column `[M]`, any 64-bit integers, different within a row.
        value: the values `[M]`.
        encoder: digest of the encoder, see `WLSparse.digest`; None if unknown. Rows of two encoders are not compared.
    """

    form = "sparse"
    ptr: Tensor
    column: Tensor
    value: Tensor
    encoder: str | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ptr) - 1

    def __getitem__(self, some: Any) -> SparseRows:
        """Return the rows of a slice, a number, several numbers or a mask, as for an array."""
        some = some.cpu().numpy() if isinstance(some, Tensor) else some
        rows = torch.from_numpy(np.atleast_1d(np.arange(len(self))[some])).to(self.ptr.device)
        counts = self.ptr.diff()[rows]
        at = ranges(self.ptr[rows], counts)
        return SparseRows(pointers(counts), self.column[at], self.value[at], self.encoder)

    @classmethod
    def empty(cls, size: int) -> SparseRows:
        """Return rows of zeros."""
        return cls(torch.zeros(size + 1, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0))

    def spread(self, places: Sequence[int] | np.ndarray, size: int) -> SparseRows:
        """Return `size` rows, of which those at `places` are these, in this order, and the others are zeros."""
        counts = self.ptr.new_zeros(size)
        counts[list(places)] = self.ptr.diff()
        return SparseRows(pointers(counts), self.column, self.value, self.encoder)

    def cpu(self) -> SparseRows:
        """Return the rows on the CPU, without gradients."""
        return SparseRows(self.ptr.cpu(), self.column.cpu(), self.value.detach().cpu(), self.encoder)

    def finite(self) -> Tensor:
        """Return whether all values of each row are finite, `[B]`."""
        bad = self.row()[~self.value.isfinite()]
        return torch.ones(len(self), dtype=torch.bool, device=bad.device).index_fill(0, bad, False)

    def matrix(self) -> Any:
        """Return a `scipy.sparse.csr_array`."""
        return self.scipy()[0]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the values as `h`, and `column` and `ptr`, which do not depend on the weights."""
        return {"h": self.value.numpy(), "column": self.column.numpy(), "ptr": self.ptr.numpy()}

    def npz(self) -> dict[str, Any]:
        """Return the arrays for `scipy.sparse.load_npz`, the number `column` of each column, and the digest."""
        matrix, column = self.scipy()
        parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
        return {**parts, "format": b"csr", "column": column, "encoder": self.encoder or ""}

    def arrow(self) -> dict[str, Any]:
        """Return lists: `indices`, the 64-bit numbers of the columns, and `values`."""
        from pyarrow import LargeListArray

        lists = {"indices": self.column, "values": self.value}
        return {name: LargeListArray.from_arrays(self.ptr.numpy(), values.numpy()) for name, values in lists.items()}

    def row(self) -> Tensor:
        """Return the row of each value `[M]`."""
        return torch.arange(len(self), device=self.ptr.device).repeat_interleave(self.ptr.diff())

    def scipy(self, columns: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
        """Return the rows as a `scipy.sparse.csr_array` and the number of each of its columns, ascending.

        Args:
            columns: columns to keep, ascending; default: those of the rows.
        """
        from scipy.sparse import csr_array

        ids, value, ptr = (array.detach().cpu().numpy() for array in (self.column, self.value, self.ptr))
        if columns is None:
            columns, place = np.unique(ids, return_inverse=True)
        else:
            place = np.searchsorted(columns, ids)
            kept = columns[np.minimum(place, len(columns) - 1)] == ids if len(columns) else np.zeros(len(ids), bool)
            ptr = np.concatenate([[0], np.cumsum(kept)])[ptr]
            value, place = value[kept], place[kept]
        small = np.int32 if max(len(value), len(columns)) < 2**31 else np.int64  # scikit-learn's solvers need 32 bits
        shape = len(self), len(columns)
        return csr_array((value, place.astype(small), ptr.astype(small)), shape=shape), columns

    @classmethod
    def cat(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Return rows one below the other."""
        encoder = same_encoder(*(part.encoder for part in parts))
        ptr = pointers(torch.cat([part.ptr.diff() for part in parts]))
        return cls(ptr, torch.cat([part.column for part in parts]), torch.cat([part.value for part in parts]), encoder)


def same_encoder(*digests: str | None) -> str | None:
    """Return the digest of rows' encoder, None if unknown; InputError for rows of different encoders."""
    different = [*dict.fromkeys(digest for digest in digests if digest is not None)]
    if len(different) > 1:
        raise InputError(
            f"these rows are of different encoders, of digests {different[0]} and {different[1]}, and cannot be "
            "compared; embed all graphs by one encoder."
        )
    return different[0] if different else None


def shared_columns(rows: SparseRows) -> Tensor:
    """Return rows of norm 1 as a dense matrix `[B, C + B]` with the same inner products.

    The first C columns are those that two rows share. What remains of a row's norm is in a column of its own.

    Example:
        >>> rows = SparseRows(torch.tensor([0, 2, 4]), torch.tensor([3, 8, 3, 9]), torch.tensor([0.6, 0.8, 0.8, 0.6]))
        >>> shared_columns(rows)
        tensor([[0.6000, 0.8000, 0.0000],
                [0.8000, 0.0000, 0.6000]])
    """
    _, inverse, count = rows.column.unique(return_inverse=True, return_counts=True)
    shared = count > 1
    place, row = (shared.cumsum(0) - 1)[inverse], rows.row()
    kept, width, size = shared[inverse], int(shared.sum()), len(rows)
    one, value = row[kept], rows.value[kept]
    alone = rows.value.new_zeros(size).index_add(0, row[~kept], rows.value[~kept].square())
    dense = rows.value.new_zeros(size, width).index_put((one, place[kept]), value)
    # the root has no gradient at 0, for rows without a column of their own
    rest = torch.where(alone > 0, alone, 1).sqrt() * (alone > 0)
    return torch.cat([dense, rest.diag()], 1)


class SparseIndex:
    """Exact search of sparse rows by inner product, which is the cosine for rows of norm 1.

    A query reads the values of its own columns only. An addition copies all values, so add many rows at a time.

    Args:
        h: rows to search, such as those of `GraphCL.sparse_rows`; None for an empty index.
        ids: id of each row, see `add`.

    Attributes:
        ids: id of each row, `[n]` of int64 or of Python strings.
        encoder: digest of the encoder of the rows, None if unknown. Rows of another encoder are refused.

    Example:
        >>> h = SparseRows(torch.tensor([0, 2, 4]), torch.tensor([3, 8, 3, 9]), torch.tensor([0.6, 0.8, 0.8, 0.6]))
        >>> index = SparseIndex(h, ids=["a", "b"])
        >>> scores, ids = index.search(h, k=2)
        >>> ids.tolist()
        [['a', 'b'], ['b', 'a']]
    """

    def __init__(self, h: SparseRows | None = None, ids: Iterable[int] | Iterable[str] | None = None) -> None:
        from scipy.sparse import csr_array

        self.encoder: str | None = None
        self.ids = np.zeros(0, np.int64)
        self._column = np.zeros(0, np.int64)  # number of each column [V], ascending
        self._values = csr_array((0, 0), dtype=np.float32)  # [V, n]
        self._file: Path | None = None
        if h is not None:
            self.add(h, ids)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def add(self, h: SparseRows, ids: Iterable[int] | Iterable[str] | None = None) -> None:
        """Add rows.

        Args:
            h: the rows.
            ids: id of each row, all whole numbers or all strings; default: the numbers that follow the largest one.

        Raises:
            InputError: an id is in the index already or occurs twice, or the rows are of another encoder.
        """
        from scipy.sparse import csr_array, hstack

        encoder = self._encoder_with(h)
        if ids is None and self.ids.dtype == object:
            raise InputError("the ids of this index are strings; give `ids` for the rows to add.")
        first = int(self.ids.max()) + 1 if len(self) and ids is None else 0
        names = np.arange(first, first + len(h)) if ids is None else _ids(ids)
        if len(names) != len(h):
            raise InputError(f"`ids` must have one id for each of {len(h)} rows, got {len(names)}.")
        if not len(h):
            return
        if len(self) and names.dtype != self.ids.dtype:
            raise InputError(
                f"ids must be all whole numbers or all strings, got {shown(self.ids[0])} and {shown(names[0])}."
            )
        joined = np.concatenate([self.ids, names])
        name, count = Counter(joined.tolist()).most_common(1)[0]
        if count > 1:
            raise InputError(f"id {shown(name)} occurs {count} times; give another id, or remove the old row first.")
        column, before = np.union1d(self._column, h.column.cpu().numpy()), self._values
        ptr = np.zeros(len(column) + 1, before.indptr.dtype)
        ptr[np.searchsorted(column, self._column) + 1] = np.diff(before.indptr)
        arrays = before.data, before.indices, ptr.cumsum(dtype=ptr.dtype)
        wider = csr_array(arrays, shape=(len(column), len(self)))
        self._values = hstack([wider, h.scipy(column)[0].tocsc().T], format="csr")
        self._column, self.ids, self.encoder = column, joined, encoder

    def _encoder_with(self, h: SparseRows) -> str | None:
        """Return the digest of the encoder of all rows; raise InputError unless `h` are rows of the same one."""
        if not isinstance(h, SparseRows):
            raise InputTypeError(f"rows must be SparseRows, as of `GraphCL.sparse_rows`, got {type(h).__name__}.")
        return same_encoder(self.encoder, h.encoder)

    def remove(self, ids: Iterable[int] | Iterable[str]) -> None:
        """Remove the rows with these ids.

        Raises:
            InputError: an id is not in the index.
        """
        gone = set(_ids(ids).tolist())
        for name in gone.difference(self.ids.tolist()):
            raise InputError(f"id {shown(name)} is not in the index, so nothing was removed.")
        kept = np.array([row for row, name in enumerate(self.ids.tolist()) if name not in gone], int)
        values = self._values[:, kept]
        used = np.flatnonzero(np.diff(values.indptr))
        self._column, self._values, self.ids = self._column[used], values[used], self.ids[kept]

    def search(self, queries: SparseRows, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Return the k largest inner products of each query, descending, and the ids of their rows, `[queries, k]`.

        Of equal ones, the row that was added first is first.

        Args:
            queries: rows of the same encoder.
            k: number of rows.
        """
        self._encoder_with(queries)
        if not 1 <= k <= len(self):
            raise InputError(f"`k` must be in 1 .. {len(self)}, the number of rows, got {shown(k)}.")
        scores, rows = np.zeros((len(queries), k)), np.zeros((len(queries), k), int)
        asked = queries.scipy(self._column)[0]
        for query, (first, last) in enumerate(itertools.pairwise(asked.indptr)):
            # cut the columns of the query out first: faster than the product of two sparse matrices
            products = self._values[asked.indices[first:last]].T @ asked.data[first:last].astype(float)
            scores[query], rows[query] = _largest(products, k)
        return scores, self.ids[rows]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the index to a file, atomically; `scipy.sparse.load_npz` reads the matrix of the rows from it.

        The file of an index that was loaded or saved before is replaced.

        Raises:
            InputError: another file is there.
        """
        path = Path(file).expanduser()
        if path.resolve() != self._file:
            new_file(path)
        arrays = {name: getattr(self._values, name) for name in ("data", "indices", "indptr")}
        # the compressed rows of [V, n] are the compressed columns of [n, V]
        arrays |= {"format": b"csc", "shape": self._values.shape[::-1], "column": self._column, **id_arrays(self.ids)}
        write_whole(path.resolve(), lambda file: np.savez(file, **arrays, encoder=self.encoder or ""))
        self._file = path.resolve()

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> SparseIndex:
        """Return the index in a file of `save`, or of `graphcl embed` with sparse rows.

        Large arrays are mapped into memory, and read where a search needs them.

        Raises:
            InputError: the file holds no index, or is corrupted.
        """
        from scipy.sparse import csc_array, csr_array

        index, path = cls(), Path(file).expanduser()
        arrays = read_arrays(path)
        try:
            kind = {b"csr": csr_array, b"csc": csc_array}[arrays["format"].item()]
            shape = tuple(arrays["shape"].tolist())
            matrix = kind(tuple(arrays[name] for name in ("data", "indices", "indptr")), shape=shape)
            matrix.check_format(full_check=True)
            index._column, index.ids = column, ids = arrays["column"], ids_of(arrays)
            ascend = (column[1:] > column[:-1]).all() and (matrix.indptr[1:] >= matrix.indptr[:-1]).all()
            if matrix.shape != (len(ids), len(column)) or not ascend:
                raise ValueError("its arrays do not fit")
            index._values = matrix.tocsc().T
        except Exception as error:  # the arrays may be of any kind
            raise InputError(f"{path} holds no index of sparse rows, or is corrupted: {reason(error)}") from None
        index.encoder = str(arrays.get("encoder", ""))[:64] or None
        if kind is csc_array:  # a file of `graphcl embed` holds more, and is not replaced
            index._file = path.resolve()
        return index


def _ids(values: Any) -> np.ndarray:
    """Return ids as an array of int64 or of Python strings."""
    values = values.tolist() if isinstance(values, np.ndarray | torch.Tensor) else list(values)
    kind = str if values and isinstance(values[0], str) else int
    for value in values:
        if not isinstance(value, kind | np.integer):
            raise InputError(f"ids must be all whole numbers or all strings, got {shown(value)}.")
    return np.array(values, object if kind is str else np.int64)


def _largest(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest of `scores`, descending, and their places, ascending where they are equal."""
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    place = np.concatenate([above[np.argsort(-scores[above], kind="stable")], equal[: k - len(above)]])
    return scores[place], place
