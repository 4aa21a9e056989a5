"""`graphcl sweep`: output files, resuming, failing cells, concurrent sweeps, error messages."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.errors import InputError
from graphcl.run import main as run
from graphcl.sweep import command as module
from graphcl.sweep import make_plan, sweep
from graphcl.sweep.cell import run_cell
from graphcl.sweep.command import main
from graphcl.sweep.folder import SweepFolder
from graphcl.sweep.progress import Progress
from tests.conftest import small_graphs

QUICK = ["--epochs", "1", "--batch-size", "16", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden_channels", "8"]
FOLDS = {"accuracy": [80.0, 90.0], "chosen": [1.0, 1.0], "inner": [80.0, 80.0], "folds": 2, "inner_folds": 2}
SCORED = {"scores": {"svm": {"seed": 0, **FOLDS}}, "seconds": {}}
AXES = ["--loss", "infonce", "dcl", "--seeds", "0-1"]


@pytest.fixture
def inline(monkeypatch):
    """Run cells in a thread of this process, which is faster than starting a worker process."""
    module = sys.modules["graphcl.sweep.sweep"]  # `graphcl.sweep.sweep` is the function
    monkeypatch.setattr(module, "make_executor", lambda name, workers: ThreadPoolExecutor(1))


def command(*words):
    root = str(Path(graphcl.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "graphcl.sweep", *words]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(folder):
    return len(list((folder / "cells").glob("[!.]*.json"))) if (folder / "cells").is_dir() else 0


def table(folder):
    return (folder / "table.md").read_text(), (folder / "table.tex").read_text()


def test_killed_and_resumed(inline, saved_graphs, tmp_path, capfd):
    """A sweep that is killed and resumed has the results of an uninterrupted sweep."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["--dataset", saved_graphs(), *QUICK, *AXES, "--baseline", "infonce"]
    assert main([*words, "--out", str(whole), "--workers", "1"]) == 0
    printed, shown = capfd.readouterr()
    assert "6 cells, 2 of them reference rows; 0 finished; 1 worker;" in printed
    assert (whole / "table.md").read_text().strip() in printed
    assert len(shown.strip().split("\n")) == 6
    assert {path.name for path in whole.iterdir()} >= {"sweep.yaml", "cells", "table.md", "table.tex", "cells.csv"}

    process = command(*words, "--out", str(broken), "--workers", "1")
    deadline = time.time() + 120
    while finished(broken) < 2 and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # returns only after the worker, which holds the pipes too, has ended
    before = {path.name: path.stat().st_mtime_ns for path in (broken / "cells").glob("*.json")}
    assert 2 <= len(before) < 6
    # `--out` alone resumes the sweep, and finished cells are not run again.
    assert main(["--out", str(broken), "--workers", "2"]) == 0
    assert table(broken) == table(whole)
    after = {path.name: path.stat().st_mtime_ns for path in (broken / "cells").glob("*.json")}
    assert all(after[name] == stamp for name, stamp in before.items())

    # A larger sweep in the same folder runs only the new cells.
    capfd.readouterr()
    assert main([*words, "--loss", "infonce", "dcl", "hcl", "--out", str(broken)]) == 0
    printed, shown = capfd.readouterr()
    assert "8 cells, 2 of them reference rows; 6 finished" in printed
    assert len(shown.strip().split("\n")) == 2

    # The file of a cell is a configuration; `graphcl run` with it gives the same scores.
    cell = next(path for path in (whole / "cells").iterdir() if '"loss": "dcl"' in path.read_text())
    record = json.loads(cell.read_text())
    assert run(["--config", str(cell), "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    assert result["scores"]["svm"]["per_seed"][0]["trained"]["accuracy"] == record["scores"]["svm"]["accuracy"]
    capfd.readouterr()

    # Other settings for a finished cell are listed before anything runs.
    assert main([*words, "--lr", "0.5", "--out", str(whole)]) == 2
    assert "holds a cell `infonce, " in (error := capfd.readouterr().err)
    assert "with other settings, run by graphcl" in error
    assert "`lr` was 0.01 and is 0.5. Pass another --out" in error


def test_changed_data_is_refused(inline, saved_graphs, tmp_path, capfd):
    """The command refuses before any cell runs; `sweep` refuses finished cells with different data."""
    out = tmp_path / "sweep"
    assert main(["--dataset", saved_graphs(), *QUICK, "--seeds", "0", "1", "--out", str(out)]) == 0
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
    assert finished(out) == 3
    record["data"]["dataset"]["graphs"] = 12
    cell.write_text(json.dumps(record))
    with pytest.raises(InputError, match=rf"^cells/{cell.stem}\.json: {message}"):
        sweep(make_plan(yaml.safe_load((out / "sweep.yaml").read_text())), out)


def test_resumed_from_another_folder(inline, tmp_path, monkeypatch, capfd):
    """Paths are relative to the folder in which the sweep was started: data set, recipe, data folder, mirror."""
    start, other = tmp_path / "start", tmp_path / "other"
    start.mkdir()
    other.mkdir()
    InMemoryDataset.save(small_graphs(), str(start / "own.pt"))
    InMemoryDataset.save(small_graphs(n=12), str(other / "own.pt"))
    (start / "mine.yaml").write_text("lr: 0.02\n")
    out = tmp_path / "sweep"
    monkeypatch.chdir(start)
    words = ["--dataset", "own.pt", "--recipe", "mine.yaml", *QUICK, "--seeds", "0", "--out", "../sweep"]
    assert main(words) == 0
    files, whole = set(out.rglob("*.json")), table(out)
    cell = next(path for path in out.rglob("*.json") if '"lr": 0.02' in path.read_text())
    cell.unlink()
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


def test_a_failing_cell_does_not_stop_the_others(inline, saved_graphs, tmp_path, capfd):
    out = tmp_path / "sweep"
    words = ["--dataset", saved_graphs(), *QUICK, "--seeds", "0", "--lr", "0.01", "1e30", "--epochs", "3"]
    assert main([*words, "--out", str(out), "--workers", "1"]) == 1
    printed, error = capfd.readouterr()
    assert "failed: " in error
    assert "became NaN or infinite" in error
    assert "1 of 3 cells failed; the same command runs them again." in error
    assert "Traceback" not in error
    assert "| failed" in printed
    states = [json.loads(path.read_text())["status"] for path in (out / "cells").iterdir()]
    assert sorted(states) == ["done", "done", "failed"]
    assert main(["--out", str(out), "--dry-run"]) == 0
    assert "2 finished" in capfd.readouterr().out


def test_a_cell_of_an_earlier_version(tmp_path):
    """A finished cell without a setting counts as run with its default; a cell with another value is an error."""
    plan = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0]}})
    (cell,) = plan.cells
    (tmp_path / "cells").mkdir()

    def keep(change):
        config = cell.config.model_dump()
        change(config)
        record = {"status": "done", "coordinates": dict(cell.coordinates), "config": config, **SCORED}
        (tmp_path / "cells" / "earlier.json").write_text(json.dumps(record))
        return SweepFolder(tmp_path).records(plan)

    assert cell.key in keep(lambda config: config["encoder"].pop("readout"))
    assert cell.key in keep(lambda config: config.pop("steps"))
    with pytest.raises(InputError, match=r"with other settings, run by graphcl \?: `lr` was 0\.1 and is 0\.01\. Pass"):
        keep(lambda config: config.update(lr=0.1))
    with pytest.raises(InputError, match=r"`momentum` was removed"):
        keep(lambda config: config.update(momentum=0.9))
    # A failed record of an earlier version does not replace the record of a finished cell.
    record = {"coordinates": dict(cell.coordinates), "config": cell.config.model_dump(), **SCORED}
    (tmp_path / "cells" / f"{cell.key}.json").write_text(json.dumps({**record, "status": "done"}))
    del record["config"]["steps"]
    for name in ("0", "earlier", "z"):  # these file names sort before and after the finished cell's
        (tmp_path / "cells" / f"{name}.json").write_text(json.dumps({**record, "status": "failed", "error": "why"}))
    assert SweepFolder(tmp_path).records(plan)[cell.key]["status"] == "done"


