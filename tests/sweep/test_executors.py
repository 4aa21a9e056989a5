"""Executors: a dead process fails only one task, no process outlives the sweep, and Dask runs the same cells."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import graphcl
from graphcl.errors import InputError
from graphcl.sweep import executors, make_plan, sweep
from graphcl.sweep.executors import default_workers, make_executor
from graphcl.system.processes import LocalExecutor, worker_device


@contextmanager
def local(workers):
    pool = LocalExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False)


def test_a_dead_process_fails_one_task_and_none_outlives_the_executor():
    with local(1) as pool:
        tasks = {"a": (pow, 2, 3), "killed": (signal.raise_signal, signal.SIGKILL), "b": (pow, 2, 4)}
        tasks |= {"exit": (os._exit, 3), "device": (worker_device,), "process": (os.getpid,)}
        futures = {name: pool.submit(*task) for name, task in tasks.items()}
        for name, code in (("killed", "SIGKILL"), ("exit", "EXIT")):
            with pytest.raises(BrokenExecutor, match=rf"{code}\("):
                futures[name].result()
        assert [futures[name].result() for name in ("a", "b")] == [8, 16]
        expected = {f"cuda:{number}" for number in range(torch.cuda.device_count())} or {"cpu"}
        assert futures["device"].result() in expected
        os.kill(futures["process"].result(), signal.SIGKILL)  # between two tasks
        time.sleep(1)
        process = pool.submit(os.getpid).result()
        running, waiting = pool.submit(time.sleep, 100), pool.submit(time.sleep, 100)
    assert running.done()
    assert waiting.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_processes_know_what_a_script_and_its_modules_register(tmp_path):
    (tmp_path / "beside.py").write_text(
        "from graphcl.registry import losses\nlosses.register('theirs')(lambda z1, z2: z1)"
    )
    (tmp_path / "script.py").write_text("""
import beside
from graphcl.config import make_config
from graphcl.registry import losses
from graphcl.system.processes import LocalExecutor

@losses.register("mine")
def mine(z1, z2):
    return (z1 * z2).sum()

if __name__ == "__main__":
    pool = LocalExecutor(1)
    print([pool.submit(make_config, {"loss": name}).result().loss["name"] for name in ("mine", "theirs")])
    pool.shutdown()
""")
    environment = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.stdout == "['mine', 'theirs']\n", done.stderr


def test_as_many_workers_as_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(executors.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 4)
    assert [default_workers(cells) for cells in (0, 1, 1000)] == [1, 1, 4]
    for available, workers in ((16_000_000, 4), (3_500_000, 2), (100, 1)):
        executors.MEMINFO.write_text(f"MemFree: 100 kB\nMemAvailable:   {available} kB\nOdd: 0\n")
        assert default_workers(1000) == workers


def test_an_executor_by_its_name():
    made = make_executor("concurrent.futures:ThreadPoolExecutor", 3)
    assert isinstance(made, ThreadPoolExecutor)
    for name, message in [
        ("locky", "`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got 'locky'"),
        ("os:sep", "`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got 'os:sep'"),
        ("nowhere:make", "`executor` nowhere:make cannot be imported: No module named 'nowhere'"),
    ]:
        with pytest.raises(InputError, match=message):
            make_executor(name, 1)


def test_dask_must_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"`executor` dask:x needs Dask .*; pip install 'graphcl\[cluster\]'\."):
        make_executor("dask:x", 1)


class Dead(Executor):
    """An executor whose workers die."""

    def submit(self, fn, /, *args, **kwargs):
        return ThreadPoolExecutor(1).submit(self.die)

    def die(self):
        raise BrokenExecutor("killed\n by the system")


@pytest.fixture
def plan(saved_graphs):
    settings = {
        "dataset": saved_graphs(),
        "seeds": [0],
        "epochs": 1,
        "encoder": {"name": "gin", "hidden_channels": 8},
        "evaluation.folds": 3,
    }
    return make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {**settings, "evaluation.inner_folds": 2}})


def test_cells_of_a_dead_worker_fail_and_are_run_again(plan, tmp_path):
    found = sweep(plan, tmp_path / "sweep", executor=Dead())
    assert set(found.failed.values()) == {"the worker died: killed by the system"}
    assert len(found.failed) == 3
    with ThreadPoolExecutor(1) as pool:
        assert not sweep(plan, tmp_path / "sweep", executor=pool).failed


def test_a_dask_cluster_killed_and_resumed(plan, tmp_path):
    """One of two workers is killed; the resumed sweep has the same tables as a local sweep."""
    distributed = pytest.importorskip("distributed")
    environment = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1])}
    script = f"""
import sys
from graphcl.sweep.command import main
if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], "--out", {str(tmp_path / "dask")!r}]))
"""
    (tmp_path / "run.py").write_text(script)
    words = [
        "--dataset",
        plan.spec["settings"]["dataset"],
        "--loss",
        "infonce",
        "dcl",
        "hcl",
        "--seeds",
        "0",
        "1",
        "--epochs",
        "1",
        "--evaluation.folds",
        "3",
    ]
    words += ["--evaluation.inner-folds", "2", "--encoder.hidden_channels", "8"]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        command = [sys.executable, str(tmp_path / "run.py"), "--executor", f"dask:{cluster.scheduler_address}"]
        first = subprocess.Popen([*command, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        cells = tmp_path / "dask" / "cells"
        deadline = time.time() + 240
        while len(list(cells.glob("[!.]*.json"))) < 2 and time.time() < deadline:
            time.sleep(0.1)
        first.kill()
        first.communicate(timeout=60)
        assert len(list(cells.glob("[!.]*.json"))) < 8
        worker = next(iter(cluster.workers.values()))
        os.kill(worker.pid, signal.SIGKILL)
        second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert second.returncode == 0, second.stdout + second.stderr
    spec = {"axes": {"loss": ["infonce", "dcl", "hcl"]}, "settings": {**plan.spec["settings"], "seeds": [0, 1]}}
    with ThreadPoolExecutor(1) as pool:
        sweep(make_plan(spec), tmp_path / "here", executor=pool)
    assert (tmp_path / "dask" / "table.md").read_text() == (tmp_path / "here" / "table.md").read_text()
