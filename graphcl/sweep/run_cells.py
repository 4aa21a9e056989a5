"""Run the unfinished cells of a plan on an executor, show their progress, and write the tables of finished cells."""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcl.cli import warnings_as_lines
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
from graphcl.report.summary import environment, unit
from graphcl.sweep.folder import Records, check_extends, locked, read_records, unfinished, write_record, write_spec
from graphcl.sweep.plan import Cell, Plan
from graphcl.sweep.table import Table, make_table, scores_of
from graphcl.sweep.write import write_tables
from graphcl.system.memory import keep_freed_memory
from graphcl.system.processes import executing, worker_device
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
        data = known_data(records)
        write_spec(folder, plan)
        cells = unfinished(plan, records)
        futures: dict[Future[dict[str, Any]], tuple[Cell, Path]] = {}
        pool: Any = nullcontext(executor)
        if cells and isinstance(executor, str):
            pool = executing(executor, min(workers or default_workers(len(cells)), len(cells)))
        try:
            with pool as submitting:
                for cell in cells:
                    file = folder.absolute() / "cells" / f"{cell.key}.json"
                    futures[submitting.submit(perform, cell, file, Path.cwd())] = cell, file
                for future in as_completed(futures):
                    cell, file = futures[future]
                    try:
                        record = future.result()
                    except Exception as error:  # the worker died: exceptions of the cell itself are in its record
                        outcome = {"status": "failed", "error": one_line(f"the worker died: {error}", MAX_LINE)}
                        record = {**outcome, "coordinates": dict(cell.coordinates), "config": cell.config.model_dump()}
                    changed = data.changes(record) if record["status"] == "done" else ""
                    if changed:
                        record = {**record, "status": "failed", "error": changed}
                    write_record(file, record)
                    records[cell.key] = record
                    if on_cell is not None:
                        on_cell(cell, records)
        finally:  # also after an interruption, so that the tables have all finished cells
            for future in futures:
                future.cancel()
            tables = {name: make_table(plan, records, name) for name in plan.evaluators}
            write_tables(folder, plan, records, tables)
    failed = {str(cell): records[cell.key]["error"] for cell in unfinished(plan, records) if cell.key in records}
    return SweepResult(tables, records, failed)


def known_data(records: Records) -> KnownData:
    """Return the data of all finished cells.

    Raises:
        InputError: two cells load the same data set, and it changed between them.
    """
    data = KnownData()
    for key, record in records.items():
        changed = data.changes(record) if record["status"] == "done" else ""
        if changed:
            raise InputError(f"cells/{key}.json: {changed}")
    return data


def check_datasets(cells: Sequence[Cell], records: Records) -> None:
    """Load every data set once, so that data that is changed or does not fit the evaluators is reported once."""
    data, loaded = known_data(records), set[object]()
    for cell in cells:
        arguments = load_arguments(cell.config)
        key = (*arguments.items(), *named_files(cell.config))
        if key in loaded:
            continue
        print(f"loading {arguments['source']} ...", flush=True)
        dataset, fingerprint = load_scored(**arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each cell warns of fewer folds
            with_usable_evaluation(make_task(cell.config, dataset))
        record = {"dataset": fingerprint, "files": file_digests(cell.config)}
        changed = data.changes({"config": cell.config.model_dump(), "data": record})
        if changed:
            raise InputError(changed)
        loaded.add(key)


def perform(cell: Cell, file: Path, folder: Path) -> dict[str, Any]:
    """Run a cell in a worker process; write its record, and return it.

    Args:
        cell: the cell.
        file: path of the record; written by the worker, so that the record is kept even if the sweep is killed.
        folder: working directory, to which relative paths in the settings refer.
    """
    with _ONE_CELL, warnings_as_lines():  # a Dask worker may have several threads, torch's generators are per process
        keep_freed_memory()
        with suppress(OSError):  # on another machine the folder may not exist
            os.chdir(folder)
        record = {"coordinates": dict(cell.coordinates), **run_cell(cell.config)}
        with suppress(OSError):
            write_record(file, record)
        return record


def run_cell(config: Config) -> dict[str, Any]:
    """Run one cell, and return its record: `status` "done" with `scores`, or `status` "failed" with `error`."""
    clock, device = Clock(), torch.device("cpu")
    try:
        import_files(config.imports)
        name = worker_device() if config.device == "auto" else config.device
        device = setup_runtime(config.model_copy(update={"device": name}))
        outcome = _scored(config, clock, device)
    except Exception as error:  # record the error, so that the other cells continue
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        outcome = {"status": "failed", "error": kind + one_line(error, MAX_LINE), "traceback": traceback.format_exc()}
    return {"seconds": clock.seconds, **outcome, **environment(device), "config": config.model_dump()}


def _scored(config: Config, clock: Clock, device: torch.device) -> dict[str, Any]:
    """Return the scores, times and metrics of a cell; one without training computes the reference rows instead."""
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
    rows = ("trained",) if config.trains else without_training()
    result = trial.run(rows, Output(workers=config.threads))
    record: dict[str, Any] = {"status": "done", "seconds": {**clock.seconds, **result.seconds}, "data": data}
    scores = _plain(result.scores)
    record["scores"] = {name: of_row["trained" if config.trains else "untrained"] for name, of_row in scores.items()}
    if not config.trains:
        return {**record, "metrics": {}, "references": scores}
    last = result.history[-1]
    metrics = {"epochs": last.epoch, "training_loss": last.loss, "alignment": last.alignment}
    metrics |= {"uniformity": last.uniformity, **last.diagnostics}
    epoch_scores = {str(epoch): scores for epoch, scores in _plain(result.epoch_scores).items()}  # as the file has them
    return {**record, "metrics": metrics, "epoch_scores": epoch_scores}


def _plain(scores: Mapping[Any, Mapping[str, FoldScores]]) -> dict[Any, dict[str, dict[str, Any]]]:
    return {key: {name: vars(score) for name, score in rows.items()} for key, rows in scores.items()}


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
        configuration = tuple(f"{axis} {label}" for axis, label in coordinates.items() if axis != "seed")
        return [configuration, (coordinates["dataset"],), ()]

    def show(cell: Cell, records: Records) -> None:
        new = [records[cell.key]] if spent else list(records.values())
        for record in new:
            for kind in kinds(record["coordinates"]):
                if "seconds" in record:  # not if the worker died
                    spent.setdefault(kind, []).append(sum(record["seconds"].values()))
        waiting.pop(cell.key, None)
        times = []
        for other in waiting.values():
            seen = [kind for kind in kinds(other.coordinates) if kind in spent]
            times.append(float(np.mean(spent[seen[0]])) if seen else 0.0)
        running = times[:workers]
        seconds = max((sum(times) - sum(running) / 2) / max(1, len(running)), max(times, default=0.0) / 2)
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        if any((other.coordinates["dataset"],) not in spent for other in waiting.values()):
            left = f"at least {left}"  # no cell of a data set has finished yet
        record = records[cell.key]
        outcome = f"failed: {record.get('error')}"
        if record["status"] == "done":
            scores = {name: scores_of(record, name) for name in record["scores"]}
            means = ", ".join(f"{name} {score.mean:.2f} {unit(score.metric)}" for name, score in scores.items())
            outcome = f"{means} in {sum(record['seconds'].values()):.1f} s"
        print(f"[{total - len(waiting)}/{total}, {left} left] {cell}: {outcome}", file=sys.stderr, flush=True)

    return show
