"""`graphcl sweep` and `python -m graphcl.sweep`: run a table of settings x data sets x seeds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

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
from graphcl.sweep.executors import default_workers
from graphcl.sweep.folder import Records, SweepFolder
from graphcl.sweep.plan import Cell, Plan, make_plan
from graphcl.sweep.progress import Progress
from graphcl.sweep.run import SweepResult, known_data, other_data, sweep
from graphcl.sweep.spec import SECTIONS, TABLE_KEYS, sections_of
from graphcl.sweep.write import to_markdown


@dataclass(frozen=True)
class Request:
    """The sweep that a command line requests.

    Attributes:
        spec: specification of the sweep.
        settings: settings of the sweep itself, such as the number of workers.
        out: folder of the sweep.
        start: folder to which relative paths in the specification refer.
    """

    spec: dict[str, Any]
    settings: SweepSettings
    out: Path
    start: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep described by `arguments`; return the exit code: 1 if cells failed, else 0."""
    with program("nothing was started") as this:
        request = parse(sys.argv[1:] if arguments is None else arguments)
        if request is None:
            return this.code
        try:
            with _working_directory(request.start):
                this.code = _run(request, make_plan(request.spec))
        except KeyboardInterrupt:
            line = f"finished cells are in {request.out}; the same command resumes the sweep"
            raise KeyboardInterrupt(line) from None
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
    own = {key: values for key, values in options if key in ("out", "workers", "executor", "dry_run")}
    settings = SWEEP.model_validate({key: read_value(SweepSettings, key, values) for key, values in own.items()})
    if settings.out is None and file is None:
        raise InputError("`--out` must name the folder of the sweep: a new one, or that of a sweep to resume.")
    out = Path(settings.out) if settings.out is not None else Path("sweeps") / Path(str(file)).stem
    options = [option for option in options if option[0] not in own]
    spec = read_yaml(_sweep_file(file)) if file else _stored_spec(out, options)
    start = Path.cwd() if file else _start_folder(spec)
    spec = {**spec, **dict(zip(SECTIONS, _override(sections_of(spec), options), strict=True))}
    if any(key == "print_config" for key, _ in options):
        print(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), end="")
        return None
    return Request(spec, settings, out if start == Path.cwd() else out.absolute(), start)


def _override(sections: tuple[dict[str, Any], ...], options: Options) -> tuple[dict[str, Any], ...]:
    """Return the sections of a specification (settings, axes, table), overridden by `options`."""
    settings, axes, table = sections
    for key, values in options:
        if key == "print_config":
            continue
        if key == "config":
            key = "recipe"
        if key in TABLE_KEYS:
            table[key] = _table_value(key, values)
            continue
        settings.pop(key, None)
        axes.pop(key, None)
        if len(values) > 1 and key not in ("seeds", "eval"):
            axes[key] = [read_value(Config, key, [value]) for value in values]
        else:
            settings[key] = read_value(Config, key, values)
    return settings, axes, table


def _table_value(key: str, values: list[str]) -> Any:
    if key == "rows":
        return values
    if key == "baseline" and all("=" in value for value in values):
        return dict(value.split("=", 1) for value in values)
    return one_value(key, values)


def _sweep_file(name: str) -> Path:
    sweeps = shipped_sweeps()
    if name in sweeps and not Path(name).exists():
        return sweeps[name]
    if not Path(name).is_file():
        raise InputError(f"sweep {name!r} not found; {nearest(name, sweeps)}, or pass a file.")
    return Path(name)


def _stored_spec(out: Path, options: Options) -> dict[str, Any]:
    """Return the specification stored in the folder `out`, or {} if `options` define a new sweep."""
    if options:
        return {}
    if not (out / "sweep.yaml").exists():
        raise InputError(f"{out} holds no sweep to resume; pass a FILE, or axes such as --loss infonce dcl.")
    return read_yaml(out / "sweep.yaml")


def _start_folder(spec: Mapping[str, Any]) -> Path:
    """Return the folder in which the sweep was started, or the working directory if that no longer exists."""
    start = Path(str(spec.get("folder", "")))
    return start if start.is_absolute() and start.is_dir() else Path.cwd()


@contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(request: Request, plan: Plan) -> int:
    settings, out, total = request.settings, request.out, len(plan.tasks)
    records = SweepFolder(out).records(plan)
    done = sum(records.get(cell.key, {}).get("status") == "done" for cell in plan.tasks)
    workers = settings.workers or default_workers(total - done)
    if settings.executor == "loky":
        for name in {cell.config.device for cell in plan.cells}:
            pick_device(name)  # fail here if the device is not available, not once in each cell
    place = f"{workers} worker{'s' if workers > 1 else ''}" if settings.executor == "loky" else settings.executor
    print(f"{total} cells, {len(plan.references)} of them reference rows; {done} finished; {place}; {out}/", flush=True)
    if settings.dry_run:
        return 0
    if settings.executor == "loky":
        _check_datasets((cell for cell in plan.tasks if records.get(cell.key, {}).get("status") != "done"), records)
    signal.signal(signal.SIGTERM, _interrupt)
    result = sweep(plan, out, workers, Progress(total, done, sys.stderr), settings.executor)
    print("\n" + "\n\n".join(to_markdown(table) for table in result.tables.values()))
    print(f"\nsaved in {out}/: table.md, table.tex, cells.csv, and a file for each cell")
    print(_draw(out, plan, result))
    for cell, error in list(result.failed.items())[:10]:
        print(f"graphcl: {cell} failed: {error}", file=sys.stderr)
    if result.failed:
        print(
            f"graphcl: {len(result.failed)} of {total} cells failed; the same command runs them again.",
            file=sys.stderr,
        )
    return 1 if result.failed else 0


def _check_datasets(cells: Iterable[Cell], records: Records) -> None:
    """Load every data set once, so that unusable or changed data is reported once and not by each of its cells."""
    from graphcl.experiment.encoder_input import load_arguments  # imported here, as it loads torch
    from graphcl.experiment.fingerprint import data_fingerprint, method_files
    from graphcl.sweep.cell import load_scored

    known, loaded = known_data(records), set()
    for cell in cells:
        arguments = load_arguments(cell.config)
        if (key := (*arguments.items(), *method_files(cell.config))) in loaded:
            continue
        print(f"loading {arguments['source']} ...", flush=True)
        data = data_fingerprint(cell.config, load_scored(**arguments))
        if changed := known.changes({"config": cell.config.model_dump(), "data": data}):
            raise InputError(other_data(changed))
        loaded.add(key)


def _draw(folder: Path, plan: Plan, result: SweepResult) -> str:
    from graphcl.sweep.figures import write_figures  # imported here, as it loads matplotlib

    names = write_figures(folder, plan, result.tables)
    return f"figures: {', '.join(names) or 'none, as no cell is finished'}"


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
