"""Check strings of graphs, and store them as UTF-8 bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from torch_geometric.data import Data

from graphcl.errors import InputError, one_line


def encode(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of all strings, and the start of each string with the end of the last one, `[n + 1]`.

    Example:
        >>> text, cut = encode(["a", "", "bc"])
        >>> text.tobytes(), cut.tolist(), decode(text, cut)
        (b'abc', [0, 1, 1, 3], ['a', '', 'bc'])
    """
    every = [text.encode() for text in texts]
    return np.frombuffer(b"".join(every), np.uint8).copy(), np.cumsum([0, *map(len, every)])


def decode(text: np.ndarray, cut: np.ndarray) -> list[str]:
    """Return the strings that `encode` stored."""
    whole = text.tobytes()
    return [whole[start:end].decode() for start, end in itertools.pairwise(cut.tolist())]


def id_arrays(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return ids as arrays for a `.npz` file: `id [n]`, or of strings the two arrays `id.text` and `id.slices`.

    A NumPy array of strings would give each string the memory of the longest one.
    """
    if ids.dtype != object:
        return {"id": ids}
    text, cut = encode(ids.tolist())
    return {"id.text": text, "id.slices": cut}


def check_texts(data: Data, what: str) -> None:
    """Raise InputError if an attribute has a string that is not valid Unicode, which no file could hold."""
    for key, values in data.to_dict().items():
        if isinstance(values, list) and all(isinstance(each, str) for each in values):
            try:
                "".join(values).encode()
            except UnicodeEncodeError:
                graph = next(i for i, each in enumerate(values) if each != each.encode(errors="replace").decode())
                rule = f"`{key}` of graph {graph} must be valid Unicode, got {one_line(ascii(values[graph]), 60)}"
                raise InputError(f"{what}: {rule}.") from None
