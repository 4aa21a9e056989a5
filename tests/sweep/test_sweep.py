"""`graphcl sweep`: output files, resuming, failing cells, executors, concurrent sweeps, error messages."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.commands.sweep import main
from graphcl.config import make_config
from graphcl.config.recipes import shipped_configs
from graphcl.errors import InputError
from graphcl.registry import losses
from graphcl.run import main as run
from graphcl.sweep import make_plan, sweep
from graphcl.sweep import run_cells as module
from graphcl.sweep.folder import locked, read_records
from graphcl.sweep.plan import Cell
from graphcl.sweep.run_cells import progress
from graphcl.system.processes import LocalExecutor, make_executor
from tests.conftest import overriding, restored, small_graphs

QUICK = ["--epochs", "1", "--batch-size", "16", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden_channels", "8"]
FOLDS = {"accuracy": [80.0, 90.0], "chosen": [1.0, 1.0], "inner": [80.0, 80.0], "folds": 2, "inner_folds": 2}
SCORED = {"scores": {"svm": {"seed": 0, **FOLDS}}, "seconds": {}}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(graphcl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def finished(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("cells/[!.]*.json")}


def table(folder):
    return [(folder / name).read_text() for name in ("table.md", "table.tex")]


@pytest.fixture
def planned(saved_graphs):
    return plan_of(saved_graphs)


def plan_of(saved_graphs, **more):
    settings = {"dataset": saved_graphs(), "seeds": [0], "epochs": 1, "encoder": {"name": "gin", "hidden_channels": 8}}
    settings |= {"evaluation.folds": 3, "evaluation.inner_folds": 2, **more}
    return make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": settings})


REGISTER = "from graphcl.losses import infonce\nfrom graphcl.registry import losses\n"
REGISTER += "losses.register('mine')(lambda z1, z2: infonce(z1, z2, temperature=0.3))\n"
SCRIPT = """import sys
from graphcl.commands.sweep import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def own_loss(tmp_path):
    """Register the loss `mine`, as the script in `tmp_path` does."""
    (tmp_path / "script.py").write_text(REGISTER + SCRIPT)
    assert {*losses}  # found before the block
    with restored(losses):
        exec(REGISTER, {"__name__": __name__})
        yield


