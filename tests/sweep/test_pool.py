"""Workers: all tasks are done, one at a time each, and a death costs one cell."""

import importlib
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from graphcl.errors import InputError
from graphcl.sweep import pool
from graphcl.sweep.pool import fitting_workers, run_tasks


@pytest.fixture
def chores(monkeypatch):
    """The module of the workers' functions, found by them as by us, however pytest was started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("chores")


@pytest.fixture
def forked(monkeypatch):
    """Workers that have imported all that we have: a new one would take seconds to import torch."""
    monkeypatch.setattr(pool.multiprocessing, "get_context", lambda _: multiprocessing.context.ForkContext())


def test_a_death_costs_one_task(chores, forked):
    tasks = [("double", 1), ("die", 0), ("double", 2), ("exit", 0), ("double", 3), ("double", 4)]
    found = {task: (outcome, how) for task, outcome, how in run_tasks(tasks, chores.work, 2)}
    assert {task: outcome[0] for task, (outcome, how) in found.items() if outcome} == {
        ("double", value): 2 * value for value in (1, 2, 3, 4)
    }
    assert "killed by signal 9, as happens when the memory is full" in found["die", 0][1]
    assert found["exit", 0][1] == "its worker died with exit code 3"
    assert not any(how for outcome, how in found.values() if outcome)


def test_no_worker_outlives_the_caller_that_stops(chores):
    tasks = [("double", 1)] * 3
    running = run_tasks(tasks, chores.work, 1)
    _, (_, _, process), _ = next(running)
    running.close()
    try:
        os.kill(process, 0)
        gone = False
    except ProcessLookupError:
        gone = True
    assert gone


def test_a_death_between_tasks(chores, forked):
    found = []
    for task, outcome, how in run_tasks([0, 1, 2], chores.kill_yourself_soon, 1):
        found.append((task, outcome, bool(how)))
        if task == 0:
            time.sleep(2.5)
    assert found == [(0, 0, False), (1, 1, False), (2, 2, False)]


def test_workers_that_cannot_start_are_no_tasks_fault(chores, forked, monkeypatch, capfd):
    """As in a script without a guard, which each worker begins all over again."""

    def serve(*_):
        raise RuntimeError("no start")

    monkeypatch.setattr(pool, "_serve", serve)
    with pytest.raises(InputError, match=r'cannot start, for the reason above; .* `if __name__ == "__main__":`'):
        list(run_tasks([("double", 1)], chores.work, 1))
    assert "RuntimeError: no start" in capfd.readouterr().err


def test_as_many_workers_as_fit():
    assert fitting_workers(0) == 1
    assert fitting_workers(1) == 1
    assert 1 <= fitting_workers(1000) <= (os.cpu_count() or 1)


def test_memory_that_caches_files_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(pool.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 4)
    for available, workers in ((16_000_000, 4), (3_500_000, 2), (100, 1)):
        pool.MEMINFO.write_text(f"MemFree: 100 kB\nMemAvailable:   {available} kB\nOdd: 0\n")
        assert fitting_workers(1000) == workers
    pool.MEMINFO.unlink()
    assert fitting_workers(1000) == 4
