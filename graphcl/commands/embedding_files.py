"""Write embeddings to .npz and .parquet files, batch by batch."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np

_GROUP_ROWS = 16_384
"""Minimum number of rows in each row group of a Parquet file, except the last."""


@dataclass(frozen=True)
class Block:
    """The embeddings, ids and labels of a batch of B graphs.

    Attributes:
        h: embeddings `[B, H]`.
        ids: ids of the graphs `[B]`, integers or strings.
        y: labels `[B]` or `[B, T]`; None for unlabelled graphs.
    """

    h: np.ndarray
    ids: np.ndarray
    y: np.ndarray | None


def write_npz(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write an .npz file with `h [n, H]`, `id [n]` and, if the graphs are labelled, `y`.

    `h` is written block by block, so it need not fit into memory.

    Args:
        file: file to write to.
        blocks: blocks with `num_graphs` rows in total.
        num_graphs: number of graphs n.
        width: width of the embeddings H.
    """
    ids, y = [], []
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("h.npy", "w", force_zip64=True) as member:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (num_graphs, width)}
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.h.tobytes())
                ids.append(block.ids)
                y += [] if block.y is None else [block.y]
        for name, parts in (("id", ids), ("y", y)):
            if parts:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.concatenate(parts), allow_pickle=False)


def write_parquet(file: IO[bytes], blocks: Iterator[Block], num_graphs: int, width: int) -> None:
    """Write a Parquet file with the columns id, y (or y0, y1, ...), h0, h1, ...; arguments as for `write_npz`."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    writer = None
    for group in _groups(blocks):
        y = group.y
        labels = {} if y is None else {"y": y} if y.ndim == 1 else {f"y{i}": y[:, i] for i in range(y.shape[1])}
        columns = {"id": group.ids, **labels, **{f"h{i}": group.h[:, i] for i in range(width)}}
        table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
        writer = writer or ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


WRITERS = {".npz": write_npz, ".parquet": write_parquet}
"""File name suffix -> function that writes the format."""


def _groups(blocks: Iterator[Block]) -> Iterator[Block]:
    """Merge blocks into row groups of at least `_GROUP_ROWS` rows, and yield them; the last group may be smaller."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if sum(len(each.ids) for each in waiting) >= _GROUP_ROWS:
            yield _concatenate(waiting)
            waiting = []
    if waiting:
        yield _concatenate(waiting)


def _concatenate(blocks: list[Block]) -> Block:
    y = [block.y for block in blocks if block.y is not None]
    h, ids = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("h", "ids"))
    return Block(h, ids, np.concatenate(y) if y else None)
