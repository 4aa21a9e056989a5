"""Read Cora, CiteSeer and PubMed in the layout of Planetoid (Yang et al. 2016), with their public split.

The eight files `ind.cora.x`, `ind.cora.y`, ... are pickles of Python 2. `_Unpickler` builds only NumPy arrays of
numbers and plain containers from them, so code in a file is never run.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import coalesce

from graphcl.datasets.fetch import fetch_file, mirror_place
from graphcl.datasets.staging import staged
from graphcl.errors import InputError, reason

SERVER = "https://github.com/kimiyoung/planetoid/raw/master/data"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION = 500
"""Number of nodes in the validation part of the public split; they follow the labelled nodes."""


class _Sparse:
    """Sparse matrix in CSR format as a pickle describes it: the attributes `data`, `indices`, `indptr` and `_shape`."""

    def dense(self) -> Tensor:
        """Return the matrix as a dense float32 tensor; raise IndexError if a column is out of range."""
        state, (rows, columns) = vars(self), self._shape  # type: ignore[attr-defined]
        ptr, column, values = (torch.from_numpy(state[key]) for key in ("indptr", "indices", "data"))
        row = torch.arange(int(rows)).repeat_interleave(ptr.long().diff())
        return torch.zeros(int(rows), int(columns)).index_put_((row, column.long()), values.float(), accumulate=True)


def _latin1(text: str, encoding: str) -> bytes:
    """Return `text` as bytes, for pickles of Python 3, which hold an array as a call of `encode(text, "latin1")`."""
    return text.encode("latin1")


_ALLOWED = {
    ("_codecs", "encode"): _latin1,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("scipy.sparse.csr", "csr_matrix"): _Sparse,
    ("scipy.sparse._csr", "csr_matrix"): _Sparse,
}
"""Module and name in a pickle -> class or function that replaces it."""


class _Unpickler(pickle.Unpickler):
    """Unpickler that only creates NumPy arrays, lists, dictionaries and `_Sparse`."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class or function `name` of `module` if a Planetoid file needs it."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) not in _ALLOWED:
            raise InputError(f"it needs {module}.{name}, which no Planetoid file contains; it may hold code")
        return _ALLOWED[module, name]


def load_planetoid(
    name: str, root: Path, mirror: str | os.PathLike[str] | None = None
) -> tuple[Data, dict[str, Tensor]]:
    """Return the graph `name` and its public split, from `root/NAME/raw`, else from `mirror`, else from the server.

    As in PyG's `Planetoid`, test nodes without data (15 in CiteSeer) have features of zeros and class 0. Self-loops and
    duplicate edges are removed. Each node's features are divided by their sum, as in GRACE and DGI.

    Raises:
        InputError: a file is missing, cannot be downloaded, is damaged or holds code.

    References:
        Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016 (arXiv
        1603.08861).
    """
    files = [f"ind.{name.lower()}.{part}" for part in PARTS]
    folder = root / name / "raw"
    if not all((folder / file).is_file() for file in files):
        place = SERVER if mirror is None else mirror_place(mirror)
        if isinstance(place, Path):
            folder = place
        else:
            _download(place, name, files, root)
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise InputError(f"{folder} has no {missing[0]}; {name} needs {', '.join(files)} (public source: {SERVER}).")
    parts = {part: _read(folder / file) for part, file in zip(PARTS, files, strict=True)}
    try:
        return _assemble(parts)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        raise InputError(f"the files of {name} in {folder} do not fit together: {reason(error)}.") from None


def _download(server: str, name: str, files: list[str], root: Path) -> None:
    with staged(name, root) as staging:
        made = staging / "raw"
        made.mkdir()
        elsewhere = f"Get its files elsewhere (public source: {SERVER}) and pass their folder as `mirror` (--mirror)."
        for file in files:
            fetch_file(f"{server.rstrip('/')}/{file}", made / file, elsewhere)
        (root / name).mkdir(exist_ok=True)
        shutil.rmtree(root / name / "raw", ignore_errors=True)
        os.replace(made, root / name / "raw")


def _read(file: Path) -> Any:
    if file.name.endswith("test.index"):
        try:
            return torch.tensor([int(line) for line in file.read_text().split()])
        except ValueError as error:
            raise InputError(f"{file} must hold one node index a line: {reason(error)}.") from None
    try:
        with file.open("rb") as opened:
            return _unpickled(opened)
    except InputError as error:
        raise InputError(f"cannot read {file}: {error}.") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise any exception
        raise InputError(f"{file} is damaged, or not a file of Planetoid: {reason(error)}.") from None


def _unpickled(file: BinaryIO) -> Any:
    found = _Unpickler(file, encoding="latin1").load()
    if isinstance(found, np.ndarray) and found.dtype.kind not in "iuf":
        raise InputError(f"it holds an array of {found.dtype}, not of numbers")
    return found


def _assemble(parts: dict[str, Any]) -> tuple[Data, dict[str, Tensor]]:
    """Return the graph and its split. The test nodes are stored in the order of `test.index`, which is not sorted."""
    index, labelled = parts["test.index"], parts["x"].dense().size(0)
    allx, ally = parts["allx"].dense(), torch.from_numpy(parts["ally"])
    n = max(int(index.max()) + 1, allx.size(0))
    x, y = allx.new_zeros(n, allx.size(1)), ally.new_zeros(n, ally.size(1))
    x[: allx.size(0)], y[: allx.size(0)] = allx, ally
    x[index], y[index] = parts["tx"].dense(), torch.from_numpy(parts["ty"])
    pairs = [(node, other) for node, others in parts["graph"].items() for other in others]
    edge_index = torch.tensor(pairs, dtype=torch.long).t()
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = coalesce(torch.cat([edge_index, edge_index.flip(0)], dim=1), num_nodes=n)
    split = {
        "train": torch.arange(labelled),
        "valid": torch.arange(labelled, labelled + VALIDATION),
        "test": index.sort().values,
    }
    return NormalizeFeatures()(Data(x=x, edge_index=edge_index, y=y.argmax(dim=1))), split
