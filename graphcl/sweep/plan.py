"""Plan a sweep: check its specification, and return the cells that its axes span and the layout of its table."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcl.arguments import nearest, shown
from graphcl.config import RUNTIME_SETTINGS, Config, ConfigError, make_config, read_config
from graphcl.config.recipes import override
from graphcl.config.settings import TABLE
from graphcl.datasets.settings import Features
from graphcl.errors import InputError

MAX_COMBINATIONS = 100_000
MAX_LINES = 10
"""Largest number of mistakes that one message lists."""
_SECTIONS = ("settings", "axes", "table")
TABLE_KEYS = ("rows", "columns", "baseline", "select", "jointly", "published")
_KEYS = (*_SECTIONS, "version", "folder")
_SETTINGS = (*Config.model_fields, "recipe")
_NEVER_AXES = ("seeds", "eval", *RUNTIME_SETTINGS)
"""Settings that cannot be axes: `seeds` and `eval` are lists, and the result does not depend on the others."""
_ENCODER_SETTINGS = ("dataset", *TABLE, *Features.model_fields, "encoder", "eval", "evaluation", "seeds")
_PAIR_SETTINGS = ("init", "positives", "targets", "towers", "target_encoder")
_PROJECTOR_SETTINGS = ("projection", "projector", "keep_projector")


@dataclass(frozen=True)
class Cell:
    """One seed of one configuration.

    Attributes:
        key: digest of all settings that affect the result; also the name of the cell's file.
        coordinates: axis -> label of the cell on that axis; also `seed` -> seed.
        config: the complete settings, with one seed.
        reference: key of the cell without training whose scores this cell is compared with.
    """

    key: str
    coordinates: Mapping[str, str]
    config: Config
    reference: str

    def __str__(self) -> str:
        return ", ".join(f"seed {label}" if axis == "seed" else label for axis, label in self.coordinates.items())


@dataclass(frozen=True)
class Layout:
    """The layout of a sweep's table.

    Attributes:
        rows: axes of the rows.
        columns: axis of the columns.
        baseline: axis -> label of the baseline, or None. A row is compared with the row that has these labels on these
            axes and the same labels on all other axes.
        select: axes on which inner folds choose a label, so that the table has one row for all labels.
        jointly: whether one label is chosen for all data sets, not one for each.
        published: row -> column -> published value, such as `77.87 ± 0.41`, to stand below ours.
    """

    rows: Sequence[str]
    columns: str
    baseline: Mapping[str, str] | None = None
    select: Sequence[str] = ()
    jointly: bool = False
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All cells of a sweep and the layout of its table.

    Attributes:
        axes: the labels on each axis; `dataset` is always an axis.
        cells: cells of the table, in the order in which they run.
        references: cells without training, which compute the reference rows; one for each untrained configuration and
            seed.
        table: layout of the table.
        spec: specification that the plan was made from.
    """

    axes: Mapping[str, Sequence[str]]
    cells: Sequence[Cell]
    references: Sequence[Cell]
    table: Layout
    spec: Mapping[str, Any]

    @property
    def tasks(self) -> list[Cell]:
        """All cells to run, without duplicates; the cells that compute reference rows come first."""
        return list({cell.key: cell for cell in (*self.references, *self.cells)}.values())

    @property
    def evaluators(self) -> list[str]:
        """The evaluators that score every cell."""
        return [name for name in self.cells[0].config.eval if all(name in cell.config.eval for cell in self.cells)]


