"""Executors for the cells of a sweep: processes of this machine, or any `concurrent.futures.Executor`."""

from __future__ import annotations

import pkgutil
from concurrent.futures import Executor
from pathlib import Path

import torch

from graphcl.errors import InputError, reason
from graphcl.system.processes import LocalExecutor

MEMINFO = Path("/proc/meminfo")
WORKER_MEMORY = 1.5
"""Gigabytes that a worker may need, for torch, a data set of thousands of graphs and its kernel matrices."""


def make_executor(name: str, workers: int) -> Executor:
    """Return the executor called `name`.

    Args:
        name: `loky` for processes of this machine; `dask:ADDRESS` for the workers of a Dask scheduler, or
            `dask:FILE.json` with the scheduler's file; or `MODULE:FUNCTION` for a function that takes the number of
            workers and returns a `concurrent.futures.Executor`.
        workers: number of workers; ignored for Dask, whose scheduler has its own workers.

    Raises:
        InputError: `name` is unknown or cannot be imported, or Dask is not installed.
    """
    if name == "loky":
        return LocalExecutor(workers)
    kind, _, place = name.partition(":")
    if kind == "dask" and place:
        try:
            from distributed import Client
        except ImportError as error:
            raise InputError(f"`executor` {name} needs Dask ({error}); pip install 'graphcl[cluster]'.") from None
        client = Client(**{"scheduler_file" if place.endswith(".json") else "address": place})
        # with `pure=True`, Dask would return the stored result of a failed cell instead of running the cell again
        executor: Executor = client.get_executor(pure=False)
        return executor
    try:
        make = pkgutil.resolve_name(name) if place else None
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"`executor` {name} cannot be imported: {reason(error)}") from None
    if not callable(make):
        raise InputError(f"`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got {name!r}.")
    made: Executor = make(workers)
    return made


def default_workers(cells: int) -> int:
    """Return the number of workers for `cells` cells on this machine: at most one per cell and one per CUDA device.

    Without CUDA, there is at most one worker per core, and fewer if memory is short.
    """
    from joblib import cpu_count

    if torch.cuda.is_available():
        return max(1, min(cells, torch.cuda.device_count()))
    cores, free = cpu_count(), _available_memory()  # `cpu_count` respects container limits
    return max(1, min(cells, cores, cores if free is None else int(free / WORKER_MEMORY)))


def _available_memory() -> float | None:
    """Return the gigabytes of memory that programs can still allocate, or None if unknown."""
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024 / 1e9
    except (OSError, ValueError, KeyError):  # unknown, as on other systems than Linux
        return None
