"""`python -m graphcl.sweep`: run a table of settings x data sets x seeds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from graphcl.config.command_line import command
from graphcl.config.files import shipped_sweeps
from graphcl.errors import InputError
from graphcl.experiment.seed import pick_device
from graphcl.sweep.command import HELP, Command, parse
from graphcl.sweep.folder import SweepFolder
from graphcl.sweep.plan import Plan, make_plan
from graphcl.sweep.pool import fitting_workers
from graphcl.sweep.progress import Progress
from graphcl.sweep.sweep import Outcome, sweep
from graphcl.sweep.write import to_markdown


@command("nothing had begun")
def main(words: Sequence[str]) -> int:
    """The command line; returns the exit code, 1 where some cells failed."""
    if not words or "--help" in words or "-h" in words:
        print(HELP + ", ".join(sorted(shipped_sweeps())))
        return 0 if words else 2
    asked = parse(words)
    try:
        with _within(asked.start):
            return _run(asked, make_plan(asked.spec))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{asked.out} keeps all finished cells, the same command goes on") from None


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(asked: Command, plan: Plan) -> int:
    total = len(plan.tasks)
    done = _finished(asked, plan)
    for name in {cell.config.device for cell in plan.cells}:
        pick_device(name)  # refused at once, not cell by cell
    workers = asked.workers or fitting_workers(total - done)
    print(
        f"{total} cells, {len(plan.untrained)} of them reference rows; {done} finished; "
        f"{workers} worker{'s' if workers > 1 else ''}; {asked.out}/"
    )
    if asked.dry_run:
        return 0
    signal.signal(signal.SIGTERM, _as_interrupt)
    outcome = sweep(plan, asked.out, workers, Progress(plan, done, sys.stderr))
    print("\n" + "\n\n".join(to_markdown(table) for table in outcome.tables.values()))
    print(f"\nkept in {asked.out}/: table.md, table.tex, cells.csv, and a file for each cell")
    print(_draw(asked.out, plan, outcome))
    for cell, error in list(outcome.failed.items())[:10]:
        print(f"graphcl: {cell} failed: {error}", file=sys.stderr)
    if outcome.failed:
        print(
            f"graphcl: {len(outcome.failed)} of {total} cells failed; the same command tries them again.",
            file=sys.stderr,
        )
    return 1 if outcome.failed else 0


def _draw(folder: Path, plan: Plan, outcome: Outcome) -> str:
    """What there is to say of the pictures, which are not worth a sweep's failing."""
    from graphcl.sweep.figures import write_figures  # not before there is something to draw

    try:
        names = write_figures(folder, plan, outcome.tables)
    except InputError as error:
        return f"no figures: {error}"
    return f"drawn: {', '.join(names) or 'nothing, as no cell is finished'}"


def _finished(asked: Command, plan: Plan) -> int:
    records = SweepFolder(asked.out).records(plan)
    return sum(records.get(cell.key, {}).get("status") == "done" for cell in plan.tasks)


def _as_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