def test_one_sweep_at_a_time(tmp_path, capfd):
    out = tmp_path / "sweep"
    (out / "cells").mkdir(parents=True)
    (out / "sweep.yaml").write_text("axes: {loss: [dcl]}\n")
    with FileLock(out / ".lock"):
        assert main(["--out", str(out)]) == 2
    assert capfd.readouterr().err == f"graphcl: {out} is in use by another sweep; wait for it, or pass another --out.\n"


def test_stopped_by_a_signal(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    out = tmp_path / "sweep"

    def show(self, cell, records):
        if len(records) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(module.Progress, "__call__", show)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--dataset", saved_graphs(), *QUICK, *AXES, "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    error = capfd.readouterr().err
    assert f"stopped; finished cells are in {out}; the same command resumes the sweep." in error
    assert 2 <= finished(out) < 6
    assert (out / "table.md").exists()


def test_a_data_set_that_cannot_be_scored_stops_the_sweep(saved_graphs, tmp_path, capfd):
    path = saved_graphs(labelled=False)
    assert main([*AXES, "--dataset", path, "--out", str(tmp_path / "s")]) == 2
    assert capfd.readouterr().err == (
        f"graphcl: {Path(path).stem} has no class labels, so a sweep cannot score it; use graphcl run.\n"
    )
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--losss", "dcl", "hcl", "--out", "x"], "`--losss` is not a known option"),
        (["--mu", "0", "1", "--out", "x"], "`--mu` is not a known option; did you mean --loss.mu? see --help all."),
        (["--loss", "dcl", "hcl"], "`--out` must name the folder of the sweep"),
        (["--out", "nothing"], "nothing holds no sweep to resume"),
        (["nowhere.yaml", "--out", "x"], "sweep 'nowhere.yaml' not found; choose from: published, or pass a file."),
        (["--loss", "dcl", "hcl", "--out", "x", "--workers", "none"], "`workers` must be a whole number, got 'none'."),
        (["--loss", "dcl", "hcl", "--out", "here"], "here is not empty and not a sweep folder"),
        (["list.yaml", "--out", "x"], "`settings` must be a mapping, got [1, 2]"),
        (["bad.yaml", "--out", "x"], "is not readable as YAML"),
        (["--loss", "dcl", "hcl", "--device", "cuda:63", "--out", "x"], "`device` is cuda:63, but torch sees"),
        (["old.yaml", "--out", "x"], "`settings`: unknown setting `tau`"),
    ],
)
def test_mistakes_get_a_line_and_code_2(words, message, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "precious").write_text("x")
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("settings: [1, 2]")
    (tmp_path / "old.yaml").write_text(yaml.safe_dump({"axes": {"loss": ["dcl"]}, "settings": {"tau": 1}}))
    assert main(words) == 2
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.yaml", "here", "list.yaml", "old.yaml"]


