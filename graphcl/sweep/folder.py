"""Lock the folder of a sweep, and read and write its specification and the record of each cell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from graphcl.config import RUNTIME_SETTINGS, make_config
from graphcl.config.recipes import differences
from graphcl.errors import InputError
from graphcl.experiment.fingerprint import changed_files
from graphcl.sweep.plan import Cell, Plan, key_of
from graphcl.sweep.table import scores_of
from graphcl.system.files import read_json, refuse_links, remove_partial, write_text
from graphcl.version import __version__

Records = dict[str, dict[str, Any]]
"""Key of a cell -> record of that cell."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create `folder` if necessary, and lock it within a `with` block; the lock of a killed process is released.

    Raises:
        InputError: another sweep uses the folder, the folder contains other files, or it cannot be created.
    """
    lock = FileLock(folder / ".lock")
    try:
        refuse_links(folder, ".lock", "cells", "figures")
        names = {file.name for file in folder.iterdir() if file.name[0] != "."} if folder.exists() else set()
        # `cells` alone is that of a sweep that was killed before it wrote its plan
        if "sweep.yaml" not in names and names - {"cells"}:
            raise InputError(f"{folder} is not empty and not a sweep folder, without sweep.yaml; pass another --out.")
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"{folder} is in use by another sweep; wait for it, or pass another --out.") from None
    except OSError as error:
        raise InputError(f"cannot create the folder {folder}: {error.strerror}; pass another --out.") from None
    try:
        for written in (folder, folder / "cells", folder / "figures"):
            remove_partial(written)
        yield
    finally:
        lock.release()


def write_spec(folder: Path, plan: Plan) -> None:
    """Write the specification of `plan` into `folder`, so that `--out FOLDER` alone resumes the sweep."""
    spec = {**plan.spec, "version": __version__, "folder": str(Path.cwd())}
    write_text(folder / "sweep.yaml", yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a cell (settings, status, scores) to a JSON file."""
    write_text(path, json.dumps(record, indent=1))


def read_records(folder: Path, plan: Plan) -> Records:
    """Return key of a cell -> record, for all valid records in `folder`.

    Records of earlier versions of this library are matched with the cells of `plan`. A setting that is missing in a
    record counts as its current default.

    Raises:
        InputError: a cell of the plan was run with other settings or other files.
    """
    records = _valid_records(folder, plan)
    for cell in plan.tasks:
        record = records.get(cell.key, {})
        if record.get("status") == "done" and (changed := changed_files(cell.config, record)):
            what = f"{changed[0]} changed after cell `{cell}` was run in {folder}"
            raise InputError(f"{what}. Restore it, or run the changed cells with --reuse {folder} and another --out.")
    places = {frozenset(record["coordinates"].items()): (key, record) for key, record in records.items()}
    for cell in plan.cells:
        key, record = places.get(frozenset(cell.coordinates.items()), (cell.key, {}))
        if key != cell.key and cell.key not in records:
            changes = differences(record["config"], cell.config.model_dump(), RUNTIME_SETTINGS)
            version = record.get("versions", {}).get("graphcl", "?")
            raise InputError(
                f"{folder} holds a cell `{cell}` with other settings, run by graphcl {version}: "
                f"{'; '.join(changes)}. Pass another --out, or delete {folder / 'cells' / key}.json."
            )
    return records


def finished_records(source: Path, cells: Iterable[Cell], plan: Plan) -> Records:
    """Return the records of those of the `cells` of `plan` that the sweep in the folder `source` has finished.

    Cells that were run with other files, such as an earlier version of an imported file, are left out.

    Raises:
        InputError: `source` holds no sweep.
    """
    if not (source / "cells").is_dir():
        raise InputError(f"`reuse`: {source} holds no sweep.")
    records, reused = _valid_records(source, plan), Records()
    for cell in cells:
        record = records.get(cell.key, {})
        if record.get("status") == "done" and not changed_files(cell.config, record):
            reused[cell.key] = {**record, "coordinates": dict(cell.coordinates)}
    return reused


def _valid_records(folder: Path, plan: Plan) -> Records:
    """Return key -> record of all valid records in a folder; records of earlier versions get their present key."""
    planned = {cell.key for cell in plan.tasks}
    records: Records = {}
    for file in sorted(folder.glob("cells/*.json")):
        try:
            record = read_json(file)
        except (InputError, OSError):
            continue
        if _is_record(record):
            key = file.stem
            if key not in planned:
                with suppress(InputError):  # for example, a setting was removed in a later version
                    key = key_of(make_config(record["config"], own=()))
            if records.get(key, {}).get("status") != "done":  # two files may match one cell: prefer a finished one
                records[key] = record
    return records


def unfinished(plan: Plan, records: Records) -> list[Cell]:
    """Return the cells of `plan` without a finished record."""
    return [cell for cell in plan.tasks if records.get(cell.key, {}).get("status") != "done"]


def _is_record(record: Any) -> bool:
    """Return True if `record`, the content of a file, is a valid record of a cell."""
    try:
        config, status = record["config"], record["status"]
        if not isinstance(config, dict) or not all(isinstance(label, str) for label in record["coordinates"].values()):
            return False
        if status == "failed":
            return isinstance(record["error"], str)
        means = [scores_of(record, name).mean for name in config["eval"]]
        return status == "done" and isinstance(record["seconds"], dict) and all(map(math.isfinite, means))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
