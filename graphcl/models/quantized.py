"""Store embeddings in fewer bytes: one byte for a number, or one bit."""

from __future__ import annotations

from typing import Literal

import numpy as np

from graphcl.arguments import checked
from graphcl.errors import InputError

Precision = Literal["float32", "int8", "binary"]
"""How embeddings are stored."""


@checked
def quantize(h: np.ndarray, precision: Precision = "int8") -> np.ndarray:
    r"""Return embeddings `[n, H]` as int8 `[n, H]`, or as bits in bytes, uint8 `[n, ceil(H / 8)]`.

    $$q_{ij} = \operatorname{round}\Big(\frac{127 \, h_{ij}}{\max_k |h_{ik}|}\Big), \qquad b_{ij} = [h_{ij} > 0]$$

    The cosine of two rows of q is nearly that of the embeddings. As each row has its own scale, rows that are added
    later need no common range. Bits are compared by their Hamming distance; the first bit of a byte is the highest, as
    `numpy.packbits` has it.

    Args:
        h: embeddings, finite numbers.
        precision: `int8`, `binary`, or `float32`, which returns them as they are.

    Raises:
        InputError: `h` is not a matrix.

    Example:
        >>> quantize(np.array([[0.5, -1.0, 0.25]])), quantize(np.array([[0.5, -1.0, 0.25]]), "binary")
        (array([[  64, -127,   32]], dtype=int8), array([[160]], dtype=uint8))
    """
    if h.ndim != 2:
        raise InputError(f"`h` must be a matrix [n, H], got shape {list(h.shape)}.")
    if precision == "binary":
        return np.packbits(h > 0, axis=1)
    if precision == "float32":
        return h.astype(np.float32)
    largest = np.abs(h).max(axis=1, keepdims=True)
    rows: np.ndarray = np.rint(127 * h / np.where(largest > 0, largest, 1)).astype(np.int8)
    return rows
