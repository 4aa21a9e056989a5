"""Read vectors, the targets of pairs: a matrix, or a .npy, .npz or .parquet file of rows by id."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcl.datasets.dataset import GraphDataset
from graphcl.datasets.sources import Request, Source
from graphcl.datasets.tables import frame, read_frame
from graphcl.errors import InputError, reason
from graphcl.registry import sources
from graphcl.system.arrays import ids_of, read_arrays

_EMBEDDING = re.compile(r"h\d+").fullmatch
"""Function that finds the columns of embeddings in a table of `graphcl embed`."""


class VectorDataset(GraphDataset):
    """Vectors, each a graph of one node whose `x` is the vector, so that they are batched and encoded as graphs are.

    NaN in `x` is a missing cell.
    """

    @classmethod
    def of(cls, rows: np.ndarray, ids: Sequence[Any] | None = None, name: str = "vectors") -> VectorDataset:
        """Return the data set of vectors `[n, F]`, with the id of each; default: its index.

        Raises:
            InputError: the vectors are not a matrix of numbers, a row has no number, or a number is infinite in
                float32.
        """
        if rows.ndim != 2 or rows.dtype.kind not in "fiub" or not rows.size:
            raise InputError(f"{name} must hold numbers [n, d], a row per vector, got {list(rows.shape)} {rows.dtype}.")
        with np.errstate(over="ignore"):
            x = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
        for wrong, text in (
            (x.isinf().any(1), "infinity or a number above 3e38; write NaN if it is missing"),
            (x.isnan().all(1), "no number; leave it out, also of the pairs"),
        ):
            for row in wrong.nonzero()[:1]:
                raise InputError(f"row {int(row)} of {name} has {text}.")
        starts = torch.arange(len(x) + 1)
        data, slices = Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.long)), {"x": starts}
        slices["edge_index"] = torch.zeros_like(starts)
        if ids is not None:
            if len(ids) != len(x):
                raise InputError(f"{name} has {len(x)} rows, but {len(ids)} ids; give one to each.")
            data.id, slices["id"] = list(ids), starts
        return cls(data, slices, name, "labels")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} vectors of {self.num_features} numbers)"


@sources.register("vectors", takes="vectors (.npy, .npz, .parquet), as targets of pairs")
class Vectors(Source):
    """Matrix or list of vectors, or `{"h": matrix, "id": ids}`; or a file of one, such as `graphcl embed` writes.

    In a .npz file, the matrix is `h`, or the only one; in a .parquet file, it is the columns `h0`, `h1`, ..., else all
    but `id`, or one column of lists. A square matrix in Python is vectors where targets are wanted, else a graph.
    """

    place = 40
    suffixes = (".npy", ".npz", ".parquet")

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether `source` holds vectors; a .parquet file does if no column but `id` holds texts."""
        if isinstance(source, Path):
            return super().claims(source, request) and (source.suffix.lower() != ".parquet" or _holds_numbers(source))
        if isinstance(source, Mapping):
            return "h" in source
        first = source[0] if isinstance(source, list | tuple) and source else None
        rows = isinstance(first, Number | list | tuple) or getattr(first, "ndim", 2) == 1  # one vector, or several
        return request.role == "target" and (rows or (getattr(source, "ndim", 0) == 2 and hasattr(source, "dtype")))

    def usual_of_targets(self, source: Any) -> dict[str, Any]:
        """Return the settings of two towers, that of the targets for vectors."""
        return {"towers": "separate", "target_encoder": "perceptron"}

    def read(self, source: Any, request: Request) -> object:
        """Return the vectors."""
        if isinstance(source, Path):
            return VectorDataset.of(*_read(source), source.stem)
        rows, ids = (source["h"], source.get("id")) if isinstance(source, Mapping) else (source, None)
        if isinstance(rows, Tensor):
            rows = rows.detach().cpu().numpy()
        rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
        rows = rows[None] if isinstance(source, list | tuple) and rows.ndim == 1 else rows
        return VectorDataset.of(rows, None if ids is None else np.asarray(ids).tolist())


def _holds_numbers(path: Path) -> bool:
    """Return whether all columns but `id` of a Parquet file hold numbers or lists of numbers."""
    if find_spec("pyarrow") is None:
        return False
    from pyarrow import parquet, types

    schema: Any = ()
    with contextlib.suppress(OSError, ValueError):  # of a damaged file, which its reader explains
        schema = parquet.read_schema(path)
    kinds = [getattr(field.type, "value_type", field.type) for field in schema if field.name != "id"]
    return bool(kinds) and all(types.is_floating(kind) or types.is_integer(kind) for kind in kinds)


def _read(path: Path) -> tuple[np.ndarray, Sequence[Any] | None]:
    """Return the matrix in a file, and the ids of its rows if it has them."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        table = read_frame(path)
        named = frame(table)
        assert named is not None
        names = list(filter(_EMBEDDING, named[0])) or [name for name in named[0] if name != "id"]
        columns = [np.asarray(table[name]) for name in names]
        rows = np.stack(columns[0]) if columns[0].dtype == object else np.stack(columns, axis=1)  # type: ignore[call-overload]
        return rows, table["id"].to_pylist() if "id" in named[0] else None
    if kind == ".npz":
        arrays = read_arrays(path)
        names = ["h"] if "h" in arrays else [name for name, values in arrays.items() if values.ndim == 2]
        if len(names) != 1:
            raise InputError(f"{path} holds {len(names)} matrices; name the one of the vectors `h`.")
        ids = arrays.get("id")
        if ids is None and "id.text" in arrays:
            ids = ids_of(arrays)
        return arrays[names[0]], None if ids is None else ids.tolist()
    try:
        return np.load(path, allow_pickle=False), None
    except Exception as error:  # a damaged file can raise any exception
        why = reason(error).partition(" If you trust")[0].rstrip(".")  # never advise to unpickle
        raise InputError(f"cannot read {str(path)!r}: {why}.") from None
