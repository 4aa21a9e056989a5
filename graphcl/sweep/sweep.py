"""Run what is not there yet, and make the tables of all that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphcl.sweep.folder import Records, SweepFolder, keep, perform, task
from graphcl.sweep.plan import Cell, Plan
from graphcl.sweep.pool import fitting_workers, run_tasks
from graphcl.sweep.table import Table, make_table
from graphcl.sweep.write import write_tables

Show = Callable[[Cell, Records], None]


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to.

    Args:
        tables: one for each evaluator.
        records: what is known of each cell, by key.
        failed: cells of the plan without a score, with the reason.
    """

    tables: dict[str, Table]
    records: Records
    failed: dict[str, str]


def sweep(plan: Plan, folder: str | Path, workers: int | None = None, show: Show | None = None) -> Outcome:
    """Run every cell of a plan that is not finished in the folder, and write the tables there.

    Args:
        plan: from `make_plan`.
        folder: a new one, or that of an earlier sweep, which goes on.
        workers: processes; by default as many as the machine has room for. No figure depends on it.
        show: called with every cell that ends, and all records.

    Raises:
        InputError: another sweep is at work there, or a cell there has other settings.
    """
    with SweepFolder(folder) as kept:
        records = kept.records(plan)
        kept.add_plan(plan)
        cells = plan.tasks
        left = [cell for cell in cells if records.get(cell.key, {}).get("status") != "done"]
        tasks = {kept.cells / f"{cell.key}.json": cell for cell in left}
        work = [task(kept, cell) for cell in left]
        try:
            for done, record, how in run_tasks(work, perform, workers or fitting_workers(len(left))):
                cell = tasks[Path(done[0])]
                if record is None:
                    config, where = cell.config.model_dump(), dict(cell.coordinates)
                    record = {"status": "failed", "error": how, "coordinates": where, "config": config}
                    keep(Path(done[0]), record)
                records[cell.key] = record
                if show is not None:
                    show(cell, records)
        finally:  # however it ends, the tables tell of all that was finished
            tables = {name: make_table(plan, records, name) for name in plan.evaluators}
            write_tables(kept.path, plan, records, tables)
    failed = {
        str(cell): records[cell.key].get("error", "?")
        for cell in cells
        if records.get(cell.key, {}).get("status") == "failed"
    }
    return Outcome(tables, records, failed)
