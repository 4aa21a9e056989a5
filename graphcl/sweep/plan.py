"""What a sweep is made of: axes, and the cells that they span."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcl.arguments import nearest, shown
from graphcl.config.files import read_config, shipped_configs
from graphcl.config.settings import HOW, Config, ConfigError, make_config, set_value
from graphcl.errors import InputError
from graphcl.sweep.spec import check_parts, layout, parts_of, points_on

MOST_COMBINATIONS = 100_000
_OF_THE_ENCODER = ("dataset", "features", "max_degree", "encoder", "eval", "evaluation", "seeds")


@dataclass(frozen=True)
class Cell:
    """One seed of one configuration.

    Args:
        key: names the outcome's file: a digest of all settings that a figure hangs on.
        coordinates: where on each axis it lies, and its `seed`.
        config: the complete settings, of this one seed.
        untrained: key of the cell of the same encoder without training.
    """

    key: str
    coordinates: Mapping[str, str]
    config: Config
    untrained: str

    def __str__(self) -> str:
        return ", ".join(f"seed {label}" if axis == "seed" else label for axis, label in self.coordinates.items())


@dataclass(frozen=True)
class Plan:
    """All cells of a sweep, and how its table is laid out.

    Args:
        axes: the labels on each axis, `dataset` among them.
        cells: in the order they are run.
        untrained: cells of the encoders as they are before training, each once.
        rows: axes whose labels make the table's rows.
        columns: the axis of its columns.
        baseline: labels on some of the rows' axes; every row is compared with its twin there.
        spec: what it was made of, to be kept.
    """

    axes: Mapping[str, Sequence[str]]
    cells: Sequence[Cell]
    untrained: Sequence[Cell]
    rows: Sequence[str]
    columns: str
    baseline: Mapping[str, str] | None
    spec: Mapping[str, Any]

    @property
    def tasks(self) -> list[Cell]:
        """All cells to be run, each once: the untrained encoders first."""
        return list({cell.key: cell for cell in (*self.untrained, *self.cells)}.values())

    @property
    def evaluators(self) -> list[str]:
        """The evaluators that every cell is scored by."""
        return [name for name in self.cells[0].config.eval if all(name in cell.config.eval for cell in self.cells)]


def make_plan(spec: Mapping[str, Any]) -> Plan:
    """Span the cells of a sweep, and check every one of them.

    Args:
        spec: `settings` for all cells; `axes`, each a list of values of a setting (`loss`, `loss.temperature`,
            `dataset`, ...), or of recipes (`recipe`: `graphcl` means the configuration `graphcl/DATASET`, or the one
            that is named so), or a mapping from labels to several settings; and `table`, with `rows`, `columns` and
            `baseline`.

    Raises:
        InputError: an axis or a setting that there is not, values that do not fit; a line each.

    Example:
        >>> plan = make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {"seeds": [0, 1]}})
        >>> len(plan.cells), len(plan.untrained), plan.rows
        (4, 2, ['loss'])
    """
    settings, axes, table = parts_of(spec)
    check_parts(spec, settings, axes, table)
    if "dataset" not in axes and "dataset" not in settings and "recipe" in {**settings, **axes}:
        raise InputError("`recipe` needs the data sets to which it is applied; name them as `dataset`.")
    if "dataset" not in axes:
        axes = {**axes, "dataset": [settings.get("dataset", "synthetic")]}
    points = {axis: list(points_on(axis, values)) for axis, values in axes.items()}
    for axis, found in points.items():
        names = [label for label, _ in found]
        if len(set(names)) < len(names):
            raise InputError(f"axis `{axis}` must have different values, got {names}.")

    cells: list[Cell] = []
    labels: dict[str, str]
    untrained: dict[str, Cell] = {}
    problems: dict[str, list[str]] = {}
    if (count := math.prod(map(len, points.values()))) > MOST_COMBINATIONS:
        raise InputError(f"the axes span {shown(count)} combinations; a sweep has at most {MOST_COMBINATIONS}.")
    combinations = list(itertools.product(*points.values()))
    for chosen in combinations:
        labels = {axis: label for axis, (label, _) in zip(points, chosen, strict=True)}
        try:
            config = _config(settings, [values for _, values in chosen])
        except ConfigError as error:
            for line in str(error).split("\n"):
                problems.setdefault(line, []).append(", ".join(labels.values()))
            continue
        encoder = _before_training(config)
        for seed in config.seeds:
            one, before = (each.model_copy(update={"seeds": [seed]}) for each in (config, encoder))
            key = key_of(before)
            where = {"dataset": labels["dataset"], "seed": str(seed)}
            untrained.setdefault(key, Cell(key, {"encoder": "untrained", **where}, before, key))
            cells.append(Cell(key_of(one), {**labels, "seed": str(seed)}, one, key))
    if problems:
        lines = []
        for line, places in problems.items():
            # What is wrong everywhere is no fault of a combination.
            everywhere = len(places) == len(combinations)
            lines += [line] if everywhere else [f"{place}: {line}" for place in places]
        more = [f"... and {len(lines) - 10} more."] if len(lines) > 10 else []
        raise InputError("\n".join(lines[:10] + more))
    if not set.intersection(*(set(cell.config.eval) for cell in cells)):
        raise InputError(
            "`eval` must be the same for all cells, so that they can be compared; set it under `settings`."
        )
    if len({cell.key for cell in cells}) < len(cells):
        raise InputError(f"two cells of the sweep have the same settings: {_twins(cells)}.")
    labels_of = {axis: [label for label, _ in found] for axis, found in points.items()}
    rows, columns, baseline = layout(table, labels_of)
    # A seed of every configuration first, so that the table fills evenly.
    cells.sort(key=lambda cell: cell.config.seeds[0])
    return Plan(labels_of, cells, list(untrained.values()), rows, columns, baseline, dict(spec))


def _config(settings: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> Config:
    """The configuration of a point: a recipe first, then settings, then what the axes choose; the general before the
    particular, so that `loss` does not undo `loss.temperature`."""
    given = [item for part in (settings, *chosen) for item in part.items()]
    named = dict(given)
    values: dict[str, Any] = {}
    if "recipe" in named:
        values = _recipe(str(named["recipe"]), str(named.get("dataset", "synthetic")))
    for key, value in sorted(given, key=lambda item: item[0].count(".")):
        if key != "recipe":
            set_value(values, key.split("."), value)
    return make_config(values)


def _recipe(name: str, dataset: str) -> dict[str, Any]:
    """The configuration `NAME/DATASET`, of those that come with the package or of a folder; else that called NAME."""
    for file in (Path(dataset).stem, "default"):  # a folder's default is for sets without one of their own
        for each in (f"{name}/{file}", f"{name}/{file}.yaml"):
            if each in shipped_configs() or Path(each).is_file():
                return {**read_config(each)}
    folders = {each.rsplit("/", 1)[0] for each in shipped_configs()}
    if name in folders:
        raise InputError(f"recipe {name!r} has no configuration for {dataset!r}; write one, or leave the set out.")
    if Path(name).is_dir():
        raise InputError(f"the folder {name} has no configuration {Path(dataset).stem}.yaml for that data set.")
    if name not in shipped_configs() and not Path(name).is_file():
        raise InputError(f"there is no recipe {name!r}; {nearest(name, sorted(folders | set(shipped_configs())))}.")
    return dict(read_config(name))


def _before_training(config: Config) -> Config:
    """The settings of the same encoder, untrained: of what does not touch it, the defaults."""
    values = config.model_dump()
    return make_config({**{key: values[key] for key in (*_OF_THE_ENCODER, *HOW) if key != "out"}, "epochs": 0})


def key_of(config: Config) -> str:
    """A digest of all settings that a figure hangs on."""
    material = {key: value for key, value in config.model_dump().items() if key not in HOW}
    return hashlib.sha256(json.dumps(material, sort_keys=True).encode()).hexdigest()[:16]


def _twins(cells: Sequence[Cell]) -> str:
    seen: dict[str, Cell] = {}
    for cell in cells:
        if cell.key in seen:
            return f"{seen[cell.key]} and {cell}"
        seen[cell.key] = cell
    return ""
