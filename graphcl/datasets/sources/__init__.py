"""Kinds of sources that `load_dataset` reads: each says which sources it claims, and how it reads one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor
from torch_geometric.data import Data

from graphcl.arguments import Role
from graphcl.datasets.cache import Mirror
from graphcl.datasets.dataset import Benchmark, Classes, GraphDataset
from graphcl.datasets.settings import Loading
from graphcl.datasets.tables import Invalid
from graphcl.system.files import check_regular


@dataclass(frozen=True)
class Request:
    """The arguments of `load_dataset` or `write_on_disk` besides the source; `data_root` is absolute.

    `executor` and `folder` are of `write_on_disk`: processes to read a source by, and a folder for what they have read,
    so that it is not lost if they are killed. `role` is that of the source in pairs.
    """

    settings: Loading
    data_root: Path
    mirror: Mirror = None
    nodes: bool = False
    executor: Executor | None = None
    folder: Path = Path()
    role: Role = "query"


class Graphs(NamedTuple):
    """Graphs that were read but not checked.

    Attributes:
        name: name of the data set.
        data: all graphs, collated, as in `InMemoryDataset._data`.
        slices: start of each graph in each attribute, as in `InMemoryDataset.slices`.
        benchmark: split and metric, if a benchmark prescribes them.
        categories: whether integers in `x` are category indices.
        invalid: what was left out already.
        classes: class values that `y` holds indices into.
        directions: whether to warn of edges in one direction only.
        targets: whether `y` holds numbers to predict, which are no classes even if they are whole.
    """

    name: str
    data: Data
    slices: dict[str, Tensor] | None
    benchmark: Benchmark | None = None
    categories: bool = False
    invalid: Invalid = ()
    classes: Classes | None = None
    directions: bool = False
    targets: bool = False


class Pieces(NamedTuple):
    """A source that is read in pieces, with at most one in memory.

    Attributes:
        name: name of the data set.
        parts: the pieces, of consecutive graphs.
        invalid: the rows or graphs that were left out of the pieces so far.
    """

    name: str
    parts: Iterator[GraphDataset]
    invalid: list[Any]


class Source:
    """A kind of source; `@sources.register(NAME, takes="a .edges file")` adds one, and messages list what it takes.

    Attributes:
        place: the kinds are asked in ascending order; the library's own are at 10 and above.
        names: names of the data sets of this kind.
        suffixes: endings of the files of this kind, in lower case; a kind without names and endings overrides `claims`.
        settings: settings of tables, of networkx graphs and of TU sets, `mirror` and `executor`, that apply to this
            kind; others are refused, or warned of.
    """

    place: ClassVar[int] = 0
    suffixes: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[frozenset[str]] = frozenset()
    names: ClassVar[tuple[str, ...]] = ()

    def claims(self, source: Any, request: Request) -> bool:
        """Return whether this kind reads `source`; a path is a `Path`, a `str` is a name."""
        if isinstance(source, Path):
            return source.suffix.lower() in self.suffixes and source.is_file()
        return isinstance(source, str) and source in self.names

    def usual(self, source: Any) -> dict[str, Any]:
        """Return the settings of a run that `source` implies: `encoder`, of features as they are read, and others."""
        return {}

    def usual_of_targets(self, source: Any) -> dict[str, Any]:
        """Return the settings of a run that `source` implies as the targets of pairs."""
        return {}

    def read(self, source: object, request: Request) -> object:
        """Return the `Graphs` of `source`, or a finished `GraphDataset`, or another source, which is read in turn."""
        raise NotImplementedError

    def columns(self, header: Sequence[str], settings: Any) -> list[tuple[str, str, int]]:
        """Return the role, such as `target` or `id`, the name and the index of each column of a table that is read."""
        return []

    def is_item(self, text: str) -> bool:
        """Return whether a string, the name of no data set, is one graph of this kind, which `transform` embeds."""
        return False

    def pieces(self, source: Any, request: Request) -> Pieces | None:
        """Return the source in pieces, for `write_on_disk`; None, the default, if it is read whole."""
        return None


def as_path(source: object) -> object:
    """Return `source`, or a `Path` if it is one: a string with a path separator or a suffix, or a path-like object.

    Raises:
        InputError: the path, or a file in the folder, is a named pipe or a device, which might never end.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    if isinstance(source, str) and "/" not in source and not Path(source).suffix:
        return source
    path = Path(os.path.expanduser(source))
    files = path.iterdir() if path.is_dir() else [path]
    for file in files:
        check_regular(file)
    return path
