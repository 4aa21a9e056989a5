"""Record what data a run or a cell of a sweep was computed on, to notice on resume that the data changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphcl.config import Config, make_config
from graphcl.config.recipes import differences, flat_values
from graphcl.datasets.dataset import GraphDataset
from graphcl.distributed.launch import Ranks
from graphcl.errors import InputError
from graphcl.experiment.encoder_input import load_arguments
from graphcl.registry import added_names, references


def data_fingerprint(config: Config, dataset: GraphDataset) -> dict[str, Any]:
    """Return `dataset`, the result of `GraphDataset.fingerprint`, and `files`, the result of `file_digests`."""
    return {"dataset": dataset.fingerprint(), "files": file_digests(config)}


def check_ranks(ranks: Ranks, data: Mapping[str, Any]) -> None:
    """Raise InputError on all ranks unless `data`, a fingerprint, is the same on all ranks."""
    first, *others = (dict(flat_values(fingerprint)) for fingerprint in ranks.all_gather_object(data))
    for rank, other in enumerate(others, 1):
        keys = [key for key in {**first, **other} if first.get(key) != other.get(key)]
        if keys:
            listed = ", ".join(f"`{key}` is {other.get(key)} instead of {first.get(key)}" for key in keys[:4])
            what = f"rank {rank} has other data or files than rank 0: {listed}"
            raise InputError(f"{what}; give all ranks the same arguments and files.")


def file_digests(config: Config) -> dict[str, str]:
    """Return path -> digest of the files that settings name, see `named_files`."""
    return {path: file_digest(Path(path).expanduser()) for path in named_files(config)}


def named_files(config: Config) -> list[str]:
    """Return the imported files, and those that an argument of the method names.

    An imported file is left out if it registers names, and the settings use none of them and none is a row.
    """
    used = {*_texts(config.model_dump(exclude={"imports"})), *references}
    imported = [file for file in config.imports if not (names := added_names(file)) or names & used]
    texts = [value for value in config.method.values() if isinstance(value, str) and value]
    return [*imported, *(text for text in texts if Path(text).expanduser().is_file())]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def changed_files(config: Config, record: Mapping[str, Any]) -> list[str]:
    """Return the files of `config` whose content is not that of any file in the record of a cell."""
    files = (record.get("data") or {}).get("files")
    if not isinstance(files, dict):  # a record of an earlier version
        return []
    return [path for path, digest in file_digests(config).items() if digest not in files.values()]


class KnownData:
    """The data of the cells of a sweep so far, to compare the data of further cells with."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}

    def changes(self, record: Mapping[str, Any]) -> str:
        """Return a message if the data in the `record` of a cell is not that of earlier cells, else "".

        Cells are compared if they load the same data. Records of earlier versions lack `data` and are ignored.
        """
        phrases = [
            phrase
            for place, data in _places(record)
            for phrase in differences(self._known.setdefault(place, data), data)
        ]
        what = "the data is not that of the finished cells"
        return f"{what}: {'; '.join(phrases)}. Restore it, or pass another --out." if phrases else ""


def _places(record: Mapping[str, Any]) -> Iterator[tuple[object, dict[str, Any]]]:
    """Yield each source of data of a cell, as a key, and the fingerprint of that source."""
    data = record.get("data")
    if not isinstance(data, Mapping) or not all(isinstance(data.get(key), dict) for key in ("dataset", "files")):
        return
    try:
        config = make_config(record["config"], own=())
    except InputError:  # for example, a setting was removed in a later version
        return
    arguments = {key: value for key, value in load_arguments(config).items() if key not in ("data_root", "mirror")}
    yield tuple(arguments.items()), {config.dataset: data["dataset"]}
    for path in data["files"].keys() & named_files(config):  # earlier versions list unused files too
        yield path, {path: data["files"][path]}


def file_digest(path: Path) -> str:
    """Return a digest of the content of a file; raise InputError if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}.") from None
