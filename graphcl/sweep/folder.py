"""Lock the folder of a sweep, read and write its specification and the record of each cell, and extend its plan.

A stored sweep is extended by seeds, data sets and further labels; every other change of its plan is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from graphcl.config import RUNTIME_SETTINGS, make_config
from graphcl.config.recipes import differences, read_yaml
from graphcl.errors import InputError
from graphcl.experiment.fingerprint import changed_files
from graphcl.sweep.plan import Cell, Plan, key_of, label_of, listed, make_plan, root_of, sections_of, with_datasets
from graphcl.sweep.table import scores_of
from graphcl.system.files import read_json, refuse_links, remove_partial, write_text
from graphcl.version import __version__

Records = dict[str, dict[str, Any]]
"""Key of a cell -> record of that cell."""
_STAYS = (*RUNTIME_SETTINGS, "seeds", "dataset")
"""Stored settings that a sweep file need not repeat."""


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


def stored_spec(folder: Path) -> dict[str, Any]:
    """Return the specification of the sweep in `folder`; empty if there is none."""
    file = folder / "sweep.yaml"
    return read_yaml(file) if os.path.lexists(file) else {}


def extended(folder: Path, spec: Mapping[str, Any], whole: bool = False) -> Plan:
    """Return the plan of the sweep in `folder`, extended by the seeds, labels, imports and settings of `spec`.

    What `spec` does not mention stays. Without a stored sweep, return the plan of `spec`.

    Args:
        folder: folder of the sweep.
        spec: specification to add.
        whole: whether `spec` is a complete sweep, so that a setting it lacks has its default; seeds, data sets and
            settings that do not affect the result stay all the same.

    Raises:
        InputError: `spec` is invalid, or changes a stored cell; or a setting has no effect, as the labels of a stored
            axis set it.
    """
    stored = stored_spec(folder)
    if not stored:
        return make_plan(spec)
    new = sections_of(spec)
    try:
        plan = make_plan(_merged(stored, new, whole))
    except InputError as error:
        if not any(new):
            raise
        raise InputError(f"{folder} holds a sweep, which cannot be extended by this: {error}") from None
    check_extends(plan, folder)
    return plan


def _merged(stored: Mapping[str, Any], new: Sequence[dict[str, Any]], whole: bool) -> dict[str, Any]:
    """Return the stored specification with the sections `new` of another, see `extended`."""
    (before, axes, table), (new_settings, new_axes, new_table) = sections_of(stored), new
    plan, datasets = make_plan(stored), with_datasets(before, axes)["dataset"]
    seeds = [cell.config.seeds[0] for cell in plan.cells]  # with those of recipes
    baseline, rows, columns = plan.table.baseline or {}, listed(new_table.get("rows")), new_table.get("columns")
    table.pop("baseline", None)
    if baseline and all(axis != columns and (not rows or axis in rows) for axis in baseline):
        table["baseline"] = dict(baseline)  # with its axis, as a new axis would make a bare label ambiguous
    settings = {key: value for key, value in before.items() if not whole or root_of(key) in _STAYS}
    for key, value in new_settings.items():
        if key == "seeds":
            value = list(dict.fromkeys([*seeds, *make_config({key: value}).seeds]))
        elif key == "imports":
            value = list(dict.fromkeys([*listed(before.get(key)), *listed(value)]))
        elif key == "dataset" or key in axes:
            new_axes.setdefault(key, [value])
            continue
        else:
            for axis, groups in axes.items():
                sets = isinstance(groups, dict) and any(key in group for group in groups.values())
                if sets and value != before.get(key):
                    raise InputError(f"its axis `{axis}` sets `{key}`, got another, {value!r}.")
        settings[key] = value
    for axis, values in new_axes.items():
        settings.pop(axis, None)
        old = datasets if axis == "dataset" else axes.get(axis, [])
        if isinstance(values, dict):
            axes[axis] = {**old, **values} if isinstance(old, dict) else values
        else:
            labels = set(map(label_of, old))
            axes[axis] = [*old, *(value for value in values if label_of(value) not in labels)]
    return {"settings": settings, "axes": axes, "table": {**table, **new_table}}


def check_extends(plan: Plan, folder: Path) -> None:
    """Raise InputError if the sweep in `folder` has a cell that `plan` lacks; a stored sweep is never replaced."""
    stored = stored_spec(folder)
    if not stored or sections_of(stored) == sections_of(plan.spec):
        return
    keys = {cell.key for cell in plan.cells}
    lost = next((cell for cell in make_plan(stored).cells if cell.key not in keys), None)
    if lost is None:
        return
    twin = next((cell for cell in plan.cells if lost.coordinates.items() <= cell.coordinates.items()), None)
    changes = [f"the cell `{lost}` is not in the new plan"]
    if twin is not None:
        changes = differences(lost.config.model_dump(), twin.config.model_dump(), RUNTIME_SETTINGS)
    raise InputError(
        f"{folder} holds another sweep: {'; '.join(changes)}. A stored sweep is extended by seeds, data sets and "
        "labels of its axes only; for other settings pass another --out."
    )
