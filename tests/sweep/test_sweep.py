"""`graphcl sweep`: output files, resuming, failing cells, executors, concurrent sweeps, error messages."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from filelock import FileLock
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.datasets import GraphDataset
from graphcl.errors import InputError
from graphcl.registry import losses
from graphcl.run import main as run
from graphcl.sweep import command, make_plan, sweep
from graphcl.sweep import run as module
from graphcl.sweep.command import main
from graphcl.sweep.folder import locked, read_records
from graphcl.sweep.run import default_workers, make_executor, run_cell
from graphcl.system.processes import LocalExecutor, worker_device
from tests.conftest import restored, small_graphs
from tests.sweep.conftest import QUICK

FOLDS = {"accuracy": [80.0, 90.0], "chosen": [1.0, 1.0], "inner": [80.0, 80.0], "folds": 2, "inner_folds": 2}
SCORED = {"scores": {"svm": {"seed": 0, **FOLDS}}, "seconds": {}}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def finished(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("cells/[!.]*.json")}


def table(folder):
    return (folder / "table.md").read_text(), (folder / "table.tex").read_text()


@pytest.fixture
def planned(saved_graphs):
    settings = {"dataset": saved_graphs(), "seeds": [0], "epochs": 1, "encoder": {"name": "gin", "hidden_channels": 8}}
    settings |= {"evaluation.folds": 3, "evaluation.inner_folds": 2}
    return make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": settings})


REGISTER = "from graphcl.losses import infonce\nfrom graphcl.registry import losses\n"
REGISTER += "losses.register({!r})(lambda z1, z2: infonce(z1, z2, temperature=0.3))\n"
SCRIPT = """import sys, beside
from graphcl.sweep.command import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def own_losses(tmp_path):
    """Register the losses `mine` and `theirs`, as the script in `tmp_path` and a module that it imports do."""
    (tmp_path / "beside.py").write_text(REGISTER.format("theirs"))
    (tmp_path / "script.py").write_text(REGISTER.format("mine") + SCRIPT)
    assert {*losses}  # found before the block
    with restored(losses):
        for name in ("mine", "theirs"):
            exec(REGISTER.format(name), {"__name__": __name__})
        yield


