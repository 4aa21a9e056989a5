"""Read a matrix of vectors, such as descriptors or measurements of which cells may be missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphcl.errors import InputError, reason


def read_vectors(file: str | Path) -> np.ndarray:
    """Return the matrix `[num_graphs, d]` in a .npy file, as `float64`; raise InputError if it holds something else."""
    try:
        rows = np.load(Path(file).expanduser(), allow_pickle=False)
    except Exception as error:  # a damaged file can raise any exception, so catch all
        why = reason(error).partition(" If you trust")[0].rstrip(".")  # never advise to unpickle
        raise InputError(f"cannot read `vectors` {str(file)!r}: {why}.") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiub" or not rows.size:
        found = f"{list(rows.shape)} of {rows.dtype}" if isinstance(rows, np.ndarray) else "several arrays"
        raise InputError(f"`vectors` must be a file of numbers [n, d], one row per graph; {file} holds {found}.")
    rows = rows.astype(np.float64)
    if np.isinf(rows).any():
        raise InputError(f"`vectors` {file} has infinity or numbers above 1e308; replace them, by NaN if missing.")
    if (empty := np.isnan(rows).all(axis=1)).any():
        raise InputError(f"row {empty.argmax()} of `vectors` {file} has no number; leave that graph out.")
    return rows


def standardise(rows: np.ndarray) -> np.ndarray:
    """Return `rows [n, d]` with columns of mean 0 and deviation 1, clamped to -5 .. 5; constant columns become 0.

    NaN, a missing cell, stays NaN and does not count.
    """
    present = ~np.isnan(rows)
    count = present.sum(axis=0).clip(min=1)
    # Scale columns to at most 1, by a power of two, which does not round; else squares may over- or underflow.
    _, exponent = np.frexp(np.abs(rows).max(axis=0, initial=0, where=present))
    rows = np.ldexp(rows, -exponent)
    centred = rows - rows.sum(axis=0, where=present) / count
    deviation = np.sqrt(np.square(centred).sum(axis=0, where=present) / count)
    # A constant column has a deviation of rounding errors. Clamp so that outliers do not dominate.
    return np.clip(centred / np.where(deviation > 1e-14, deviation, 1), -5, 5)
