"""Blocks of embeddings, and the files that hold them."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from graphcl.system.arrays import id_arrays, write_array

if TYPE_CHECKING:
    import pyarrow

Block = dict[str, Any]
"""Rows of a batch of B graphs: `id [B]`, embeddings `h [B, H]`, and if the graphs have them, `y [B]` or `[B, T]` and
`group [B]`. h may be `Embeddings` in another form."""
_GROUP_ROWS = 16_384
"""Minimum number of rows in each row group of a Parquet file, except the last."""


def joined(blocks: Sequence[Block]) -> Block:
    """Return one block with the rows of several."""

    def cat(parts: list[Any]) -> Any:
        return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else type(parts[0]).cat(parts)

    names = [name for name in blocks[0] if all(name in block for block in blocks)]
    return {name: cat([block[name] for block in blocks]) for name in names}


def write_npz(file: IO[bytes], blocks: Iterator[Block], num_rows: int, width: int) -> None:
    """Write an .npz file with `h [n, H]`, ids (see `id_arrays`) and, if the graphs have them, `y` and `group`.

    `h` is written block by block, so it need not fit into memory; n is `num_rows`.
    """
    rest, first = [], next(blocks)
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("h.npy", "w", force_zip64=True) as member:
            header = {"descr": first["h"].dtype.str, "fortran_order": False, "shape": (num_rows, first["h"].shape[1])}
            np.lib.format.write_array_header_1_0(member, header)
            for block in chain([first], blocks):
                member.write(block.pop("h").tobytes())
                rest.append(block)
        for name, values in _arrays(joined(rest)).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def write_parquet(file: IO[bytes], blocks: Iterator[Block], num_rows: int = 0, width: int = 0) -> None:
    """Write a Parquet file with the columns id, y (or y0, y1, ...), h0, h1, ...

    Embeddings in another form have columns of their own, see `Embeddings.arrow`.
    """
    from pyarrow.parquet import ParquetWriter

    writer, waiting = None, list[Block]()

    def write_group() -> None:
        nonlocal writer
        table = arrow_table(joined(waiting))
        writer = writer or ParquetWriter(file, table.schema)
        writer.write_table(table)
        waiting.clear()

    for block in blocks:
        waiting.append(block)
        if sum(len(part["id"]) for part in waiting) >= _GROUP_ROWS:
            write_group()
    if waiting:
        write_group()
    if writer is not None:
        writer.close()


def arrow_table(block: Block) -> pyarrow.Table:
    """Return a PyArrow table with the columns of a block, see `write_parquet`."""
    import pyarrow

    h = block.get("h")  # predictions have none
    columns = {name: pyarrow.array(values) for name, values in _columns(block).items()}
    if h is not None and not isinstance(h, np.ndarray):
        columns |= h.arrow()
    return pyarrow.table(columns)


def write_npy(folder: Path, blocks: Iterator[Block]) -> None:
    """Write `h.npy`, ids (see `id_arrays`) and, if the graphs have them, `y.npy` and `group.npy` into a folder."""
    for name, values in _arrays(joined(list(blocks))).items():
        write_array(folder / f"{name}.npy", values)


def write_csv(file: IO[bytes], blocks: Iterator[Block], num_rows: int = 0, width: int = 0) -> None:
    """Write a CSV file with the columns of `write_parquet`."""
    lines = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(lines)
    for number, block in enumerate(blocks):
        columns = _columns(block)
        if number == 0:
            writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    lines.detach()


def write_form_npz(file: IO[bytes], blocks: Iterator[Block], num_rows: int = 0, width: int = 0) -> None:
    """Write an .npz file with the arrays of embeddings in another form, see `Embeddings.npz`, ids and `y`.

    All rows are kept in memory.
    """
    block = joined(list(blocks))
    np.savez(file, **block.pop("h").npz(), **_arrays(block))


WRITERS = {".npz": write_npz, ".parquet": write_parquet, ".csv": write_csv}
"""File name suffix -> function that writes the format."""
FORM_WRITERS = {".npz": write_form_npz, ".parquet": write_parquet}
"""The same for embeddings in another form."""


def _arrays(block: Block) -> Block:
    return {**id_arrays(block["id"]), **{name: values for name, values in block.items() if name != "id"}}


def _columns(block: Block) -> Block:
    """Return the columns of a block, with one column for each column of a matrix."""
    columns: Block = {}
    for name, values in block.items():
        if isinstance(values, np.ndarray) and values.ndim == 1:
            columns[name] = values
        elif isinstance(values, np.ndarray):
            columns |= {f"{name}{number}": column for number, column in enumerate(values.T)}
    return columns
