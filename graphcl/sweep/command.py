"""`graphcl sweep` and `python -m graphcl.sweep`: run a table of settings x data sets x seeds."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from graphcl.arguments import nearest
from graphcl.cli.command_line import Options, one_value, read_value
from graphcl.cli.commands import SWEEP, SweepSettings
from graphcl.cli.entry_point import program
from graphcl.config import Config
from graphcl.config.files import read_yaml
from graphcl.config.recipes import shipped_sweeps
from graphcl.errors import InputError
from graphcl.experiment.build import pick_device
from graphcl.experiment.encoder_input import load_arguments
from graphcl.experiment.fingerprint import file_digests, named_files
from graphcl.experiment.scores import with_usable_evaluation
from graphcl.report.summary import unit
from graphcl.sweep.folder import Records, finished_records, read_records, unfinished, write_records
from graphcl.sweep.markdown import to_markdown
from graphcl.sweep.plan import TABLE_KEYS, Cell, make_plan, sections_of
from graphcl.sweep.run import OnCell, default_workers, known_data, load_scored, sweep
from graphcl.sweep.table import scores_of


class Request(NamedTuple):
    """The sweep that a command line requests; relative paths in `spec` refer to the folder `start`."""

    spec: dict[str, Any]
    settings: SweepSettings
    out: Path
    start: Path


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

    For `--help`, `--version` and `--print-config`, print the requested text and return None.

    Raises:
        InputError: arguments are invalid.
    """
    if SWEEP.show_help(arguments):
        return None
    file, options = SWEEP.split(arguments, *Config.model_fields)
    own = {key: values for key, values in options if key in ("out", "workers", "executor", "dry_run", "reuse")}
    settings = SWEEP.model_validate({key: read_value(SweepSettings, key, values) for key, values in own.items()})
    reuse = [str(Path(each).absolute()) for each in settings.reuse]  # the sweep may have started in another folder
    settings = settings.model_copy(update={"reuse": reuse})
    if not settings.out and file is None:
        raise InputError("`--out` must name the folder of the sweep: a new one, or that of a sweep to resume.")
    out = Path(settings.out or f"sweeps/{Path(str(file)).stem}")
    options = [option for option in options if option[0] not in own]
    spec, start = {}, Path.cwd()
    if file:
        shipped = shipped_sweeps()
        path = Path(file) if Path(file).exists() else shipped.get(file, Path(file))
        if not path.is_file():
            raise InputError(f"sweep {file!r} not found; {nearest(file, shipped)}, or pass a file.")
        spec = read_yaml(path)
    elif {key for key, _ in options} <= {*TABLE_KEYS, "print_config"}:  # resume, or lay out the table anew
        if not (out / "sweep.yaml").exists():
            raise InputError(f"{out} holds no sweep to resume; pass a FILE, or axes such as --loss infonce dcl.")
        spec = read_yaml(out / "sweep.yaml")
        before = Path(str(spec.get("folder", "")))
        start = before if before.is_absolute() and before.is_dir() else start
    spec = {**spec, **_override(spec, options)}
    if any(key == "print_config" for key, _ in options):
        print(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), end="")
        return None
    return Request(spec, settings, out if start == Path.cwd() else out.absolute(), start)


def _override(spec: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the sections of a specification, overridden by `options`."""
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
    settings, out, plan = request.settings, request.out, make_plan(request.spec)
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
        write_records(out, reused)
    if settings.executor == "loky":
        _check_datasets(cells, records)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    result = sweep(plan, out, workers, progress(cells, total, workers), settings.executor)
    print("\n" + "\n\n".join(to_markdown(table) for table in result.tables.values()))
    print(f"\nsaved in {out}/: table.md, table.tex, cells.csv, and a file for each cell")
    from graphcl.sweep.figures import write_figures  # imported here, as it loads matplotlib

    names = write_figures(out, plan, result.tables)
    print(f"figures: {', '.join(names) or 'none, as no cell is finished'}")
    for name, error in list(result.failed.items())[:10]:
        print(f"graphcl: {name} failed: {error}", file=sys.stderr)
    if result.failed:
        text = f"graphcl: {len(result.failed)} of {total} cells failed; the same command runs them again."
        print(text, file=sys.stderr)
    return int(bool(result.failed))


def _check_datasets(cells: Sequence[Cell], records: Records) -> None:
    """Load every data set once, so that data that is changed or does not fit the evaluators is reported once."""
    known, loaded = known_data(records), set()
    for cell in cells:
        arguments = load_arguments(cell.config)
        if (key := (*arguments.items(), *named_files(cell.config))) in loaded:
            continue
        print(f"loading {arguments['source']} ...", flush=True)
        dataset, fingerprint = load_scored(**arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each cell warns of fewer folds
            with_usable_evaluation(cell.config, dataset)
        data = {"dataset": fingerprint, "files": file_digests(cell.config)}
        if changed := known.changes({"config": cell.config.model_dump(), "data": data}):
            raise InputError(changed)
        loaded.add(key)


def progress(cells: Sequence[Cell], total: int, workers: int) -> OnCell:
    """Return a callback for `sweep` that prints a line for each cell that ends.

    The time left is estimated from the time that finished cells of the same configuration and data set took; before
    there is one, from those of the same data set, then from all. Cells that run are taken as half finished.

    Args:
        cells: cells that are not finished.
        total: number of cells, with those that were finished before the sweep started.
        workers: number of cells that run at a time.
    """
    waiting = {cell.key: cell for cell in cells}
    spent: dict[tuple[str, ...], list[float]] = {}

    def kinds(coordinates: Mapping[str, str]) -> list[tuple[str, ...]]:
        of_cell = tuple(f"{axis} {label}" for axis, label in coordinates.items() if axis != "seed")
        return [of_cell, (coordinates["dataset"],), ()]

    def expected(cell: Cell) -> float:
        return float(np.mean(next((spent[kind] for kind in kinds(cell.coordinates) if kind in spent), [0.0])))

    def show(cell: Cell, records: Records) -> None:
        for record in [records[cell.key]] if spent else records.values():
            for kind in kinds(record["coordinates"]) if "seconds" in record else ():  # not if the worker died
                spent.setdefault(kind, []).append(sum(record["seconds"].values()))
        waiting.pop(cell.key, None)
        times = [expected(each) for each in waiting.values()]
        running = times[:workers]
        seconds = max((sum(times) - sum(running) / 2) / max(1, len(running)), max(times, default=0.0) / 2)
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        if any((each.coordinates["dataset"],) not in spent for each in waiting.values()):
            left = f"at least {left}"  # no cell of a data set has finished yet
        record = records[cell.key]
        outcome = f"failed: {record.get('error')}"
        if record["status"] == "done":
            scores = {name: scores_of(record, name) for name in record["scores"]}
            means = ", ".join(f"{name} {each.mean:.2f} {unit(each.metric)}" for name, each in scores.items())
            outcome = f"{means} in {sum(record['seconds'].values()):.1f} s"
        print(f"[{total - len(waiting)}/{total}, {left} left] {cell}: {outcome}", file=sys.stderr, flush=True)

    return show
