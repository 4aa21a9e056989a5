"""Count the patterns of graphs, and hold embeddings as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcl.errors import InputError
from graphcl.graphs.segment import group, nonzero, pointers, ranges
from graphcl.graphs.wl import GOLDEN, mix
from graphcl.models.contrastive import Embeddings


@dataclass(frozen=True)
class Patterns:
    """The patterns of a batch of B graphs, sorted by graph and colour; R in total.

    A pattern is a WL colour of a graph: a neighbourhood up to a depth. A row of ones is the histogram of one graph.

    Attributes:
        ptr: boundaries of the graphs `[B + 1]`.
        colour: colour of each pattern `[R]`.
        count: number of the graph's nodes with this colour `[R]`.
        depth: depth of the pattern `[R]`.
        node: one of its nodes, `[R]`.
        parent: pattern of the same node one depth below, `[R]`; R at depth 0.
    """

    ptr: Tensor
    colour: Tensor
    count: Tensor
    depth: Tensor
    node: Tensor
    parent: Tensor

    @classmethod
    def of(cls, colours: Tensor, batch: Tensor, size: int) -> Patterns:
        """Return the patterns of `size` graphs from their nodes' colours `[D + 1, N]` and the graph of each node `[N]`.

        Example:
            >>> patterns = Patterns.of(torch.tensor([[7, 7, 5], [8, 9, 6]]), torch.tensor([0, 0, 0]), 1)
            >>> patterns.colour.tolist(), patterns.count.tolist(), patterns.parent.tolist()
            ([5, 6, 7, 8, 9], [1, 1, 2, 1, 1], [5, 0, 5, 2, 2])
        """
        flat, nodes = colours.flatten(), colours.size(1)
        by_value = flat.argsort()
        order, _ = group(batch.repeat(colours.size(0))[by_value], size, by_value)
        colour, graph = flat[order], batch[order % nodes] if nodes else batch
        new = torch.ones_like(colour, dtype=torch.bool)
        new[1:] = (colour[1:] != colour[:-1]) | (graph[1:] != graph[:-1])
        start = nonzero(new)
        count = torch.diff(start, append=start.new_tensor([len(colour)]))
        one, graph = order[start], graph[start]
        of = torch.full((nodes + len(flat),), len(start), device=flat.device)  # "depth -1" has no patterns
        of[order + nodes] = new.cumsum(0) - 1
        ptr = pointers(torch.bincount(graph, minlength=size))
        return cls(ptr, colour[start], count, one // max(nodes, 1), one % max(nodes, 1), of[one])


def unary(count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pattern `[M]` and the number t `[M]` of each column "at least t times" of the unary expansion.

    Example:
        >>> unary(torch.tensor([2, 1]))
        (tensor([0, 0, 1]), tensor([1, 2, 1]))
    """
    return torch.arange(len(count), device=count.device).repeat_interleave(count), ranges(torch.ones_like(count), count)


def column_ids(colour: Tensor, times: Tensor) -> Tensor:
    """Return the 64-bit number of the column "`colour` occurs at least `times` times"; for 1, it is the colour."""
    return torch.where(times == 1, colour, mix(colour + times * GOLDEN))


def frequencies(batches: Iterable[tuple[Tensor, ...]], least: int) -> tuple[Tensor, Tensor]:
    """Return the colours that occur in at least `least` groups, ascending, and the number of groups of each.

    Memory: 16 bytes for each pattern of each group.

    Args:
        batches: colours `[D + 1, N]` of nodes and the group of each node `[N]`; a group may be in several batches.
        least: least number of groups.

    Example:
        >>> frequencies([(torch.tensor([[5, 7, 5, 5]]), torch.tensor([0, 0, 0, 1]))], least=2)
        (tensor([5]), tensor([2]))
    """
    pairs = [_distinct(torch.stack([colours.flatten(), of_node.repeat(len(colours))])) for colours, of_node in batches]
    colour, count = _distinct(torch.cat(pairs, 1))[0].unique_consecutive(return_counts=True)
    return colour[count >= least], count[count >= least]


def _distinct(pairs: Tensor) -> Tensor:
    """Return the distinct columns of `pairs [2, M]`, sorted by the first row."""
    pairs = pairs[:, pairs[1].argsort()]
    pairs = pairs[:, pairs[0].argsort(stable=True)]
    new = torch.ones_like(pairs[0], dtype=torch.bool)
    new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(0)
    return pairs[:, new]


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
