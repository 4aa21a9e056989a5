"""From the words of a command line to a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcl.arguments import nearest
from graphcl.config.command_line import one_value, read_value, split_options
from graphcl.config.files import parse_value, read_yaml, shipped_sweeps
from graphcl.config.settings import Config
from graphcl.errors import InputError
from graphcl.sweep.spec import PARTS, parts_of

HELP = """\
usage: python -m graphcl.sweep [FILE] [--KEY VALUE [VALUE ...]] ... --out FOLDER

Run every combination of the given settings for every seed, in parallel, and make a table of it. What is finished is
never run again: the same command, or `--out FOLDER` alone, goes on where a sweep was stopped.

  FILE                  a sweep in YAML: settings, axes, table; or the name of one that comes with the package
  --KEY VALUE           a setting of `graphcl.run` for all cells
  --KEY VALUE VALUE     an axis: a cell for each value; any setting but seeds, eval and those of the machine
  --recipe NAME ...     configurations: `graphcl` stands for `graphcl/DATASET` on every data set
  --seeds S S ...       a cell each; 0 to 4 by default
  --out FOLDER          a new folder, or that of the sweep to go on with (relative paths: from where that was started)
  --workers N           processes [as many as the machine has cores and memory for; one for each GPU]
  --columns AXIS        whose values are the table's columns [dataset]
  --rows AXIS ...       whose values are its rows [all others]
  --baseline LABEL      a row that the others are tested against; AXIS=LABEL where there are several axes
  --dry-run             say what there is to do, and stop
  --help                print this, and stop

FOLDER holds: table.md, table.tex, cells.csv (tidy), figures (with matplotlib), cells/KEY.json (all of a cell: `python
-m graphcl.run --config FOLDER/cells/KEY.json` repeats it), and sweep.yaml (what it was made of).

sweeps that come with the package: """

_OWN = ("out", "workers", "columns", "rows", "baseline", "dry_run", "recipe")


@dataclass(frozen=True)
class Command:
    """What a command line asks for; relative paths in the specification are meant from the folder `start`."""

    spec: dict[str, Any]
    out: Path
    workers: int | None
    dry_run: bool
    start: Path


def parse(words: Sequence[str]) -> Command:
    """The sweep that a command line describes.

    Raises:
        InputError: with a line for each mistake.
    """
    file = words[0] if words and not words[0].startswith("--") else None
    options = split_options(words[1:] if file else words, [*Config.model_fields, *_OWN])
    given = dict(options)
    out = Path(one_value("out", given["out"])) if "out" in given else _default_folder(file)
    spec = read_yaml(_file(file)) if file else _of_folder(out, options)
    start = Path.cwd() if file else _start(spec)
    settings, axes, table = parts = parts_of(spec)
    spec = {**spec, **dict(zip(PARTS, parts, strict=True))}
    for key, values in options:
        if key in ("out", "workers", "dry_run"):
            continue
        if key in ("columns", "rows", "baseline"):
            table[key] = _table_value(key, values)
            continue
        settings.pop(key, None)
        axes.pop(key, None)
        if len(values) > 1 and key not in ("seeds", "eval"):
            axes[key] = [read_value(key, [value]) for value in values]
        else:
            settings[key] = read_value(key, values)
    workers = parse_value(one_value("workers", given["workers"])) if "workers" in given else None
    if workers is not None and (type(workers) is not int or workers < 1):
        raise InputError(f"`--workers` must be a whole number of at least 1, got {workers!r}.")
    return Command(spec, out if start == Path.cwd() else out.absolute(), workers, "dry_run" in given, start)


def _of_folder(out: Path, options: Sequence[tuple[str, list[str]]]) -> dict[str, Any]:
    """The sweep in the folder, where nothing else is said of what to run; else none yet."""
    own = {"out", "workers", "dry_run"}
    if any(key not in own for key, _ in options):
        return {}
    if not (out / "sweep.yaml").exists():
        raise InputError(f"{out} holds no sweep to go on with; name a FILE, or axes such as --loss infonce dcl.")
    return read_yaml(out / "sweep.yaml")


def _start(spec: Mapping[str, Any]) -> Path:
    """Where a sweep that goes on was started, as long as there is such a folder here; else the present one."""
    start = Path(str(spec.get("folder", "")))
    return start if start.is_absolute() and start.is_dir() else Path.cwd()


def _file(name: str) -> Path:
    sweeps = shipped_sweeps()
    if name in sweeps and not Path(name).exists():
        return sweeps[name]
    if not Path(name).is_file():
        raise InputError(f"there is no file or sweep {name!r}; {nearest(name, sweeps)}.")
    return Path(name)


def _default_folder(file: str | None) -> Path:
    if file is None:
        raise InputError("`--out` must name the sweep's folder: a new one, or that of a sweep to go on with.")
    return Path("sweeps") / Path(file).stem


def _table_value(key: str, values: list[str]) -> Any:
    if key == "columns":
        return one_value(key, values)
    if key == "rows":
        return values
    if all("=" in value for value in values):
        return dict(value.split("=", 1) for value in values)
    return one_value(key, values)
