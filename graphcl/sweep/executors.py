"""Executors for the cells of a sweep: processes of this machine, or any `concurrent.futures.Executor`."""

from __future__ import annotations

import os
import pkgutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from graphcl.errors import InputError, reason

R = TypeVar("R")
MEMINFO = Path("/proc/meminfo")
WORKER_MEMORY = 1.5
"""Gigabytes that a worker may need, for torch, a data set of thousands of graphs and its kernel matrices."""
_device = "auto"


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
        # not pure, so that Dask runs a failed cell again instead of returning the result that it kept
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


class LocalExecutor(Executor):
    """Executor that runs tasks in processes of this machine; if a process dies, only its current task fails.

    Every worker is a loky pool of one process. In a larger pool, the death of a process would fail all tasks and not
    show which task killed it.

    Args:
        workers: number of processes; with CUDA, the devices are assigned to the processes in turn.
    """

    def __init__(self, workers: int) -> None:
        self._devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
        self._pools = [self._new_pool(number) for number in range(workers)]
        self._free: SimpleQueue[int] = SimpleQueue()
        for number in range(workers):
            self._free.put(number)
        self._threads = ThreadPoolExecutor(workers)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Run `fn(*args, **kwargs)` in a free process; the future raises `BrokenExecutor` if the process dies."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes: after the submitted tasks if `wait`, else at once."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures or not wait)
        for pool in self._pools:
            pool.shutdown(kill_workers=True)
        self._threads.shutdown()

    def _run(self, fn: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        number = self._free.get()
        try:
            try:
                future = self._pools[number].submit(fn, *args, **kwargs)
            except BrokenExecutor:  # the process died after its last task, so start a new one
                self._pools[number] = self._new_pool(number)
                future = self._pools[number].submit(fn, *args, **kwargs)
            result: R = future.result()
            return result
        finally:
            self._free.put(number)

    def _new_pool(self, number: int) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor  # imported here, as joblib is slow to load

        device = self._devices[number % len(self._devices)]
        return ProcessPoolExecutor(1, initializer=_start_worker, initargs=(device, os.getpid()))


def worker_device() -> str:
    """Return the device for cells whose setting is `auto`: the device assigned to this worker process, else `auto`."""
    return _device


def fitting_workers(cells: int) -> int:
    """Return the number of workers for `cells` cells on this machine, at most one per cell.

    It is the number of CUDA devices. Without CUDA it is the number of cores, or fewer if the memory does not suffice.
    """
    from joblib import cpu_count

    if torch.cuda.is_available():
        return max(1, min(cells, torch.cuda.device_count()))
    cores, free = cpu_count(), _available_memory()  # counts the cores that this process may use, also in a container
    return max(1, min(cells, cores, cores if free is None else int(free / WORKER_MEMORY)))


def _available_memory() -> float | None:
    """Return the gigabytes of memory that programs can still allocate, or None if unknown."""
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024 / 1e9
    except (OSError, ValueError, KeyError):  # unknown, as on other systems than Linux
        return None


def _start_worker(device: str, parent: int) -> None:
    global _device
    _device = device
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignored, as Ctrl-C reaches the parent, which ends its workers
    threading.Thread(target=_exit_without, args=(parent,), daemon=True).start()


def _exit_without(parent: int) -> None:
    """End this process when the process `parent` is gone, as loky's workers outlive a parent that is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
