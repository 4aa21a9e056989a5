"""`graphcl sweep`: run a table of settings x data sets x seeds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import Field

from graphcl.arguments import Count, Settings, nearest
from graphcl.cli import program
from graphcl.cli.command_line import Command, Options, one_value, read_value
from graphcl.config import Config
from graphcl.config.recipes import read_yaml, shipped_configs
from graphcl.errors import InputError


class SweepSettings(Settings):
    """Run every combination of the given settings for every seed, in parallel, and make a table of the scores.
    Finished cells are never run again: the same command, or `--out FOLDER` alone, resumes a sweep. Further --seeds,
    --dataset and values of its axes extend it; other settings are refused.

      --KEY VALUE             setting of `graphcl run` for all cells
      --KEY VALUE VALUE ...   axis: a cell for each value of that setting
      --seeds N ...           a cell for each seed [0 1 2 3 4]
    """

    file: str | None = Field(None, description="sweep in YAML: settings, axes, table; or the name of a shipped sweep")
    out: Annotated[str | None, Field(title="FOLDER")] = None
    """new folder, or that of a sweep to resume or extend; for a FILE the default is sweeps/FILE"""
    workers: Count | None = None
    """processes; default: as many as cores and memory allow, or one for each GPU"""
    executor: Annotated[str, Field(title="NAME")] = "loky"
    """loky: processes of this machine; dask:ADDRESS: the workers of a Dask scheduler (pip install "graphcl[cluster]");
    MODULE:FUNCTION: a function from the number of workers to a concurrent.futures.Executor"""
    recipe: list[str] = Field([], title="NAME ...", description="axis of configurations, shipped or files")
    columns: str | None = Field(None, title="AXIS", description="axis of the table's columns; default: dataset")
    rows: list[str] = Field([], title="AXIS ...", description="axes of the table's rows; default: all others")
    baseline: Annotated[str | None, Field(title="LABEL")] = None
    """row to compare the others with; AXIS=LABEL if there are several axes"""
    select: list[str] = Field([], title="AXIS ...")
    """axes such as loss.temperature; the inner folds of each test fold select a value, so there is one tuned row"""
    jointly: bool = Field(False, description="with --select: one value for all data sets, not one for each")
    reuse: list[str] = Field([], title="FOLDER ...")
    """other sweeps; cells that they have finished are not run again, so one table can show several sweeps"""
    dry_run: bool = Field(False, description="print the number of cells and exit")


COMMAND = Command(
    "graphcl sweep [FILE] [--KEY VALUE [VALUE ...]] ... --out FOLDER",
    SweepSettings,
    positional="file",
    of_run=True,
    details=lambda: (
        "FOLDER holds table.md, table.tex, cells.csv, figures, sweep.yaml (the sweep itself), and\n"
        "cells/KEY.json: `graphcl run --config FOLDER/cells/KEY.json` repeats a cell. Paths in a sweep are relative\n"
        "to the folder in which it was started.\n\n"
        f"shipped sweeps: {', '.join(sorted(shipped_configs('sweeps')))}"
    ),
)


class Request(NamedTuple):
    """The sweep that a command line requests: what it and its file, if any (`whole`), set, to run in the folder `out`.

    Relative paths refer to the folder `start`. With `printed`, the sweep is printed instead.
    """

    spec: dict[str, Any]
    whole: bool
    settings: SweepSettings
    out: Path
    start: Path
    printed: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep described by `arguments`; return the exit code: 1 if cells failed, else 0."""
    with program("nothing was started") as this:
        if request := parse(sys.argv[1:] if arguments is None else arguments):
            before = Path.cwd()
            os.chdir(request.start)
            try:
                this.code = _run(request)
            except KeyboardInterrupt:
                line = f"finished cells are in {request.out}; the same command resumes the sweep"
                raise KeyboardInterrupt(line) from None
            finally:
                os.chdir(before)
    return this.code


def parse(arguments: Sequence[str]) -> Request | None:
    """Return the sweep described by `arguments`.

    For `--help` and `--version`, print the requested text and return None.

    Raises:
        InputError: arguments are invalid.
    """
    if COMMAND.show_help(arguments):
        return None
    from graphcl.sweep.folder import stored_spec  # imported here, as help texts need no torch
    from graphcl.sweep.plan import TABLE_KEYS

    file, options = COMMAND.split(arguments, *Config.model_fields)
    shipped = shipped_configs("sweeps")
    if file is None:  # `--config NAME` of a shipped sweep, as of a shipped configuration
        file = next((values[0] for key, values in options if key == "config" and values[0] in shipped), None)
        options = [option for option in options if file is None or option != ("config", [file])]
    here = {key: values for key, values in options if key in ("out", "workers", "executor", "dry_run", "reuse")}
    settings = COMMAND.model_validate({key: read_value(SweepSettings, key, values) for key, values in here.items()})
    # the sweep may have started in another folder
    settings = settings.model_copy(update={"reuse": [str(Path(folder).absolute()) for folder in settings.reuse]})
    if not settings.out and file is None:
        raise InputError("`--out` must name the folder of the sweep: a new one, or that of a sweep to resume.")
    out = Path(settings.out or f"sweeps/{Path(str(file)).stem}")
    options = [option for option in options if option[0] not in here]
    spec, stored = dict[str, Any](), stored_spec(out)
    if file:
        path = Path(file) if Path(file).exists() else shipped.get(file, Path(file))
        if not path.is_file():
            raise InputError(f"sweep {file!r} not found; {nearest(file, shipped)}, or pass a file.")
        spec = read_yaml(path)
    elif not stored and {key for key, _ in options} <= {*TABLE_KEYS, "print_config"}:
        raise InputError(f"{out} holds no sweep to resume; pass a FILE, or axes such as --loss infonce dcl.")
    start = Path(str(stored.get("folder", "")))
    start = start if start.is_absolute() and start.is_dir() else Path.cwd()
    spec = _override(spec, options)
    if start != Path.cwd():
        spec, out = _moved(spec, start), out.absolute()
    return Request(spec, file is not None, settings, out, start, "print_config" in dict(options))