def make_plan(spec: Mapping[str, Any]) -> Plan:
    """Return the plan of a sweep after checking the settings of every cell.

    Args:
        spec: mapping with three optional sections. `settings` are the settings of all cells. `axes` maps the name of a
            setting (`loss`, `loss.temperature`, `dataset`, ...) to a list of values, `recipe` to a list of
            configurations such as `graphcl`, or a new name to a mapping from labels to groups of settings. `table` has
            the keys `rows`, `columns`, `baseline`, `select`, `jointly` and `published`, see `Layout`.

    Raises:
        InputError: an axis, setting or value is invalid; the message has one line for each mistake.

    Example:
        >>> plan = make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {"seeds": [0, 1]}})
        >>> len(plan.cells), len(plan.references), plan.table.rows
        (4, 2, ['loss'])
    """
    settings, axes, table = sections_of(spec)
    points: dict[str, dict[str, Mapping[str, Any]]] = {}
    for axis, values in with_datasets(settings, axes).items():
        groups = values.items() if isinstance(values, dict) else [(label_of(value), {axis: value}) for value in values]
        points[axis] = {str(label): group for label, group in groups}
        if len(points[axis]) < len(groups):
            raise InputError(f"axis `{axis}` must have different values, got {[label for label, _ in groups]}.")
    labels = {axis: list(by_label) for axis, by_label in points.items()}
    plan = Plan(labels, *_span(settings, points), layout(table, labels), dict(spec))
    references: dict[Any, str] = {}
    for cell in plan.cells:
        place = tuple(label for axis, label in cell.coordinates.items() if axis not in plan.table.select)
        if references.setdefault(place, cell.reference) != cell.reference:
            raise InputError("`table.select` must be settings of training; the rows without training depend on these.")
    if not plan.cells[0].config.eval:
        raise InputError("a sweep compares scores, got `eval` none; name an evaluator.")
    if not plan.evaluators:
        raise InputError("`eval` must be the same for all cells; set it under `settings`.")
    return plan


def key_of(config: Config) -> str:
    """Return a digest of the settings in `config` that affect the result."""
    material = {key: value for key, value in config.model_dump().items() if key not in RUNTIME_SETTINGS}
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()[:16]


