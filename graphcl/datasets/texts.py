"""Check the strings of graphs."""

from __future__ import annotations

from torch_geometric.data import Data

from graphcl.errors import InputError, one_line


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
