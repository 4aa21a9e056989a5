"""Extend a stored sweep by seeds, data sets and further labels; refuse every other change of its plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcl.config import RUNTIME_SETTINGS, make_config
from graphcl.config.nested import differences
from graphcl.config.recipes import read_yaml
from graphcl.errors import InputError
from graphcl.sweep.plan import Plan, label_of, listed, make_plan, sections_of, with_datasets

_STAYS = (*RUNTIME_SETTINGS, "seeds", "dataset")
"""Stored settings that a sweep file need not repeat."""


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
    if not (stored := stored_spec(folder)):
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
    (settings, axes, table), (new_settings, new_axes, new_table) = sections_of(stored), new
    plan, before, datasets = make_plan(stored), settings, with_datasets(settings, axes)["dataset"]
    seeds = [cell.config.seeds[0] for cell in plan.cells]  # with those of recipes
    baseline, rows, columns = plan.table.baseline or {}, listed(new_table.get("rows")), new_table.get("columns")
    table.pop("baseline", None)
    if baseline and all(axis != columns and (not rows or axis in rows) for axis in baseline):
        table["baseline"] = dict(baseline)  # with its axis, as a new axis would make a bare label ambiguous
    settings = {key: value for key, value in settings.items() if not whole or key.split(".")[0] in _STAYS}
    for key, value in new_settings.items():
        if key == "seeds":
            settings[key] = list(dict.fromkeys([*seeds, *make_config({key: value}).seeds]))
        elif key == "imports":
            settings[key] = list(dict.fromkeys([*listed(before.get(key)), *listed(value)]))
        elif key == "dataset" or key in axes:
            new_axes.setdefault(key, [value])
        else:
            groups = [axis for axis, group in axes.items() if isinstance(group, dict) and key in _keys(group)]
            if groups and value != before.get(key):
                raise InputError(f"its axis `{groups[0]}` sets `{key}`, got another, {value!r}.")
            settings[key] = value
    for axis, values in new_axes.items():
        axes[axis] = _united(datasets if axis == "dataset" else axes.get(axis, []), values)
        settings.pop(axis, None)
    return {"settings": settings, "axes": axes, "table": {**table, **new_table}}


def check_extends(plan: Plan, folder: Path) -> None:
    """Raise InputError if the sweep in `folder` has a cell that `plan` lacks; a stored sweep is never replaced."""
    stored = stored_spec(folder)
    if not stored or sections_of(stored) == sections_of(plan.spec):
        return
    keys = {cell.key for cell in plan.cells}
    for cell in make_plan(stored).cells:
        if cell.key in keys:
            continue
        place = cell.coordinates.items()
        changes = [f"the cell `{cell}` is not in the new plan"]
        for twin in plan.cells:
            if place <= twin.coordinates.items():
                changes = differences(cell.config.model_dump(), twin.config.model_dump(), RUNTIME_SETTINGS)
                break
        raise InputError(
            f"{folder} holds another sweep: {'; '.join(changes)}. A stored sweep is extended by seeds, data sets and "
            "labels of its axes only; for other settings pass another --out."
        )


def _united(stored: Any, values: Any) -> Any:
    """Return the labels of an axis, stored and new; a new axis has the new ones only."""
    if isinstance(values, dict):
        return {**stored, **values} if isinstance(stored, dict) else values
    labels = set(map(label_of, stored))
    return [*stored, *(value for value in values if label_of(value) not in labels)]


def _keys(groups: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {key for group in groups.values() for key in group}
