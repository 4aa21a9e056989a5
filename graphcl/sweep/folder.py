"""The folder of a sweep: a file for each cell, the tables, and a lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from filelock import FileLock, Timeout

from graphcl.config.settings import changed, make_config
from graphcl.errors import InputError
from graphcl.sweep.plan import Cell, Plan, key_of
from graphcl.sweep.table import scores_of
from graphcl.system.files import read_json, refuse_links, write_text
from graphcl.version import __version__

Records = dict[str, dict[str, Any]]  # by key


class SweepFolder:
    """Where a sweep keeps `sweep.yaml`, `cells/KEY.json`, and its tables; one sweep at a time, as long as it is open.

    The lock is the operating system's, so it is free as soon as its holder is gone, however that ended.

    Args:
        path: a new folder, or that of an earlier sweep.

    Raises:
        InputError: another sweep holds it, it is something else, or it cannot be made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / ".lock")

    def __enter__(self) -> SweepFolder:
        try:
            refuse_links(self.path, ".lock", "cells", "figures")
            own = (self.path / "sweep.yaml").exists() or self.cells.is_dir()
            if self.path.exists() and not own and any(self.path.iterdir()):
                raise InputError(
                    f"{self.path} is not the folder of a sweep, and holds something; pass another with --out."
                )
            self.cells.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another sweep is at work in {self.path}; wait for it, or pass another --out.") from None
        except OSError as error:
            raise InputError(
                f"cannot make the folder {self.path}: {error.strerror}; pass another with --out."
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    @property
    def cells(self) -> Path:
        """Where the outcomes of cells lie."""
        return self.path / "cells"

    def add_plan(self, plan: Plan) -> None:
        """Keep what the sweep is made of, so that `--out FOLDER` alone goes on with it."""
        spec = {**plan.spec, "version": __version__, "folder": str(Path.cwd())}
        text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
        write_text(self.path / "sweep.yaml", text)

    def records(self, plan: Plan | None = None) -> Records:
        """What is there, by key; a cell of an earlier version counts where that left out only what is default now.

        Raises:
            InputError: a cell of the plan was run with other settings, by another version or after a change.
        """
        planned = {cell.key for cell in plan.tasks} if plan is not None else set()
        found: Records = {}
        for file in sorted(self.cells.glob("*.json")):
            try:
                record = read_json(file)
            except (InputError, OSError):  # half a file from another program; it is run again
                continue
            if _is_record(record):
                key = file.stem if file.stem in planned or plan is None else _present_key(record["config"])
                key = key or file.stem
                if found.get(key, {}).get("status") != "done":  # else the cell of an earlier version was run again
                    found[key] = record
        if plan is not None:
            self._refuse_changed(plan, found)
        return found

    def _refuse_changed(self, plan: Plan, found: Records) -> None:
        # A cell in the same place with other settings means that what the place stands for has changed.
        places = {_place(record["coordinates"]): (key, record) for key, record in found.items()}
        for cell in plan.cells:
            key, record = places.get(_place(cell.coordinates), (cell.key, {}))
            if key != cell.key and cell.key not in found:
                differences = changed(record["config"], cell.config.model_dump())
                version = record.get("versions", {}).get("graphcl", "?")
                raise InputError(
                    f"{self.path} holds a cell `{cell}` of other settings, run by graphcl {version}: "
                    f"{'; '.join(differences)}. Pass another --out, or delete {self.cells / key}.json."
                )


def task(folder: SweepFolder, cell: Cell) -> tuple[str, str, Any]:
    """What a worker needs for a cell: the file, the coordinates as JSON, the configuration."""
    return str(folder.cells / f"{cell.key}.json"), json.dumps(dict(cell.coordinates)), cell.config


def perform(task: tuple[str, str, Any], device: str) -> dict[str, Any]:
    """Run a cell, and keep its record: by the worker itself, so that it is kept even if the sweep dies meanwhile."""
    from graphcl.sweep.cell import run_cell
    from graphcl.system.memory import keep_freed_memory

    keep_freed_memory()
    path, coordinates, config = task
    record = {"coordinates": json.loads(coordinates), **run_cell(config, device)}
    try:
        keep(Path(path), record)
    except OSError as error:
        return {**record, "status": "failed", "error": f"cannot keep the outcome in {path}: {error.strerror}"}
    return record


def keep(path: Path, record: Mapping[str, Any]) -> None:
    """Write a cell's record."""
    write_text(path, json.dumps(record, indent=1))


def _is_record(record: Any) -> bool:
    """Whether a cell's file holds what a worker wrote; else it is as if it were not there."""
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


def _present_key(config: Mapping[str, Any]) -> str | None:
    """The key of a configuration that an earlier version completed, with today's defaults for what is new."""
    try:
        return key_of(make_config(config))
    except InputError:  # a setting that is no more
        return None


def _place(coordinates: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(coordinates.items()))
