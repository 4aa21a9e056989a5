"""Run the unfinished cells of a plan on an executor, and write the tables of all finished cells."""

from __future__ import annotations

import functools
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphcl.cli.entry_point import warnings_as_lines
from graphcl.config import Config
from graphcl.datasets import GraphDataset
from graphcl.errors import MAX_LINE, InputError, one_line
from graphcl.evaluate import FoldScores
from graphcl.evaluate.needs import usual
from graphcl.experiment.encoder_input import load_arguments, load_with_pairs
from graphcl.experiment.fingerprint import KnownData, file_digests, named_files
from graphcl.experiment.output import Clock, Output
from graphcl.experiment.runtime import setup_runtime
from graphcl.experiment.trial import Trial
from graphcl.references.rows import without_training
from graphcl.registry import import_files
from graphcl.report.summary import environment
from graphcl.sweep.extend import check_extends
from graphcl.sweep.folder import Records, locked, read_records, unfinished, write_record, write_spec
from graphcl.sweep.plan import Cell, Plan
from graphcl.sweep.table import Table, make_table
from graphcl.sweep.write import write_tables
from graphcl.system.memory import keep_freed_memory
from graphcl.system.processes import make_executor, worker_device
from graphcl.tasks.evaluation import with_usable_evaluation
from graphcl.tasks.task import make_task

