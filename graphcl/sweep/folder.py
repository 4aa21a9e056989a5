"""Manage the folder of a sweep: specification, a record for each cell, tables, and a lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from filelock import FileLock, Timeout

from graphcl.config import RUNTIME_SETTINGS, make_config
from graphcl.config.nested import differences
from graphcl.errors import InputError
from graphcl.sweep.plan import Plan, key_of
from graphcl.sweep.table import scores_of
from graphcl.system.files import read_json, refuse_links, write_text
from graphcl.version import __version__

Records = dict[str, dict[str, Any]]
"""Key of a cell -> record of that cell."""


class SweepFolder:
    """A folder with `sweep.yaml`, `cells/KEY.json` and tables, locked within a `with` block.

    If the process is killed, the operating system releases the lock.

    Args:
        path: a new folder, or the folder of an earlier sweep.

    Raises:
        InputError: on entering the block: another sweep uses the folder, the folder contains other files, or it cannot
            be created.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")

    def __enter__(self) -> SweepFolder:
        try:
            refuse_links(self.path, ".lock", "cells", "figures")
            is_sweep = (self.path / "sweep.yaml").exists() or self.cells.is_dir()
            if self.path.exists() and not is_sweep and any(self.path.iterdir()):
                raise InputError(f"{self.path} is not empty and not a sweep folder; pass another --out.")
            self.cells.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"{self.path} is in use by another sweep; wait for it, or pass another --out.") from None
        except OSError as error:
            raise InputError(f"cannot create the folder {self.path}: {error.strerror}; pass another --out.") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    @property
    def cells(self) -> Path:
        """Path of the folder with the cells' records."""
        return self.path / "cells"

    def add_plan(self, plan: Plan) -> None:
        """Write the specification of `plan`, so that `--out FOLDER` alone resumes the sweep."""
        spec = {**plan.spec, "version": __version__, "folder": str(Path.cwd())}
        write_text(self.path / "sweep.yaml", yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))

    def records(self, plan: Plan | None = None) -> Records:
        """Return key of a cell -> record, for all valid records in the folder.

        Args:
            plan: plan whose cells are matched with records of earlier versions of this library. A setting that is
                missing in a record counts as its current default.

        Raises:
            InputError: a cell of the plan was run with other settings.
        """
        planned = {cell.key for cell in plan.tasks} if plan is not None else set()
        found: Records = {}
        for file in sorted(self.cells.glob("*.json")):
            try:
                record = read_json(file)
            except (InputError, OSError):
                continue
            if _is_record(record):
                key = file.stem if plan is None or file.stem in planned else _current_key(record["config"]) or file.stem
                if found.get(key, {}).get("status") != "done":  # two files may match one cell: prefer a finished one
                    found[key] = record
        if plan is not None:
            self._refuse_changed(plan, found)
        return found

    def _refuse_changed(self, plan: Plan, found: Records) -> None:
        """Raise InputError if a record in `found` has the coordinates of a cell of `plan` but other settings."""
        places = {_place(record["coordinates"]): (key, record) for key, record in found.items()}
        for cell in plan.cells:
            key, record = places.get(_place(cell.coordinates), (cell.key, {}))
            if key != cell.key and cell.key not in found:
                changes = differences(record["config"], cell.config.model_dump(), RUNTIME_SETTINGS)
                version = record.get("versions", {}).get("graphcl", "?")
                raise InputError(
                    f"{self.path} holds a cell `{cell}` with other settings, run by graphcl {version}: "
                    f"{'; '.join(changes)}. Pass another --out, or delete {self.cells / key}.json."
                )


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a cell (settings, status, scores) to a JSON file."""
    write_text(path, json.dumps(record, indent=1))


def _is_record(record: Any) -> bool:
    """Return True if `record`, the content of a file, is a valid record of a cell."""
    if not isinstance(record, dict) or not isinstance(record.get("coordinates"), dict):
        return False
    if not all(isinstance(label, str) for label in record["coordinates"].values()):
        return False
    if not isinstance(config := record.get("config"), dict):
        return False
    if record.get("status") != "done":
        return record.get("status") == "failed" and isinstance(record.get("error"), str)
    try:
        return all(scores_of(record, name).mean >= 0 for name in config["eval"]) and isinstance(record["seconds"], dict)
    except (KeyError, TypeError, ValueError):
        return False


def _current_key(config: Mapping[str, Any]) -> str | None:
    """Return the key of `config` with missing settings at their current defaults; None if `config` is invalid."""
    try:
        return key_of(make_config(config))
    except InputError:  # for example, a setting was removed in a later version
        return None


def _place(coordinates: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(coordinates.items()))
