"""Run the unfinished cells of a plan, and write the tables of all finished cells."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcl.config import Config
from graphcl.errors import MAX_LINE, InputError, one_line
from graphcl.experiment.fingerprint import KnownData
from graphcl.sweep.executors import default_workers, make_executor
from graphcl.sweep.folder import Records, SweepFolder, write_record
from graphcl.sweep.plan import Cell, Plan
from graphcl.sweep.table import Table, make_table
from graphcl.sweep.write import write_tables
from graphcl.system.processes import worker_device

OnCell = Callable[[Cell, Records], object]
_ONE_CELL = threading.Lock()


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep.

    Attributes:
        tables: evaluator -> table.
        records: key of a cell -> record of that cell.
        failed: name of a failed cell -> the error message.
    """

    tables: dict[str, Table]
    records: Records
    failed: dict[str, str]


def sweep(
    plan: Plan,
    folder: str | Path,
    workers: int | None = None,
    on_cell: OnCell | None = None,
    executor: str | Executor = "loky",
) -> SweepResult:
    """Run every unfinished cell of a plan, write the tables into a folder, and return the outcome.

    A cell is one seed of one configuration. If a worker dies, its cell fails, and the other cells continue.

    Args:
        plan: a plan that `make_plan` made.
        folder: a new folder, or the folder of an earlier sweep, which is resumed.
        workers: number of processes, which does not affect the results; default: `default_workers`.
        on_cell: function called after each cell, with the cell and all records so far.
        executor: name of an executor, see `make_executor`; or an executor, which is not shut down.

    Raises:
        InputError: another sweep uses the folder, or it holds a cell with other settings or cells with other data.
    """
    with SweepFolder(folder) as kept:
        records = kept.records(plan)
        known = known_data(records)
        kept.add_plan(plan)
        cells = [cell for cell in plan.tasks if records.get(cell.key, {}).get("status") != "done"]
        try:
            if cells:
                _run_cells(cells, kept, records, known, workers or default_workers(len(cells)), on_cell, executor)
        finally:  # also after an interruption, so that the tables have all finished cells
            tables = {name: make_table(plan, records, name) for name in plan.evaluators}
            write_tables(kept.path, plan, records, tables)
    states = {str(cell): records.get(cell.key, {}) for cell in plan.tasks}
    failed = {name: record["error"] for name, record in states.items() if record.get("status") == "failed"}
    return SweepResult(tables, records, failed)


def known_data(records: Records) -> KnownData:
    """Return the data of all finished cells.

    Raises:
        InputError: two cells load the same data set, and it changed between them.
    """
    known = KnownData()
    for key, record in records.items():
        if record["status"] == "done" and (changed := known.changes(record)):
            raise InputError(f"cells/{key}.json: {other_data(changed)}")
    return known


def other_data(changed: list[str]) -> str:
    """Return the message that the data of a cell changed."""
    return f"the data is not that of the finished cells: {'; '.join(changed)}. Restore it, or pass another --out."


def _run_cells(
    cells: list[Cell],
    folder: SweepFolder,
    records: Records,
    known: KnownData,
    workers: int,
    on_cell: OnCell | None,
    executor: str | Executor,
) -> None:
    """Run `cells`; add their records to `records` and to the folder. A cell on other data than `known` fails."""
    pool = make_executor(executor, min(workers, len(cells))) if isinstance(executor, str) else executor
    files = {cell.key: folder.cells.absolute() / f"{cell.key}.json" for cell in cells}
    futures: dict[Future[dict[str, Any]], Cell] = {}
    try:
        for cell in cells:
            futures[pool.submit(perform, files[cell.key], cell.coordinates, cell.config, Path.cwd())] = cell
        for future in as_completed(futures):
            cell = futures[future]
            try:
                record = future.result()
            except Exception as error:  # the worker died: exceptions of the cell itself are in its record
                record = {
                    "status": "failed",
                    "error": one_line(f"the worker died: {error}", MAX_LINE),
                    "coordinates": dict(cell.coordinates),
                    "config": cell.config.model_dump(),
                }
            if record["status"] == "done" and (changed := known.changes(record)):
                record = {**record, "status": "failed", "error": other_data(changed)}
            write_record(files[cell.key], record)
            records[cell.key] = record
            if on_cell is not None:
                on_cell(cell, records)
    finally:
        for future in futures:
            future.cancel()
        if pool is not executor:
            pool.shutdown(wait=False)


def perform(file: Path, coordinates: Mapping[str, str], config: Config, folder: Path) -> dict[str, Any]:
    """Run a cell in a worker process; write its record, and return it.

    Args:
        file: path of the record; written by the worker, so that the record is kept even if the sweep is killed.
        coordinates: coordinates of the cell.
        config: settings of the cell.
        folder: working directory, to which relative paths in the settings refer.
    """
    from graphcl.sweep.cell import run_cell
    from graphcl.system.memory import keep_freed_memory

    with _ONE_CELL:  # a Dask worker may have several threads, but torch's generators are per process
        keep_freed_memory()
        with suppress(OSError):  # on another machine the folder may not exist
            os.chdir(folder)
        record = {"coordinates": dict(coordinates), **run_cell(config, worker_device())}
        with suppress(OSError):
            write_record(file, record)
        return record