def _moved(value: Any, start: Path) -> Any:
    """Return settings with the relative paths in them relative to the folder `start`; a bare name of a folder stays."""
    if isinstance(value, dict):
        return {key: _moved(inner, start) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved(inner, start) for inner in value]
    is_path = isinstance(value, str) and os.path.exists(value) and (os.sep in value or os.path.isfile(value))
    return os.path.relpath(value, start) if is_path and not os.path.isabs(value) else value


def _override(spec: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the sections of a specification, overridden by `options`."""
    from graphcl.sweep.plan import TABLE_KEYS, sections_of

    settings, axes, table = sections_of(spec)
    for key, values in options:
        key = "recipe" if key == "config" else key
        if key in ("rows", "select"):
            table[key] = values
        elif key == "jointly":
            table[key] = read_value(SweepSettings, key, values)
        elif key == "baseline" and all("=" in value for value in values):
            table[key] = dict(value.split("=", 1) for value in values)
        elif key in TABLE_KEYS:
            table[key] = one_value(key, values)
        elif key != "print_config":
            settings.pop(key, None)
            axes.pop(key, None)
            if len(values) > 1 and key not in ("seeds", "eval", "imports"):
                axes[key] = [read_value(Config, key, [value]) for value in values]
            else:
                settings[key] = read_value(Config, key, values)
    return {"settings": settings, "axes": axes, "table": table}


def _run(request: Request) -> int:
    from graphcl.experiment.runtime import pick_device
    from graphcl.sweep.figures import write_figures
    from graphcl.sweep.folder import (
        Records,
        extended,
        finished_records,
        locked,
        read_records,
        stored_spec,
        unfinished,
        write_record,
    )
    from graphcl.sweep.plan import make_plan
    from graphcl.sweep.run_cells import check_datasets, default_workers, progress, sweep
    from graphcl.sweep.write import to_markdown

    settings, out, stored = request.settings, request.out, stored_spec(request.out)
    plan = extended(out, request.spec, request.whole)
    if request.printed:
        print(yaml.safe_dump(dict(plan.spec), sort_keys=False, allow_unicode=True), end="")
        return 0
    if stored and any(request.spec.values()):
        count = len(make_plan(stored).tasks)
        print(f"{out}/ holds a sweep of {count} cells, which stay; {len(plan.tasks) - count} are new", flush=True)
    records, total, reused = read_records(out, plan), len(plan.tasks), Records()
    for folder in settings.reuse:
        reused = finished_records(Path(folder), unfinished(plan, records | reused), plan) | reused
    records |= reused
    cells = unfinished(plan, records)
    done = total - len(cells)
    workers, place = settings.workers or default_workers(len(cells)), settings.executor
    if place == "loky":
        for name in {cell.config.device for cell in plan.cells}:
            pick_device(name)  # fail here if the device is not available, not once in each cell
        place = f"{workers} worker{'s' if workers > 1 else ''}"
    print(f"{total} cells, {len(plan.references)} of them reference rows; {done} finished; {place}; {out}/", flush=True)
    if settings.dry_run:
        return 0
    if reused:
        with locked(out):
            for key, record in reused.items():
                write_record(out / "cells" / f"{key}.json", record)
    if settings.executor == "loky":
        check_datasets(cells, records)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    result = sweep(plan, out, workers, progress(cells, total, workers), settings.executor)
    print("\n" + "\n\n".join(to_markdown(table) for table in result.tables.values()))
    print(f"\nsaved in {out}/: table.md, table.tex, cells.csv, and a file for each cell")
    names = write_figures(out, result.tables)
    print(f"figures: {', '.join(names) or 'none, as no cell is finished or the table is too long'}")
    for name, error in list(result.failed.items())[:10]:
        print(f"graphcl: {name} failed: {error}", file=sys.stderr)
    if result.failed:
        text = f"graphcl: {len(result.failed)} of {total} cells failed; the same command runs them again."
        print(text, file=sys.stderr)
    return int(bool(result.failed))