def test_killed_and_resumed(inline, own_losses, saved_graphs, tmp_path, capfd):
    """A script's sweep that is killed and resumed has the results of an uninterrupted sweep in this process."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["--dataset", saved_graphs(), *QUICK, "--loss", "mine", "theirs", "--seeds", "0-2", "--baseline", "mine"]
    assert main([*words, "--out", str(whole), "--workers", "1"]) == 0
    printed, shown = capfd.readouterr()
    assert "9 cells, 3 of them reference rows; 0 finished; 1 worker;" in printed
    assert (whole / "table.md").read_text().strip() in printed
    lines = shown.strip().split("\n")
    assert re.fullmatch(r"\[1/9, \d+ s left\] untrained, .*own.pt, seed 0: svm \d+\.\d\d % in \d+\.\d s", lines[0])
    assert (len(lines), lines[-1][:15]) == (9, "[9/9, 0 s left]")
    assert {path.name for path in whole.iterdir()} >= {"sweep.yaml", "cells", "table.md", "table.tex", "cells.csv"}

    arguments = [sys.executable, str(tmp_path / "script.py"), *words, "--out", str(broken), "--workers", "1"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    deadline = time.time() + 120
    while len(finished(broken)) < 5 and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # returns only after the worker, which holds the pipes too, has ended
    before = finished(broken)
    assert 5 <= len(before) < 9
    assert all('"done"' in file.read_text() for file in broken.glob("cells/[!.]*.json"))
    # `--out` alone resumes the sweep, and finished cells are not run again.
    assert main(["--out", str(broken), "--workers", "2"]) == 0
    assert table(broken) == table(whole)
    assert before.items() <= finished(broken).items()

    # A larger sweep in the same folder runs only the new cells.
    capfd.readouterr()
    assert main([*words, "--loss", "mine", "theirs", "hcl", "--seeds", "0", "--out", str(broken)]) == 0
    printed, shown = capfd.readouterr()
    assert "4 cells, 1 of them reference rows; 3 finished" in printed
    assert len(shown.strip().split("\n")) == 1

    # The file of a cell is a configuration; `graphcl run` with it gives the same scores.
    cell = next(path for path in (whole / "cells").iterdir() if '"loss": "theirs"' in path.read_text())
    assert run(["--config", str(cell), "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    accuracy = json.loads(cell.read_text())["scores"]["svm"]["accuracy"]
    assert result["scores"]["svm"]["per_seed"][0]["trained"]["accuracy"] == accuracy

    # Other settings for a finished cell are listed before anything runs.
    capfd.readouterr()
    assert main([*words, "--lr", "0.5", "--out", str(whole)]) == 2
    error = r"holds a cell `mine, .* with other settings, run by graphcl .*`lr` was 0\.01 and is 0\.5\. Pass another"
    assert re.search(error, capfd.readouterr().err)


def test_the_module_is_a_program(monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["sweep", "--version"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("graphcl.sweep", run_name="__main__")
    assert (caught.value.code, capfd.readouterr().out) == (0, f"graphcl {graphcl.__version__}\n")


def test_changed_data_is_refused(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    """The command refuses before any cell runs; `sweep` refuses finished cells with different data."""
    out, hashed = tmp_path / "sweep", []
    of = GraphDataset.fingerprint
    monkeypatch.setattr(GraphDataset, "fingerprint", lambda self: hashed.append(self) or of(self))
    module._load.cache_clear()
    assert main(["--dataset", saved_graphs(), *QUICK, "--seeds", "0", "1", "--out", str(out)]) == 0
    assert len(hashed) == 2  # once before the sweep, and once in the process of the cells
    cell = next(path for path in (out / "cells").iterdir() if '"seed": "1"' in path.read_text())
    record = json.loads(cell.read_text())
    cell.unlink()
    saved_graphs(n=12)
    capfd.readouterr()
    assert main(["--out", str(out)]) == 2
    message = "the data is not that of the finished cells: `"
    err = capfd.readouterr().err
    assert err.startswith(f"graphcl: {message}")
    assert "own.pt.graphs` was 36 and is 12; " in err
    assert len(finished(out)) == 3
    plan = make_plan(yaml.safe_load((out / "sweep.yaml").read_text()))
    module._load.cache_clear()
    (error,) = sweep(plan, out, executor=ThreadPoolExecutor(1)).failed.values()
    assert error.startswith(message)
    record["data"]["dataset"]["graphs"] = 12
    cell.write_text(json.dumps(record))
    with pytest.raises(InputError, match=rf"^cells/\w+\.json: {message}"):
        sweep(plan, out)


def test_resumed_from_another_folder(inline, tmp_path, monkeypatch, capfd):
    """Paths are relative to the folder in which the sweep was started: data set, recipe, data folder, mirror."""
    start, other, out = (tmp_path / name for name in ("start", "other", "sweep"))
    for folder, n in ((start, 36), (other, 12)):
        folder.mkdir()
        InMemoryDataset.save(small_graphs(n), str(folder / "own.pt"))
    (start / "mine.yaml").write_text("lr: 0.02\n")
    monkeypatch.chdir(start)
    words = ["--dataset", "own.pt", "--recipe", "mine.yaml", *QUICK, "--seeds", "0", "--out", "../sweep"]
    assert main(words) == 0
    files, whole = set(out.rglob("*.json")), table(out)
    next(path for path in files if '"lr": 0.02' in path.read_text()).unlink()
    monkeypatch.chdir(other)
    assert main(["--out", "../sweep"]) == 0
    assert Path.cwd() == other
    assert "2 cells, 1 of them reference rows; 1 finished" in capfd.readouterr().out
    assert (set(out.rglob("*.json")), table(out)) == (files, whole)
    # If the start folder was removed, paths are relative to the working directory.
    start.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert main(["--out", "../sweep", "--dry-run"]) == 0
    assert "2 finished" in capfd.readouterr().out


def test_a_failing_cell_does_not_stop_the_others(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    out = tmp_path / "sweep"
    words = ["--dataset", saved_graphs(), *QUICK, "--seeds", "0", "--lr", "0.01", "1e30", "--epochs", "3"]
    assert main([*words, "--out", str(out), "--workers", "1"]) == 1
    printed, error = capfd.readouterr()
    assert re.search(r"\] 1e\+30, .*, seed 0: failed: .*became NaN or infinite", error)
    assert "1 of 3 cells failed; the same command runs them again." in error
    assert "Traceback" not in error
    assert "| failed" in printed
    states = [json.loads(path.read_text())["status"] for path in (out / "cells").iterdir()]
    assert sorted(states) == ["done", "done", "failed"]
    assert main(["--out", str(out), "--dry-run"]) == 0
    assert "2 finished" in capfd.readouterr().out

    def stop(*arguments, **options):
        raise RuntimeError("one\n  two")

    monkeypatch.setattr(module, "_load", stop)
    (cell,) = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0], "data_root": "nowhere"}}).cells
    assert run_cell(cell.config)["error"] == "RuntimeError: one two"


def test_stopped_by_a_signal(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    out, before = tmp_path / "sweep", signal.getsignal(signal.SIGTERM)

    def show(cell, records):
        if len(records) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(command, "progress", lambda total, done: show)
    try:
        assert main(["--dataset", saved_graphs(), *QUICK, "--seeds", "0-4", "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    error = capfd.readouterr().err
    assert f"stopped; finished cells are in {out}; the same command resumes the sweep." in error
    assert 2 <= len(finished(out)) < 10
    assert (out / "table.md").exists()


@pytest.fixture
def keep(tmp_path):
    """Return a cell, its record, and a function that writes a record's text to a file and reads the records."""
    plan = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0]}})
    (cell,) = plan.cells
    (tmp_path / "cells").mkdir()

    def records(text, name=cell.key):
        (tmp_path / "cells" / f"{name}.json").write_text(text if isinstance(text, str) else json.dumps(text))
        return read_records(tmp_path, plan)

    record = {"status": "done", "coordinates": dict(cell.coordinates), "config": cell.config.model_dump(), **SCORED}
    return cell, record, records