def _span(
    settings: Mapping[str, Any], points: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> tuple[list[Cell], list[Cell]]:
    """Return a cell for every seed and combination of labels, and the cells that compute the reference rows.

    Args:
        settings: section `settings` of the specification.
        points: axis -> label -> the settings that the label stands for.
    """
    count = math.prod(map(len, points.values()))
    if count > MAX_COMBINATIONS:
        raise InputError(f"the axes span {shown(count)} combinations; a sweep has at most {MAX_COMBINATIONS}.")
    cells: list[Cell] = []
    references: dict[str, Cell] = {}
    problems: dict[str, list[str]] = {}
    for chosen in itertools.product(*points.values()):
        labels = dict(zip(points, chosen, strict=True))
        groups = (settings, *(points[axis][label] for axis, label in labels.items()))
        values = {key: value for group in groups for key, value in group.items()}
        try:
            recipe = values.pop("recipe", None)
            base = {} if recipe is None else read_config(str(recipe), values["dataset"])
            config = make_config(override(base, values), own=values)
        except ConfigError as error:
            for line in str(error).split("\n"):
                problems.setdefault(line, []).append(", ".join(labels.values()))
            continue
        untrained = _without_training(config)
        for seed in config.seeds:
            before = untrained.model_copy(update={"seeds": [seed]})
            coordinates = {"encoder": "untrained", "dataset": labels["dataset"], "seed": str(seed)}
            reference = Cell(key_of(before), coordinates, before, key_of(before))
            references.setdefault(reference.key, reference)
            of_seed = config.model_copy(update={"seeds": [seed]})
            cells.append(Cell(key_of(of_seed), {**labels, "seed": str(seed)}, of_seed, reference.key))
    if problems:
        lines = []
        for line, places in problems.items():
            others = f" and {len(places) - 1} more" if len(places) > 1 else ""
            lines.append(line if len(places) == count else f"{places[0]}{others}: {line}")
        more = [f"... and {len(lines) - MAX_LINES} more."] if len(lines) > MAX_LINES else []
        raise InputError("\n".join(lines[:MAX_LINES] + more))
    # first one seed of every configuration, so that the table fills evenly
    return sorted(cells, key=lambda cell: cell.config.seeds[0]), list(references.values())


def _without_training(config: Config) -> Config:
    """Return `config` with no epochs and all other training settings at their defaults, for the reference rows."""
    names = {*_ENCODER_SETTINGS, *_PAIR_SETTINGS, *RUNTIME_SETTINGS} - {"out"}
    if config.positives == "group":  # the data set has the groups
        names.remove("positives")
    if config.keep_projector or config.towers == "separate":  # embeddings are projections
        names.update(_PROJECTOR_SETTINGS)
    return make_config({**config.model_dump(include=names), "epochs": 0})


def sections_of(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return copies of the sections `settings`, `axes` and `table` of `spec`; a missing section is empty.

    Raises:
        InputError: a section is not a mapping, a key is unknown, or an axis is invalid; one line for each mistake.
    """
    sections = {name: spec.get(name) or {} for name in _SECTIONS}
    wrong = [
        f"`{key}` must be a mapping, got {part!r}." for key, part in sections.items() if not isinstance(part, dict)
    ]
    if wrong:
        raise InputError("\n".join(wrong))
    settings, axes, table = map(dict, sections.values())
    wrong = [f"`{key}` is not a section of a sweep; {nearest(str(key), _KEYS)}." for key in spec if key not in _KEYS]
    wrong += [f"`settings`: unknown setting {_unknown(key)}" for key in settings if root_of(key) not in _SETTINGS]
    if "resume" in (*settings, *axes):
        wrong.append("`resume` is for single runs; to resume a sweep, pass its folder.")
    if settings.get("track"):
        wrong.append("`track` is for single runs; a sweep keeps the metrics of each cell in its folder.")
    for axis, values in axes.items():
        wrong += _axis_problems(axis, values) if axis != "resume" else []
    wrong += [
        f"`table`: unknown key `{key}`; {nearest(str(key), TABLE_KEYS)}." for key in table if key not in TABLE_KEYS
    ]
    if wrong:
        raise InputError("\n".join(wrong))
    return settings, axes, table


def with_datasets(settings: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `axes` with the axis `dataset`: by default, of the one data set of the settings or of their recipe."""
    if "dataset" in axes:
        return dict(axes)
    recipe = read_config(str(settings["recipe"])) if "recipe" in settings else {}
    return {**axes, "dataset": [settings.get("dataset") or recipe.get("dataset", "synthetic")]}


def _axis_problems(axis: Any, values: Any) -> list[str]:
    if root_of(axis) in _NEVER_AXES:
        return [f"`{axis}` cannot be an axis; set it under `settings`, for all cells."]
    if not isinstance(values, dict):
        if root_of(axis) not in _SETTINGS:
            return [f"unknown axis {_unknown(axis)}"]
        fits = isinstance(values, list) and values
        return [] if fits else [f"axis `{axis}` must be a list of one or more values, got {values!r}."]
    groups = values and all(isinstance(group, dict) for group in values.values())
    if not groups or not isinstance(axis, str) or axis in (*_SETTINGS, "seed"):
        return [f"axis `{axis}` must be a list of values, or have a new name and map labels to groups of settings."]
    keys = dict.fromkeys(str(key) for group in values.values() for key in group)
    never = [key for key in keys if root_of(key) in (*_NEVER_AXES, "dataset")]
    return [
        *(f"axis `{axis}`: `{key}` cannot be in a group; set it under `settings` or as an axis." for key in never),
        *(f"axis `{axis}`: unknown setting {_unknown(key)}" for key in keys if root_of(key) not in _SETTINGS),
    ]


def label_of(value: Any) -> str:
    """Return the label of `value` in tables, such as `adnce(mu=0.5)` for a name with arguments."""
    if isinstance(value, dict) and "name" in value:
        arguments = ", ".join(f"{key}={label_of(argument)}" for key, argument in value.items() if key != "name")
        return f"{value['name']}({arguments})" if arguments else str(value["name"])
    if value is None or isinstance(value, (dict, list, bool)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def layout(table: Mapping[str, Any], axes: Mapping[str, Sequence[str]]) -> Layout:
    """Return the layout of a table. By default, columns are data sets, and all other axes with two labels are rows.

    Args:
        table: the section `table` of the specification.
        axes: axis -> its labels.

    Raises:
        InputError: an axis or label is unknown, an axis is missing, or the baseline is ambiguous.
    """
    columns, select = table.get("columns") or "dataset", listed(table.get("select"))
    several = [axis for axis, labels in axes.items() if axis not in (columns, *select) and len(labels) > 1]
    rows = listed(table.get("rows")) or several
    for axis in (columns, *rows, *select):
        if not isinstance(axis, str) or axis not in axes:
            raise InputError(f"`table`: `{axis}` is not an axis of this sweep; {nearest(str(axis), axes)}.")
    if columns in rows or len(set(rows)) < len(rows):
        raise InputError(f"`table`: rows and columns must be different axes, got rows {rows} and columns {columns}.")
    for axis in several:
        if axis not in rows:
            raise InputError(f"`table.rows` must name every axis but that of the columns; `{axis}` is missing.")
    for axis in select:
        if axis in (columns, *rows):
            raise InputError(f"`table.select`: a label of `{axis}` is chosen, so it cannot be an axis of the table.")
    jointly = table.get("jointly") or False
    if not isinstance(jointly, bool):
        raise InputError(f"`table.jointly` must be true or false, got {jointly!r}.")
    if jointly and not select:
        raise InputError("`table.jointly` needs `table.select`, the axis whose label all data sets share.")
    published = _published(table.get("published") or {}, rows, columns, axes)
    return Layout(rows, columns, _baseline(table.get("baseline"), rows, axes), select, jointly, published)


def _published(
    values: Any, rows: Sequence[str], columns: str, axes: Mapping[str, Sequence[str]]
) -> Mapping[str, Mapping[str, str]]:
    """Return the published values of a table; those of columns that it does not have are left out."""
    if not values:
        return {}
    if len(rows) != 1:
        raise InputError(f"`table.published` needs a table with one axis of rows, got {shown(rows)}.")
    published: dict[str, dict[str, str]] = {}
    for row, of_row in values.items() if isinstance(values, dict) else [(values, None)]:
        if not isinstance(of_row, dict):
            raise InputError(f"`table.published` must map rows to columns and values, got {shown(row)}.")
        if row not in axes[rows[0]]:
            raise InputError(
                f"`table.published`: {row!r} does not occur on `{rows[0]}`; {nearest(row, axes[rows[0]])}."
            )
        for column, value in of_row.items():
            if not re.fullmatch(r"-?\d+(\.\d+)?( ± \d+(\.\d+)?)?", str(value)):
                raise InputError(f"`table.published.{row}.{column}` must be MEAN or MEAN ± DEVIATION, got {value!r}.")
            if column in axes[columns]:
                published.setdefault(row, {})[column] = str(value)
    return published


def listed(value: Any) -> list[Any]:
    """Return a list as a copy, None as an empty list, and another value as a list of one."""
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _baseline(baseline: Any, rows: Sequence[str], axes: Mapping[str, Sequence[str]]) -> Mapping[str, str] | None:
    if baseline is None or baseline == {}:
        return None
    if not isinstance(baseline, dict):
        if not rows:
            raise InputError(f"`table.baseline` needs an axis, but the table has one row; got {baseline}.")
        if len(rows) > 1:
            label = label_of(baseline)
            options = [f"--baseline {axis}={label}" for axis in rows if label in axes[axis]]
            write = f"write {' or '.join(options)}, in a file {{AXIS: {label}}}"
            either = write if options else nearest(label, [name for axis in rows for name in axes[axis]])
            raise InputError(f"`table.baseline` must name one of the axes {', '.join(rows)}, got {label}; {either}.")
        baseline = {rows[0]: baseline}
    labels = {axis: label_of(label) for axis, label in baseline.items()}
    for axis, label in labels.items():
        if axis not in rows:
            raise InputError(f"`table.baseline`: `{axis}` is not an axis of the rows; {nearest(str(axis), rows)}.")
        if label not in axes[axis]:
            raise InputError(f"`table.baseline`: {label!r} does not occur on `{axis}`; {nearest(label, axes[axis])}.")
    return labels


def _unknown(key: Any) -> str:
    return f"`{key}`; {nearest(str(key), _SETTINGS)}."


def root_of(path: Any) -> str:
    """Return the name of a setting, without the parts after its first dot."""
    return str(path).split(".")[0]