MEMINFO = Path("/proc/meminfo")
WORKER_MEMORY = 1.5e9
"""Bytes that a worker may need, for torch, a data set of thousands of graphs and its kernel matrices."""
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

    def __repr__(self) -> str:
        cells = f"{len(self.records)} cells, {len(self.failed)} failed"
        return f"{type(self).__name__}({cells}; tables: {', '.join(self.tables)})"


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
        folder: a new folder, or that of an earlier sweep of the same cells or a part of them, which is resumed.
        workers: number of processes, which does not affect the results; default: `default_workers`.
        on_cell: function called after each cell, with the cell and all records so far.
        executor: name of an executor, see `make_executor`; or an executor, which is not shut down.

    Raises:
        InputError: another sweep uses the folder, the folder holds a sweep with cells that the plan lacks, or cells
            with other settings or other data.
    """
    folder = Path(folder)
    with locked(folder):
        check_extends(plan, folder)
        records = read_records(folder, plan)
        known = known_data(records)
        write_spec(folder, plan)
        cells = unfinished(plan, records)
        pool: Any = executor
        futures: dict[Future[dict[str, Any]], tuple[Cell, Path]] = {}
        try:
            if cells and isinstance(executor, str):
                pool = make_executor(executor, min(workers or default_workers(len(cells)), len(cells)))
            for cell in cells:
                file = folder.absolute() / "cells" / f"{cell.key}.json"
                futures[pool.submit(perform, cell, file, Path.cwd())] = cell, file
            for future in as_completed(futures):
                cell, file = futures[future]
                try:
                    record = future.result()
                except Exception as error:  # the worker died: exceptions of the cell itself are in its record
                    given = {"coordinates": dict(cell.coordinates), "config": cell.config.model_dump()}
                    record = {"status": "failed", "error": one_line(f"the worker died: {error}", MAX_LINE), **given}
                if record["status"] == "done" and (changed := known.changes(record)):
                    record = {**record, "status": "failed", "error": changed}
                write_record(file, record)
                records[cell.key] = record
                if on_cell is not None:
                    on_cell(cell, records)
        finally:  # also after an interruption, so that the tables have all finished cells
            for future in futures:
                future.cancel()
            if pool is not executor:
                pool.shutdown(wait=False)
            tables = {name: make_table(plan, records, name) for name in plan.evaluators}
            write_tables(folder, plan, records, tables)
    failed = {str(cell): records[cell.key]["error"] for cell in unfinished(plan, records) if cell.key in records}
    return SweepResult(tables, records, failed)


def known_data(records: Records) -> KnownData:
    """Return the data of all finished cells.

    Raises:
        InputError: two cells load the same data set, and it changed between them.
    """
    known = KnownData()
    for key, record in records.items():
        if record["status"] == "done" and (changed := known.changes(record)):
            raise InputError(f"cells/{key}.json: {changed}")
    return known


def check_datasets(cells: Sequence[Cell], records: Records) -> None:
    """Load every data set once, so that data that is changed or does not fit the evaluators is reported once."""
    known, loaded = known_data(records), set[object]()
    for cell in cells:
        arguments = load_arguments(cell.config)
        if (key := (*arguments.items(), *named_files(cell.config))) in loaded:
            continue
        print(f"loading {arguments['source']} ...", flush=True)
        dataset, fingerprint = load_scored(**arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each cell warns of fewer folds
            with_usable_evaluation(make_task(cell.config, dataset))
        data = {"dataset": fingerprint, "files": file_digests(cell.config)}
        if changed := known.changes({"config": cell.config.model_dump(), "data": data}):
            raise InputError(changed)
        loaded.add(key)


def perform(cell: Cell, file: Path, folder: Path) -> dict[str, Any]:
    """Run a cell in a worker process; write its record, and return it.

    Args:
        cell: the cell.
        file: path of the record; written by the worker, so that the record is kept even if the sweep is killed.
        folder: working directory, to which relative paths in the settings refer.
    """
    with (
        _ONE_CELL,
        warnings_as_lines(),
    ):  # a Dask worker may have several threads, but torch's generators are per process
        keep_freed_memory()
        with suppress(OSError):  # on another machine the folder may not exist
            os.chdir(folder)
        record = {"coordinates": dict(cell.coordinates), **run_cell(cell.config)}
        with suppress(OSError):
            write_record(file, record)
        return record


def run_cell(config: Config) -> dict[str, Any]:
    """Run one cell, and return its record: `status` "done" with `scores`, or `status` "failed" with `error`."""
    clock, place = Clock(), torch.device("cpu")
    device = worker_device() if config.device == "auto" else config.device
    try:
        import_files(config.imports)
        place = setup_runtime(config.model_copy(update={"device": device}))
        found = _run(config, clock, place)
    except Exception as error:  # record the error, so that the other cells continue
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        found = {"status": "failed", "error": kind + one_line(error, MAX_LINE), "traceback": traceback.format_exc()}
    return {"seconds": clock.seconds, **found, **environment(place), "config": config.model_dump()}


def _run(config: Config, clock: Clock, device: torch.device) -> dict[str, Any]:
    (seed,) = config.seeds
    dataset, fingerprint = _load(**load_arguments(config))
    task = make_task(config, dataset)
    if not task.is_scored:
        raise InputError(f"{dataset.name} has groups but no class labels; pass --eval {usual('groups')}.")
    data = {"dataset": fingerprint, "files": file_digests(config)}
    clock.lap("load")
    trial = Trial(with_usable_evaluation(task), seed, device)
    if config.trains:
        trial.try_step()
    # separate cells compute the reference rows, once for each encoder and seed
    rows = ("trained",) if config.trains else without_training()
    result = trial.run(rows, Output(workers=config.threads))
    scores = _plain(result.scores)
    record: dict[str, Any] = {"status": "done", "seconds": {**clock.seconds, **result.seconds}, "data": data}
    record["scores"] = {name: rows["trained" if config.trains else "untrained"] for name, rows in scores.items()}
    if not config.trains:
        return {**record, "metrics": {}, "references": scores}
    last = result.history[-1]
    metrics = {"epochs": last.epoch, "training_loss": last.loss, "alignment": last.alignment}
    metrics |= {"uniformity": last.uniformity, **last.diagnostics}
    of_epochs = {str(epoch): each for epoch, each in result.epoch_scores.items()}  # as the file has them
    return {**record, "metrics": metrics, "epoch_scores": _plain(of_epochs)}


def _plain(scores: Mapping[Any, Mapping[str, FoldScores]]) -> dict[Any, dict[str, dict[str, Any]]]:
    return {key: {name: vars(score) for name, score in each.items()} for key, each in scores.items()}


def load_scored(**arguments: Any) -> tuple[GraphDataset, dict[str, Any]]:
    """Load a data set, see `load_with_pairs`, and return it and its fingerprint.

    Raises:
        InputError: the data set has neither labels nor groups to score by.
    """
    dataset = load_with_pairs(**arguments)
    if not dataset.scored and dataset.groups is None:
        raise InputError(f"{dataset.name} has no class labels, so a sweep cannot score it; use graphcl run.")
    return dataset, dataset.fingerprint()


_load = functools.lru_cache(maxsize=2)(load_scored)
"""`load_scored` with a cache of two data sets, for the next cells of this process."""


def default_workers(cells: int) -> int:
    """Return the number of workers for `cells` cells on this machine: at most one per cell and one per CUDA device.

    Without CUDA, there is at most one worker per core, and fewer if memory is short.
    """
    from joblib import cpu_count

    if torch.cuda.is_available():
        return max(1, min(cells, torch.cuda.device_count()))
    cores = cpu_count()  # respects container limits
    with suppress(OSError, ValueError, KeyError):  # unknown, as on other systems than Linux
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        cores = min(cores, int(int(lines["MemAvailable"].split()[0]) * 1024 / WORKER_MEMORY))
    return max(1, min(cells, cores))