def test_a_cell_of_an_earlier_version(keep):
    """A finished cell without a setting counts as run with its default; a cell with another value is an error."""
    cell, record, records = keep
    config = record["config"]
    encoder = {key: value for key, value in config["encoder"].items() if key != "readout"}
    without_steps = {key: value for key, value in config.items() if key != "steps"}
    for changed in ({**config, "encoder": encoder}, without_steps):
        assert cell.key in records({**record, "config": changed}, "earlier")
    with pytest.raises(InputError, match=r"with other settings, run by graphcl \?: `lr` was 0\.1 and is 0\.01\. Pass"):
        records({**record, "config": {**config, "lr": 0.1}}, "earlier")
    with pytest.raises(InputError, match=r"`momentum` was removed"):
        records({**record, "config": {**config, "momentum": 0.9}}, "earlier")
    # A failed record of an earlier version does not replace the record of a finished cell.
    failed = {**record, "config": without_steps, "status": "failed", "error": "why"}
    records(failed, "earlier")
    records(record)
    for name in ("0", "z"):  # these file names sort before and after the finished cell's
        found = records(failed, name)
    assert found[cell.key]["status"] == "done"


def test_invalid_records_are_ignored(keep):
    cell, good, records = keep
    texts = ["", "{", "[]", "null", '"done"', "?{}", "[" * 10**6, "9" * 10**5, "\0", '{"coordinates": {"a": []}}']
    for key in good:
        texts += [{each: value for each, value in good.items() if each != key}, {**good, key: 3}]
    scores = good["scores"]["svm"]
    texts += [
        {**good, "scores": each} for each in ({"svm": {}}, {"knn": scores}, {"svm": {**scores, "accuracy": None}})
    ]
    below_chance = {"svm": {**scores, "accuracy": [-1.0, 0.5]}}  # an adjusted Rand index can be negative
    for valid in (good, {**good, "status": "failed", "error": "why"}, {**good, "scores": below_chance}):
        assert cell.key in records(valid), valid
    assert [text for text in texts if cell.key in records(text)] == []


def test_links_in_a_folder_are_not_written_through(tmp_path):
    """Otherwise, an attacker's folder could overwrite files of the user who resumes the sweep in it."""
    (tmp_path / "precious").write_text("kept")
    for name in (".lock", "cells", "figures"):
        folder = tmp_path / f"sweep{name}"
        folder.mkdir()
        (folder / "sweep.yaml").write_text("axes: {loss: [infonce]}\n")
        (folder / name).symlink_to(tmp_path / "precious")
        with pytest.raises(InputError, match=rf"{name} is a link, and nothing is written through it"), locked(folder):
            pass
    assert (tmp_path / "precious").read_text() == "kept"