def test_killed_and_resumed(inline, own_loss, saved_graphs, tmp_path, capfd):
    """A script's sweep that is killed and resumed has the results of an uninterrupted sweep in this process."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["--dataset", saved_graphs(), *QUICK, "--loss", "mine", "dcl", "--seeds", "0-2", "--baseline", "mine"]
    assert main([*words, "--out", str(whole), "--workers", "1"]) == 0
    printed, shown = capfd.readouterr()
    assert "9 cells, 3 of them reference rows; 0 finished; 1 worker;" in printed
    assert (whole / "table.md").read_text().strip() in printed
    assert re.match(r"\[1/9, \d+ s left\] untrained, .*own.pt, seed 0: svm \d+\.\d\d % in \d+\.\d s\n", shown)
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
    # `--out` alone resumes the sweep, and finished cells are not run again.
    assert main(["--out", str(broken), "--workers", "2"]) == 0
    assert table(broken) == table(whole)
    assert before.items() <= finished(broken).items()

    # Another loss in the same folder runs only the new cells.
    capfd.readouterr()
    more = overriding(words, "--loss", "hcl", "--seeds", "0", "--out", str(broken))
    assert main(more) == 0
    assert "12 cells, 3 of them reference rows; 9 finished" in capfd.readouterr().out

    # The file of a cell is a configuration; `graphcl run` with it gives the same scores.
    cell = next(path for path in (whole / "cells").iterdir() if '"loss": "mine"' in path.read_text())
    assert run(["--config", str(cell), "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    accuracy = json.loads(cell.read_text())["scores"]["svm"]["accuracy"]
    assert result["scores"]["svm"]["per_seed"][0]["trained"]["accuracy"] == accuracy

    # Other settings for a finished cell are listed before anything runs.
    assert main([*words, "--lr", "0.5", "--out", str(whole)]) == 2
    error = r"holds another sweep: `lr` was 0\.01 and is 0\.5\. A stored sweep is extended by .* pass another"
    assert re.search(error, capfd.readouterr().err)


def test_changed_data_is_refused(inline, saved_graphs, tmp_path, capfd):
    """The command refuses before any cell runs; `sweep` refuses finished cells of different data."""
    out = tmp_path / "sweep"
    assert main(["--dataset", saved_graphs(), *QUICK, "--seeds", "0", "1", "--out", str(out)]) == 0
    cell = next(path for path in (out / "cells").iterdir() if '"seed": "1"' in path.read_text())
    record = json.loads(cell.read_text())
    cell.unlink()
    saved_graphs(n=12)
    capfd.readouterr()
    assert main(["--out", str(out)]) == 2
    message = "the data is not that of the finished cells: `"
    assert re.match(rf"graphcl: {message}.*own\.pt\.graphs` was 36 and is 12; ", capfd.readouterr().err)
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


def test_a_failing_cell_does_not_stop_the_others(inline, saved_graphs, tmp_path, capfd):
    out = tmp_path / "sweep"
    words = ["--dataset", saved_graphs(), *overriding(QUICK, "--seeds", "0", "--lr", "0.01", "1e30", "--epochs", "3")]
    assert main([*words, "--out", str(out), "--workers", "1"]) == 1
    printed, error = capfd.readouterr()
    assert re.search(r"\] 1e\+30, .*, seed 0: failed: .*became NaN or infinite", error)
    assert "1 of 3 cells failed; the same command runs them again." in error
    assert "| failed" in printed
    assert main(["--out", str(out), "--dry-run"]) == 0
    assert "2 finished" in capfd.readouterr().out


def test_stopped_by_a_signal(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    out, before = tmp_path / "sweep", signal.getsignal(signal.SIGTERM)

    def show(cell, records):
        if len(records) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("graphcl.sweep.run_cells.progress", lambda *_: show)
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
    without_steps = {**record, "config": {key: value for key, value in config.items() if key != "steps"}}
    assert cell.key in records(without_steps, "earlier")
    for changed, message in (({"lr": 0.1}, r"run by graphcl \?: `lr` was 0\.1 and is 0\.01\. Pass"),
                             ({"momentum": 0.9}, r"`momentum` was removed")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            records({**record, "config": {**config, **changed}}, "earlier")
    failed = {**without_steps, "status": "failed", "error": "why"}
    records(failed, "earlier")
    records(record)
    for name in ("0", "z"):  # files sorted before and after that of the finished cell, whose record stays
        assert records(failed, name)[cell.key]["status"] == "done"


def test_invalid_records_are_ignored(keep):
    cell, good, records = keep
    texts = ["", "null", '"done"', "?{}", "[" * 10**6, "9" * 10**5, "\0", '{"coordinates": {"a": []}}']
    for key in good:
        texts += [{each: value for each, value in good.items() if each != key}, {**good, key: 3}]
    scores = good["scores"]["svm"]
    invalid = {"svm": {}}, {"knn": scores}, {"svm": {**scores, "accuracy": None}}
    texts += [{**good, "scores": each} for each in invalid]
    below_chance = {"svm": {**scores, "accuracy": [-1.0, 0.5]}}  # an adjusted Rand index can be negative
    for valid in (good, {**good, "scores": below_chance}):
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
    (TWO, "`--out` must name the folder of the sweep"),
    ("--out nothing", "nothing holds no sweep to resume"),
    (
        "nowhere.yaml --out x",
        "sweep 'nowhere.yaml' not found; choose from: augmentation_pairs, batch_size,",
    ),
    (f"{TWO} --out here", "here is not empty and not a sweep folder"),
    (f"{TWO} --device cuda:63 --out x", "`device` is cuda:63, but torch sees"),
    ("--loss dcl --dataset bare.pt --out x", "bare has no class labels, so a sweep cannot score it; use graphcl"),
    ("--loss dcl hcl --dataset own.pt --eval instance --out x", "`eval` instance scores whole graphs in graphcl run"),
    (f"{TWO} --out used", "used is in use by another sweep; wait for it, or pass another --out."),
]


def test_mistakes_get_a_line_and_code_2(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    InMemoryDataset.save(small_graphs(labelled=False), "bare.pt")
    InMemoryDataset.save(small_graphs(), "own.pt")
    (tmp_path / "here").mkdir()
    (tmp_path / "used" / "cells").mkdir(parents=True)
    (tmp_path / "here" / "precious").touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    with FileLock("used/.lock"):
        for words, message in MISTAKES:
            assert main(words.split()) == 2, words
            error = capfd.readouterr().err
            assert message in error
            assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_every_shipped_sweep_is_planned_by_either_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert {"published", "table1", "table5", "figure4", "batch_size"} <= {*shipped_configs("sweeps")}
    for name in shipped_configs("sweeps"):
        printed = []
        for words in ([name], ["--config", name]):
            assert main([*words, "--dry-run"]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1] != ""
        assert printed[0].rstrip().endswith(f"sweeps/{name}/")


def test_a_dead_process_fails_one_task_and_none_outlives_the_executor():
    pool = LocalExecutor(1)
    try:
        tasks = (pow, 2, 3), (signal.raise_signal, signal.SIGKILL), (pow, 2, 4), (os.getpid,)
        first, killed, second, process = (pool.submit(*task) for task in tasks)
        with pytest.raises(BrokenExecutor, match=r"SIGKILL\("):
            killed.result()
        assert [first.result(), second.result()] == [8, 16]
        os.kill(process.result(), signal.SIGKILL)  # between two tasks
        time.sleep(1)
        process = pool.submit(os.getpid).result()
        running, waiting = pool.submit(time.sleep, 100), pool.submit(time.sleep, 100)
    finally:
        pool.shutdown(wait=False)
    assert (running.done(), waiting.cancelled()) == (True, True)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_an_unknown_executor(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit('usage')")
    for name, says in [
        ("os:sep", "gave no executor: 'str' object is not callable"),
        ("os:getcwd", "gave no executor: "),
        ("no:make", "gave no executor: No module"),
        ("exits_at_import:make", "gave no executor: usage"),
        ("dask:x", "needs Dask"),
    ]:
        with pytest.raises(InputError, match=f"^`executor` .*{says}"):
            make_executor(name, 1)


def test_cells_of_a_dead_worker_fail_and_are_run_again(planned, tmp_path):
    def die(*arguments):
        raise BrokenExecutor("killed\n by the system")

    with ThreadPoolExecutor(1) as pool:
        submit, pool.submit = pool.submit, lambda *_, **__: submit(die)
        failed = sweep(planned, tmp_path / "sweep", executor=pool).failed
        assert list(failed.values()) == 3 * ["the worker died: killed by the system"]
        del pool.submit
        assert not sweep(planned, tmp_path / "sweep", executor=pool).failed


def test_the_records_in_memory_have_the_epochs_of_the_files(saved_graphs, tmp_path):
    plan = plan_of(saved_graphs, epochs=2, score_every=1)
    with ThreadPoolExecutor(1) as pool:
        found = sweep(plan, tmp_path / "sweep", executor=pool).records
    kept = read_records(tmp_path / "sweep", plan)
    epochs = [{key: list(each.get("epoch_scores", {})) for key, each in records.items()} for records in (found, kept)]
    assert epochs[0] == epochs[1]
    assert ["1", "2"] in epochs[0].values()


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_table(planned, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        sweep(planned, tmp_path / "dask", executor=make_executor(f"dask:{cluster.scheduler_address}", 1))
    with ThreadPoolExecutor(1) as pool:
        sweep(planned, tmp_path / "here", executor=pool)
    assert table(tmp_path / "dask") == table(tmp_path / "here")


def test_a_table_is_laid_out_anew_and_shows_cells_of_another_sweep(saved_graphs, tmp_path, inline, capsys, monkeypatch):
    axes = ["--dataset", saved_graphs(), "--seeds", "0", *QUICK]
    assert main(["--loss", "infonce", "dcl", "--out", str(tmp_path / "one"), *axes]) == 0
    assert main(["--out", str(tmp_path / "one"), "--rows", "dataset", "--columns", "loss"]) == 0
    assert "| dataset | infonce | dcl |" in re.sub(" +", " ", capsys.readouterr().out)
    both = ["--loss", "infonce", "dcl", "hcl", "--out", str(tmp_path / "two"), "--reuse", "one"]
    monkeypatch.chdir(tmp_path)
    assert main([*both, *axes, "--dry-run", "true"]) == 0
    assert not (tmp_path / "two").exists()
    assert main([*both, *axes]) == 0
    assert "4 cells, 1 of them reference rows; 3 finished" in capsys.readouterr().out
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # paths of the sweep are relative to its folder, those of `reuse` are not
    assert main(["--out", "../two", "--reuse", "../one"]) == 0
    capsys.readouterr()
    assert main([*both, *axes, "--reuse", str(tmp_path)]) == 2
    assert "holds no sweep" in capsys.readouterr().err


def test_the_time_left_is_estimated_by_configuration_and_data_set(capsys):
    """Two workers; a reference cell takes 8 s on a and 40 s on b, a trained cell 2 s on a."""
    seconds = {("untrained", "a"): 8.0, ("untrained", "b"): 40.0, ("dcl", "a"): 2.0, ("dcl", "b"): 20.0}
    cells = [
        Cell(f"{row}{data}{seed}", {"loss": row, "dataset": data, "seed": str(seed)}, make_config({}), "")
        for seed in (0, 1)
        for row, data in seconds
    ]
    show, records = progress(cells, 10, 2), {}
    for cell in cells:
        spent = seconds[cell.coordinates["loss"], cell.coordinates["dataset"]]
        place = dict(cell.coordinates)
        records[cell.key] = {"status": "failed", "error": "none", "seconds": {"train": spent}, "coordinates": place}
        show(cell, records)
    shown = re.findall(r"\[(\d+)/10, (.*?) left\]", capsys.readouterr().err)
    assert [number for number, _ in shown] == [str(number) for number in range(3, 11)]
    assert shown[0][1].startswith("at least")
    # of configurations seen before: (8 + 40 + 2 + 20 s, of which the 48 running are half done) / 2
    assert [left for _, left in shown[3:]] == ["23 s", "20 s", "10 s", "10 s", "0 s"]
