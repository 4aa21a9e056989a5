"""The specification of a sweep: its parts, the points on its axes, the layout of its table; all of it checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphcl.arguments import nearest
from graphcl.config.settings import HOW, Config
from graphcl.errors import InputError

NOT_VARIED = ("seeds", "eval", *HOW)
"""Settings that are lists by themselves, and those that no figure of a cell hangs on."""
PARTS = ("settings", "axes", "table")
_KEYS = (*PARTS, "version", "folder")
_TABLE_KEYS = ("rows", "columns", "baseline")


def parts_of(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings, axes and table of a specification, copied; empty where it leaves them out.

    Raises:
        InputError: one of them is no mapping.
    """
    parts = {name: spec.get(name) or {} for name in PARTS}
    if found := [
        f"`{name}` must be a mapping, got {part!r}." for name, part in parts.items() if not isinstance(part, dict)
    ]:
        raise InputError("\n".join(found))
    settings, axes, table = (dict(part) for part in parts.values())
    return settings, axes, table


def check_parts(
    spec: Mapping[str, Any], settings: Mapping[str, Any], axes: Mapping[str, Any], table: Mapping[str, Any]
) -> None:
    """Refuse keys that there are not, and axes that are none; a line each."""
    found = [f"`{key}` is no part of a sweep; {nearest(str(key), _KEYS)}." for key in spec if key not in _KEYS]
    known = [*Config.model_fields, "recipe"]
    for key in settings:
        if str(key).split(".")[0] not in known:
            found.append(f"`settings`: `{key}` is no setting; {nearest(str(key), known)}.")
    if "resume" in (*settings, *axes):
        found.append("`resume` is for single runs; a sweep goes on by itself where its folder is given.")
    if settings.get("track"):
        found.append("`track` is for single runs; a sweep keeps each cell's figures in its own folder.")
    for axis, values in axes.items():
        if str(axis).split(".")[0] in NOT_VARIED and axis != "resume":
            found.append(f"`{axis}` cannot be an axis; give it under `settings`, the same for all cells.")
        elif isinstance(values, dict):
            found += _group_problems(axis, values, known)
        elif str(axis).split(".")[0] not in known:
            found.append(f"`{axis}` is no axis; {nearest(str(axis), known)}.")
        elif not isinstance(values, list) or not values:
            found.append(f"axis `{axis}` must be a list of one or more values, got {values!r}.")
    found += [f"`table.{key}` is unknown; {nearest(str(key), _TABLE_KEYS)}." for key in table if key not in _TABLE_KEYS]
    if found:
        raise InputError("\n".join(found))


def _group_problems(axis: Any, groups: Mapping[Any, Any], known: Sequence[str]) -> list[str]:
    """What is wrong with an axis of groups of settings, one line each."""
    if axis in known or not all(isinstance(each, dict) for each in groups.values()) or not groups:
        return [f"axis `{axis}`: a list of values is wanted, or, under a name of your own, groups of them."]
    if not isinstance(axis, str) or axis == "seed":
        return [f"axis `{axis}` must have another name: a text, and not `seed`, which each cell has."]
    keys = dict.fromkeys(str(key) for group in groups.values() for key in group)
    fixed = [key for key in keys if key.split(".")[0] in (*NOT_VARIED, "dataset")]
    return [
        f"axis `{axis}`: `{key}` cannot be in a group; give it under `settings` or as an axis." for key in fixed
    ] + [
        f"axis `{axis}`: `{key}` is no setting; {nearest(key, known)}."
        for key in keys
        if key.split(".")[0] not in known
    ]


def points_on(axis: str, values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The labels on an axis, with the settings that each stands for."""
    if isinstance(values, dict):
        yield from ((str(label), dict(group)) for label, group in values.items())
    else:
        yield from ((label_of(value), {axis: value}) for value in values)


def label_of(value: Any) -> str:
    """How a value is named in tables: `adnce(mu=0.5)` for a name with arguments."""
    if isinstance(value, dict) and "name" in value:
        arguments = ", ".join(f"{key}={label_of(each)}" for key, each in value.items() if key != "name")
        return f"{value['name']}({arguments})" if arguments else str(value["name"])
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def layout(
    table: Mapping[str, Any], axes: Mapping[str, Sequence[str]]
) -> tuple[list[str], str, Mapping[str, str] | None]:
    """Rows, columns and baseline of a table over axes with these labels; by default data sets are the columns.

    Raises:
        InputError: an axis or a label that there is not, an axis left out, a baseline that says too little.
    """
    columns = table.get("columns") or "dataset"
    rows = table.get("rows") or [axis for axis, labels in axes.items() if axis != columns and len(labels) > 1]
    rows = list(rows) if isinstance(rows, list) else [rows]
    for axis in [columns, *rows]:
        if not isinstance(axis, str) or axis not in axes:
            raise InputError(f"`table`: `{axis}` is no axis of this sweep; {nearest(str(axis), axes)}.")
    if len({columns, *rows}) <= len(rows):
        raise InputError(f"`table`: rows and columns must be different axes, got rows {rows} and columns {columns}.")
    left = [axis for axis, labels in axes.items() if len(labels) > 1 and axis not in [columns, *rows]]
    if left:
        raise InputError(f"`table.rows` must name every axis but the columns'; `{left[0]}` is missing.")
    baseline = table.get("baseline")
    if baseline is None or baseline == {}:
        return rows, columns, None
    if not isinstance(baseline, dict):
        if not rows:
            raise InputError(f"`table.baseline` {baseline} has nothing to be compared with: the table has one row.")
        if len(rows) != 1:
            raise InputError(f"`table.baseline` must say of which axis, such as {{{rows[0]}: {baseline}}}.")
        baseline = {rows[0]: baseline}
    for axis, label in baseline.items():
        if axis not in rows:
            raise InputError(f"`table.baseline`: `{axis}` is no axis of the rows; {nearest(str(axis), rows)}.")
        if label_of(label) not in axes[axis]:
            raise InputError(
                f"`table.baseline`: {label!r} does not occur on `{axis}`; {nearest(label_of(label), axes[axis])}."
            )
    return rows, columns, {axis: label_of(label) for axis, label in baseline.items()}
