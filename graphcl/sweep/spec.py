"""Check the specification of a sweep, and read its sections, axes and table layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphcl.arguments import nearest
from graphcl.config import RUNTIME_SETTINGS, Config
from graphcl.errors import InputError

SECTIONS = ("settings", "axes", "table")
TABLE_KEYS = ("rows", "columns", "baseline")
_KEYS = (*SECTIONS, "version", "folder")
_NEVER_AXES = ("seeds", "eval", *RUNTIME_SETTINGS)
"""Settings that cannot be axes: `seeds` and `eval` are lists, and the result does not depend on the others."""


def sections_of(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return copies of the sections `settings`, `axes` and `table` of `spec`; a missing section is empty.

    Raises:
        InputError: a section is not a mapping.
    """
    sections = {name: spec.get(name) or {} for name in SECTIONS}
    wrong = {name: section for name, section in sections.items() if not isinstance(section, dict)}
    if wrong:
        raise InputError("\n".join(f"`{name}` must be a mapping, got {section!r}." for name, section in wrong.items()))
    settings, axes, table = (dict(section) for section in sections.values())
    return settings, axes, table


def check_sections(
    spec: Mapping[str, Any], settings: Mapping[str, Any], axes: Mapping[str, Any], table: Mapping[str, Any]
) -> None:
    """Raise InputError listing every unknown key and invalid axis, if there are any."""
    found = [f"`{key}` is not a section of a sweep; {nearest(str(key), _KEYS)}." for key in spec if key not in _KEYS]
    known = [*Config.model_fields, "recipe"]
    for key in settings:
        if _root(key) not in known:
            found.append(f"`settings`: unknown setting `{key}`; {nearest(str(key), known)}.")
    if "resume" in (*settings, *axes):
        found.append("`resume` is for single runs; to resume a sweep, pass its folder.")
    if settings.get("track"):
        found.append("`track` is for single runs; a sweep keeps the metrics of each cell in its folder.")
    for axis, values in axes.items():
        if _root(axis) in _NEVER_AXES and axis != "resume":
            found.append(f"`{axis}` cannot be an axis; set it under `settings`, for all cells.")
        elif isinstance(values, dict):
            found += _group_problems(axis, values, known)
        elif _root(axis) not in known:
            found.append(f"unknown axis `{axis}`; {nearest(str(axis), known)}.")
        elif not isinstance(values, list) or not values:
            found.append(f"axis `{axis}` must be a list of one or more values, got {values!r}.")
    found += [
        f"`table`: unknown key `{key}`; {nearest(str(key), TABLE_KEYS)}." for key in table if key not in TABLE_KEYS
    ]
    if found:
        raise InputError("\n".join(found))


def points_on(axis: str, values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each label on the axis `axis`, and the settings that the label stands for."""
    if isinstance(values, dict):
        yield from ((str(label), dict(group)) for label, group in values.items())
    else:
        yield from ((label_of(value), {axis: value}) for value in values)


def label_of(value: Any) -> str:
    """Return the label of `value` in tables, such as `adnce(mu=0.5)` for a name with arguments."""
    if isinstance(value, dict) and "name" in value:
        arguments = ", ".join(f"{key}={label_of(each)}" for key, each in value.items() if key != "name")
        return f"{value['name']}({arguments})" if arguments else str(value["name"])
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def layout(
    table: Mapping[str, Any], axes: Mapping[str, Sequence[str]]
) -> tuple[list[str], str, Mapping[str, str] | None]:
    """Return the axes of the rows, the axis of the columns, and the baseline. By default, columns are data sets.

    Args:
        table: the section `table` of the specification.
        axes: axis -> its labels.

    Raises:
        InputError: an axis or label is unknown, an axis is missing, or the baseline is ambiguous.
    """
    columns = table.get("columns") or "dataset"
    rows = table.get("rows") or [axis for axis, labels in axes.items() if axis != columns and len(labels) > 1]
    rows = list(rows) if isinstance(rows, list) else [rows]
    for axis in [columns, *rows]:
        if not isinstance(axis, str) or axis not in axes:
            raise InputError(f"`table`: `{axis}` is not an axis of this sweep; {nearest(str(axis), axes)}.")
    if len({columns, *rows}) <= len(rows):
        raise InputError(f"`table`: rows and columns must be different axes, got rows {rows} and columns {columns}.")
    left = [axis for axis, labels in axes.items() if len(labels) > 1 and axis not in [columns, *rows]]
    if left:
        raise InputError(f"`table.rows` must name every axis but that of the columns; `{left[0]}` is missing.")
    return rows, columns, _baseline(table.get("baseline"), rows, axes)


def _baseline(baseline: Any, rows: Sequence[str], axes: Mapping[str, Sequence[str]]) -> Mapping[str, str] | None:
    if baseline is None or baseline == {}:
        return None
    if not isinstance(baseline, dict):
        if not rows:
            raise InputError(f"`table.baseline` {baseline} has no effect: the table has one row.")
        if len(rows) != 1:
            raise InputError(f"`table.baseline` must name the axis too, such as {{{rows[0]}: {baseline}}}.")
        baseline = {rows[0]: baseline}
    for axis, label in baseline.items():
        if axis not in rows:
            raise InputError(f"`table.baseline`: `{axis}` is not an axis of the rows; {nearest(str(axis), rows)}.")
        if label_of(label) not in axes[axis]:
            raise InputError(
                f"`table.baseline`: {label!r} does not occur on `{axis}`; {nearest(label_of(label), axes[axis])}."
            )
    return {axis: label_of(label) for axis, label in baseline.items()}


def _group_problems(axis: Any, groups: Mapping[Any, Any], known: Sequence[str]) -> list[str]:
    """Return the problems of an axis whose labels stand for groups of settings, one line per problem."""
    if axis in known or not all(isinstance(each, dict) for each in groups.values()) or not groups:
        return [f"axis `{axis}` must be a list of values, or have a new name and map labels to groups of settings."]
    if not isinstance(axis, str) or axis == "seed":
        return [f"axis `{axis}` must have another name: a string, and not `seed`, which each cell has."]
    keys = dict.fromkeys(str(key) for group in groups.values() for key in group)
    never = [key for key in keys if _root(key) in (*_NEVER_AXES, "dataset")]
    unknown = [key for key in keys if _root(key) not in known]
    return [
        *(f"axis `{axis}`: `{key}` cannot be in a group; set it under `settings` or as an axis." for key in never),
        *(f"axis `{axis}`: unknown setting `{key}`; {nearest(key, known)}." for key in unknown),
    ]


def _root(path: Any) -> str:
    return str(path).split(".")[0]
