"""Run tasks in processes of this machine or on a cluster, where the death of one does not end the others; threads."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import Field

from graphcl.arguments import Count, Settings
from graphcl.errors import InputError, reason

R = TypeVar("R")
T = TypeVar("T")
_ATTEMPTS = 5
"""Number of workers that a task of `completed` may lose; random kills rarely hit one task so often."""
_WAITING = 256
"""Number of tasks of `completed` that are submitted at a time."""
_device = "auto"


class Workers(Settings):
    """Processes that share the work of a command."""

    workers: Count = 1
    """processes of this machine; a task whose process dies is run again"""
    executor: Annotated[str, Field(title="NAME")] = "loky"
    """loky: processes of this machine; dask:ADDRESS: the workers of a Dask scheduler (pip install "graphcl[cluster]");
    MODULE:FUNCTION: a function from the number of workers to a concurrent.futures.Executor"""

    @property
    def many(self) -> bool:
        """Whether other processes do the work."""
        return self.workers > 1 or self.executor != "loky"


class LocalExecutor(Executor):
    """Executor that runs tasks in processes of this machine; if a process dies, only its current task fails.

    The processes import the modules that have registered losses, methods and the like, also the running script.

    Every worker is a loky pool of one process. In a larger pool, the death of one process would fail all tasks, and the
    task that caused it would be unknown.

    Args:
        workers: number of processes; with CUDA, the devices are assigned to the processes in turn.
    """

    def __init__(self, workers: int) -> None:
        import torch  # imported here, as the pool's processes import this module without needing torch

        self._devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
        self._pools = [self._new_pool(number) for number in range(workers)]
        self._free = [*range(workers)]
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
        number = self._free.pop()  # never empty, as there is one thread for each process
        try:
            try:
                future = self._pools[number].submit(fn, *args, **kwargs)
            except BrokenExecutor:  # the process died after its last task, so start a new one
                self._pools[number] = self._new_pool(number)
                future = self._pools[number].submit(fn, *args, **kwargs)
            result: R = future.result()
            return result
        finally:
            self._free.append(number)

    def _new_pool(self, number: int) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor  # imported here, as joblib is slow to load
        from joblib.externals.loky.backend import get_context

        from graphcl.registry import registering_modules

        modules = registering_modules()
        context = get_context("loky_init_main" if "__main__" in modules else "loky")
        arguments = (self._devices[number % len(self._devices)], os.getpid(), modules - {"__main__"})
        return ProcessPoolExecutor(1, context=context, initializer=_start_worker, initargs=arguments)


def make_executor(name: str, workers: int) -> Executor:
    """Return the executor called `name`.

    Args:
        name: `loky` for processes of this machine; `dask:ADDRESS` for the workers of a Dask scheduler, or
            `dask:FILE.json` with the scheduler's file; or `MODULE:FUNCTION` for a function that takes the number of
            workers and returns a `concurrent.futures.Executor`.
        workers: number of workers; ignored for Dask, whose scheduler has its own workers.

    Raises:
        InputError: `name` is unknown, its function cannot be imported or fails, or Dask is not installed.
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
        return client.get_executor(pure=False)
    if not place:
        raise InputError(f"`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got {name!r}.")
    try:
        return pkgutil.resolve_name(name)(workers)
    except (Exception, SystemExit) as error:
        raise InputError(f"`executor` {name} gave no executor: {reason(error)}") from None


@contextlib.contextmanager
def executing(name: str, workers: int) -> Iterator[Executor]:
    """Yield the executor called `name`, see `make_executor`, and end its processes, or the connection to them."""
    executor = make_executor(name, workers)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)
        if (client := getattr(executor, "_client", None)) is not None:  # Dask's
            client.close()


def completed(function: Callable[[T], R], tasks: Iterable[T], executor: Executor) -> Iterator[tuple[T, R]]:
    """Yield each task and its result when it is complete; a task whose worker died is run again.

    Raises:
        InputError: a task has lost five workers, as one that needs too much memory does.
    """
    waiting, tasks = dict[Future[R], tuple[T, int]](), iter(tasks)
    try:
        while True:
            for task in islice(tasks, _WAITING - len(waiting)):
                waiting[executor.submit(function, task)] = task, 1
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                task, attempt = waiting.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    # Dask's KilledWorker is known by its name, as Dask may be missing
                    if (
                        not isinstance(error, BrokenExecutor | CancelledError)
                        and type(error).__name__ != "KilledWorker"
                    ):
                        raise
                    if attempt == _ATTEMPTS:
                        what = f"a task has lost {attempt} workers ({reason(error)})"
                        raise InputError(f"{what}; use fewer workers, as the memory may be short.") from None
                    again = f"its task runs again, attempt {attempt + 1} of {_ATTEMPTS}"
                    print(f"graphcl: a worker process died; {again}.", file=sys.stderr)
                    waiting[executor.submit(function, task)] = task, attempt + 1
                else:
                    yield task, result
    finally:
        for future in waiting:
            future.cancel()


def worker_device() -> str:
    """Return the device assigned to this worker process, such as `cuda:1`; outside a worker process, `auto`."""
    return _device


def _start_worker(device: str, parent: int, modules: Iterable[str]) -> None:
    global _device
    _device = device
    for name in modules:
        with contextlib.suppress(ImportError):  # tasks that need such a module report what they miss
            importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignored, as Ctrl-C reaches the parent, which ends its workers
    threading.Thread(target=_exit_without, args=(parent,), daemon=True).start()


def _exit_without(parent: int) -> None:
    """End this process when its parent process has ended; loky's workers would outlive a killed parent."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextlib.contextmanager
def one_thread(active: bool = True) -> Iterator[None]:
    """Use one CPU thread within a `with` block, if `active`: on busy cores, threads of small operations wait long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if active else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