TWO = "--loss dcl hcl --seeds 0 --dataset own.pt"
MISTAKES = [
    ("--losss dcl hcl --out x", "`--losss` is not a known option"),
    ("--mu 0 1 --out x", "`--mu` is not a known option; did you mean --loss.mu? see --help all."),
    (TWO, "`--out` must name the folder of the sweep"),
    ("--out nothing", "nothing holds no sweep to resume"),
    ("nowhere.yaml --out x", "sweep 'nowhere.yaml' not found; choose from: published, or pass a file."),
    (f"{TWO} --out x --workers none", "`workers` must be a whole number, got 'none'."),
    (f"{TWO} --out here", "here is not empty and not a sweep folder"),
    (f"{TWO} --out here/precious", "cannot create the folder here/precious: Not a directory; pass another --out."),
    ("list.yaml --out x", "`settings` must be a mapping, got [1, 2]"),
    ("bad.yaml --out x", "is not readable as YAML"),
    (f"{TWO} --device cuda:63 --out x", "`device` is cuda:63, but torch sees"),
    ("old.yaml --out x", "`settings`: unknown setting `tau`"),
    ("--loss dcl --dataset bare.pt --out x", "bare has no class labels, so a sweep cannot score it; use graphcl"),
    (f"{TWO} --out used", "used is in use by another sweep; wait for it, or pass another --out."),
]


def test_mistakes_get_a_line_and_code_2(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    InMemoryDataset.save(small_graphs(labelled=False), "bare.pt")
    InMemoryDataset.save(small_graphs(), "own.pt")
    (tmp_path / "here").mkdir()
    (tmp_path / "used" / "cells").mkdir(parents=True)
    files = {"here/precious": "x", "bad.yaml": "a: [", "list.yaml": "settings: [1, 2]"}
    files |= {"old.yaml": yaml.safe_dump({"axes": {"loss": ["dcl"]}, "settings": {"tau": 1}})}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    before = sorted(path.name for path in tmp_path.iterdir())
    with FileLock("used/.lock"):
        for words, message in MISTAKES:
            assert main(words.split()) == 2, words
            error = capfd.readouterr().err
            assert message in error
            assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_dead_process_fails_one_task_and_none_outlives_the_executor():
    pool = LocalExecutor(1)
    try:
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
    finally:
        pool.shutdown(wait=False)
    assert running.done()
    assert waiting.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_as_many_workers_as_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("joblib.cpu_count", lambda: 4)
    assert [default_workers(cells) for cells in (0, 1, 1000)] == [1, 1, 4]
    for available, workers in ((16_000_000, 4), (3_500_000, 2), (100, 1)):
        module.MEMINFO.write_text(f"MemFree: 100 kB\nMemAvailable:   {available} kB\nOdd: 0\n")
        assert default_workers(1000) == workers


def test_an_executor_by_its_name(monkeypatch):
    assert isinstance(make_executor("concurrent.futures:ThreadPoolExecutor", 3), ThreadPoolExecutor)
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name, message in [
        ("locky", "`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got 'locky'"),
        ("os:sep", "`executor` must be loky, dask:ADDRESS or MODULE:FUNCTION, got 'os:sep'"),
        ("nowhere:make", "`executor` nowhere:make cannot be imported: No module named 'nowhere'"),
        ("dask:x", r"`executor` dask:x needs Dask .*; pip install 'graphcl\[cluster\]'\."),
    ]:
        with pytest.raises(InputError, match=message):
            make_executor(name, 1)


def test_cells_of_a_dead_worker_fail_and_are_run_again(planned, tmp_path):
    def die():
        raise BrokenExecutor("killed\n by the system")

    class Dead(Executor):
        def submit(self, fn, /, *args, **kwargs):
            return ThreadPoolExecutor(1).submit(die)

    found = sweep(planned, tmp_path / "sweep", executor=Dead())
    assert set(found.failed.values()) == {"the worker died: killed by the system"}
    assert len(found.failed) == 3
    with ThreadPoolExecutor(1) as pool:
        assert not sweep(planned, tmp_path / "sweep", executor=pool).failed


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_table(planned, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        sweep(planned, tmp_path / "dask", executor=make_executor(f"dask:{cluster.scheduler_address}", 1))
    with ThreadPoolExecutor(1) as pool:
        sweep(planned, tmp_path / "here", executor=pool)
    assert table(tmp_path / "dask") == table(tmp_path / "here")
