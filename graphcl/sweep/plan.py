"""The plan of a sweep: the axes of its table and the cells that they span."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphcl.arguments import shown
from graphcl.config import RUNTIME_SETTINGS, Config, ConfigError, make_config, read_config
from graphcl.config.recipes import override
from graphcl.config.settings import TABLE
from graphcl.errors import InputError
from graphcl.sweep.spec import check_sections, layout, points_on, sections_of

MAX_COMBINATIONS = 100_000
MAX_LINES = 10
"""Largest number of mistakes that one message lists."""
_ENCODER_SETTINGS = ("dataset", *TABLE, "features", "max_degree", "encoder", "eval", "evaluation", "seeds")
Point = tuple[str, Mapping[str, Any]]
"""A label on an axis, and the settings that the label stands for."""


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
class Plan:
    """All cells of a sweep and the layout of its table.

    Attributes:
        axes: the labels on each axis; `dataset` is always an axis.
        cells: cells of the table, in the order in which they run.
        references: cells without training, which compute the reference rows; one for each untrained configuration and
            seed.
        rows: axes of the table's rows.
        columns: axis of the table's columns.
        baseline: axis -> label of the baseline, or None. A row is compared with the row that has these labels on these
            axes and the same labels on all other axes.
        spec: specification that the plan was made from.
    """

    axes: Mapping[str, Sequence[str]]
    cells: Sequence[Cell]
    references: Sequence[Cell]
    rows: Sequence[str]
    columns: str
    baseline: Mapping[str, str] | None
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
            the keys `rows`, `columns` and `baseline`.

    Raises:
        InputError: an axis, setting or value is invalid; the message has one line for each mistake.

    Example:
        >>> plan = make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {"seeds": [0, 1]}})
        >>> len(plan.cells), len(plan.references), plan.rows
        (4, 2, ['loss'])
    """
    settings, axes, table = sections_of(spec)
    check_sections(spec, settings, axes, table)
    if "dataset" not in axes:
        recipe = read_config(str(settings["recipe"])) if "recipe" in settings else {}
        axes = {**axes, "dataset": [settings.get("dataset") or recipe.get("dataset", "synthetic")]}
    points = {axis: list(points_on(axis, values)) for axis, values in axes.items()}
    labels = {axis: [label for label, _ in found] for axis, found in points.items()}
    for axis, names in labels.items():
        if len(set(names)) < len(names):
            raise InputError(f"axis `{axis}` must have different values, got {names}.")
    rows, columns, baseline = layout(table, labels)
    cells, references = _span(settings, points)
    return Plan(labels, cells, references, rows, columns, baseline, dict(spec))


def key_of(config: Config) -> str:
    """Return a digest of the settings in `config` that affect the result."""
    material = {key: value for key, value in config.model_dump().items() if key not in RUNTIME_SETTINGS}
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()[:16]


def _span(settings: Mapping[str, Any], points: Mapping[str, Sequence[Point]]) -> tuple[list[Cell], list[Cell]]:
    """Return a cell for every seed and combination of labels, and the cells that compute the reference rows."""
    if (count := math.prod(map(len, points.values()))) > MAX_COMBINATIONS:
        raise InputError(f"the axes span {shown(count)} combinations; a sweep has at most {MAX_COMBINATIONS}.")
    cells: list[Cell] = []
    references: dict[str, Cell] = {}
    problems: dict[str, list[str]] = {}
    for chosen in itertools.product(*points.values()):
        labels = {axis: label for axis, (label, _) in zip(points, chosen, strict=True)}
        try:
            config = _config(settings, [values for _, values in chosen])
        except ConfigError as error:
            for line in str(error).split("\n"):
                problems.setdefault(line, []).append(", ".join(labels.values()))
            continue
        encoder = _without_training(config)
        for seed in config.seeds:
            one, before = (each.model_copy(update={"seeds": [seed]}) for each in (config, encoder))
            key = key_of(before)
            coordinates = {"encoder": "untrained", "dataset": labels["dataset"], "seed": str(seed)}
            references.setdefault(key, Cell(key, coordinates, before, key))
            cells.append(Cell(key_of(one), {**labels, "seed": str(seed)}, one, key))
    if problems:
        raise InputError(_message(problems, count))
    if not set.intersection(*(set(cell.config.eval) for cell in cells)):
        raise InputError(
            "`eval` must be the same for all cells, so that they can be compared; set it under `settings`."
        )
    for _, group in itertools.groupby(sorted(cells, key=lambda cell: cell.key), key=lambda cell: cell.key):
        if len(twins := list(group)) > 1:
            raise InputError(f"two cells of the sweep have the same settings: {twins[0]} and {twins[1]}.")
    # first one seed of every configuration, so that the table fills evenly
    return sorted(cells, key=lambda cell: cell.config.seeds[0]), list(references.values())


def _message(problems: Mapping[str, Sequence[str]], combinations: int) -> str:
    """Return a message with a line for each problem and combination; a problem of all combinations has one line."""
    lines = []
    for line, places in problems.items():
        lines += [line] if len(places) == combinations else [f"{place}: {line}" for place in places]
    more = [f"... and {len(lines) - MAX_LINES} more."] if len(lines) > MAX_LINES else []
    return "\n".join(lines[:MAX_LINES] + more)


def _config(settings: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> Config:
    """Return the configuration of a cell: its recipe, overridden by `settings`, then by the settings of its labels."""
    given = {key: value for part in (settings, *chosen) for key, value in part.items()}
    recipe = given.pop("recipe", None)
    return make_config(override({} if recipe is None else read_config(str(recipe), given["dataset"]), given))


def _without_training(config: Config) -> Config:
    """Return `config` with no epochs and all other training settings at their defaults, for the reference rows."""
    values = config.model_dump()
    kept = [key for key in (*_ENCODER_SETTINGS, *RUNTIME_SETTINGS) if key != "out"]
    return make_config({**{key: values[key] for key in kept}, "epochs": 0})
