"""Worker processes: each takes one cell at a time; one that dies takes its cell with it, and no other."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from graphcl.errors import InputError

MEMINFO = Path("/proc/meminfo")
GIGABYTES = 1.5
"""Memory that a worker may need: torch, a data set of thousands of graphs, its kernel matrices."""


def fitting_workers(cells: int) -> int:
    """Workers that this machine has room for: a core each, memory for each, and one for each CUDA device."""
    from joblib import cpu_count

    if torch.cuda.is_available():
        return max(1, min(cells, torch.cuda.device_count()))
    cores = cpu_count()  # those that this process may use, in a container too
    free = _available()
    return max(1, min(cells, cores, cores if free is None else int(free / GIGABYTES)))


def _available() -> float | None:
    """Gigabytes that a program can still get: free ones, and those that only cache files. None where it is not told."""
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024 / 1e9
    except (OSError, ValueError, KeyError):  # not Linux
        return None


@dataclass
class _Worker:
    process: Any
    connection: Connection
    task: Any = None
    started: bool = False


def run_tasks(
    tasks: Sequence[Any], work: Callable[[Any, str], Any], workers: int
) -> Iterator[tuple[Any, Any | None, str]]:
    """Each task with what `work(task, device)` gave for it, as they finish.

    Args:
        tasks: anything that can be pickled.
        work: a function of a module; called in the workers.
        workers: processes.

    Yields:
        The task, its outcome, and an empty text; or the task, None, and how its worker died.

    Raises:
        InputError: no worker can start, as from a script that begins all over again in each of them.
    """
    context = multiprocessing.get_context("spawn")  # forked threads of torch would hang
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    waiting = list(reversed(tasks))
    team: list[_Worker] = []

    def hire(number: int) -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, work, devices[number % len(devices)]), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def hand_out(number: int) -> None:
        task = team[number].task = waiting.pop() if waiting else None
        if task is None:
            return
        try:
            team[number].connection.send(task)
        except OSError:  # died since its last outcome, which is no fault of this task
            team[number] = hire(number)
            team[number].task = task
            with suppress(OSError):  # if that one is dead too, its outcome will tell
                team[number].connection.send(task)

    try:
        for number in range(min(workers, len(tasks))):
            team.append(hire(number))
            hand_out(number)
        while any(worker.task is not None for worker in team):
            ready = wait([worker.connection for worker in team if worker.task is not None])
            for number, worker in enumerate(team):
                if worker.connection not in ready:
                    continue
                task = worker.task
                try:
                    outcome, how = worker.connection.recv(), ""
                    if not worker.started:  # which is its first word
                        worker.started = True
                        continue
                except (EOFError, OSError):  # nothing more, or half an outcome
                    worker.process.join()
                    if not worker.started and worker.process.exitcode == 1:  # an exception, and no signal
                        raise InputError(
                            "the processes for the cells cannot start, for the reason above; a script of yours must be "
                            'a file, and call this below `if __name__ == "__main__":`.'
                        ) from None
                    outcome, how = None, _cause(worker.process.exitcode)
                    if waiting:
                        team[number] = hire(number)
                hand_out(number)
                yield task, outcome, how
    finally:
        for worker in team:
            worker.process.terminate()
        for worker in team:
            worker.process.join()


def _cause(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "its worker was killed by signal 9, as happens when the memory is full; try fewer --workers"
    return f"its worker died with {f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'}"


def _serve(connection: Connection, work: Callable[[Any, str], Any], device: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    try:
        connection.send("started")
        while True:
            connection.send(work(connection.recv(), device))
    except (EOFError, BrokenPipeError, ConnectionError):  # the parent is gone
        return