def test_invalid_records_are_ignored(tmp_path):
    plan = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0]}})
    (cell,) = plan.cells
    good = {"status": "done", "coordinates": dict(cell.coordinates), "config": cell.config.model_dump(), **SCORED}
    cells = tmp_path / "cells"
    cells.mkdir()

    def known(text):
        (cells / f"{cell.key}.json").write_text(text)
        return cell.key in SweepFolder(tmp_path).records(plan)

    assert known(json.dumps(good))
    assert known(json.dumps({**good, "status": "failed", "error": "why"}))
    for text in ("", "{", "[]", "null", '"done"', "?{}", "[" * 10**6, "9" * 10**5, "\0", '{"coordinates": {"a": []}}'):
        assert not known(text)
    for key in good:
        assert not known(json.dumps({each: value for each, value in good.items() if each != key}))
        assert not known(json.dumps({**good, key: 3}))
    assert not known(json.dumps({**good, "scores": {"svm": {}}}))
    assert not known(json.dumps({**good, "scores": {"knn": good["scores"]["svm"]}}))
    assert not known(json.dumps({**good, "scores": {"svm": {**good["scores"]["svm"], "accuracy": None}}}))


def test_folders_that_cannot_be_used(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    for out in ("file", "file/below"):
        assert main(["--loss", "dcl", "hcl", "--out", out]) == 2
        assert f"cannot create the folder {out}: Not a directory; pass another --out." in capfd.readouterr().err
    # A sweep that was killed at its start leaves a folder of cells without sweep.yaml.
    (tmp_path / "started" / "cells").mkdir(parents=True)
    (tmp_path / "started" / "table.md").write_text("")
    with SweepFolder(tmp_path / "started"):
        pass


def test_an_error_is_one_line(monkeypatch):
    def stop(*arguments, **options):
        raise RuntimeError("one\n  two")

    monkeypatch.setattr("graphcl.sweep.cell._load", stop)
    (planned,) = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0], "data_root": "nowhere"}}).cells
    assert run_cell(planned.config, "cpu")["error"] == "RuntimeError: one two"


@pytest.mark.parametrize("name", [".lock", "cells", "figures"])
def test_links_in_a_folder_are_not_written_through(name, tmp_path):
    """Otherwise, an attacker's folder could overwrite files of the user who resumes the sweep in it."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.yaml").write_text("axes: {loss: [infonce]}\n")
    (tmp_path / "sweep" / name).symlink_to(tmp_path / "precious")
    with (
        pytest.raises(InputError, match="is a link, and nothing is written through it; remove it"),
        SweepFolder(tmp_path / "sweep"),
    ):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_progress_lines():
    stream = io.StringIO()
    cells = make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {"seeds": [0]}}).cells
    records = {cells[0].key: {"status": "done", **SCORED}, cells[1].key: {"status": "failed", "error": "why"}}
    show = Progress(3, 1, stream)
    for cell in cells:
        show(cell, records)
    lines = stream.getvalue().split("\n")
    assert re.fullmatch(r"\[2/3, \d+ s left\] infonce, synthetic, seed 0: svm 85\.00 % in 0\.0 s", lines[0])
    assert re.fullmatch(r"\[3/3, 0 s left\] dcl, synthetic, seed 0: failed: why", lines[1])
