"""A sweep as a user runs it: its files, what it does when killed, when a cell fails, and when it is started twice."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.errors import InputError
from graphcl.run import main as run
from graphcl.sweep import make_plan, progress
from graphcl.sweep.__main__ import main
from graphcl.sweep.cell import run_cell
from graphcl.sweep.folder import SweepFolder
from tests.conftest import small_graphs

QUICK = ["--epochs", "1", "--batch-size", "16", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden", "8"]
FOLDS = {"accuracy": [80.0, 90.0], "chosen": [1.0, 1.0], "inner": [80.0, 80.0], "folds": 2, "inner_folds": 2}
SCORED = {"scores": {"svm": {"seed": 0, **FOLDS}}, "seconds": {}}
AXES = ["--loss", "infonce", "dcl", "--seeds", "0", "1", "2"]


@pytest.fixture
def inline(monkeypatch):
    """Cells are run in this process, which costs no start of another."""

    def run_here(tasks, work, workers):
        return ((task, work(task, "cpu"), "") for task in tasks)

    module = sys.modules["graphcl.sweep.sweep"]  # `graphcl.sweep.sweep` itself is the function
    monkeypatch.setattr(module, "run_tasks", run_here)


def command(*words):
    root = str(Path(graphcl.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "graphcl.sweep", *words]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(folder):
    return len(list((folder / "cells").glob("[!.]*.json"))) if (folder / "cells").is_dir() else 0


def table(folder):
    return (folder / "table.md").read_text(), (folder / "table.tex").read_text()


def test_killed_and_gone_on_with(inline, saved_graphs, tmp_path, capfd):
    """Whatever ran a cell, be it a worker or this process, gives the same."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["--dataset", saved_graphs(), *QUICK, *AXES, "--baseline", "infonce"]
    assert main([*words, "--out", str(whole), "--workers", "1"]) == 0
    printed, shown = capfd.readouterr()
    assert "9 cells, 3 of them reference rows; 0 finished; 1 worker;" in printed
    assert (whole / "table.md").read_text().strip() in printed
    assert len(shown.strip().split("\n")) == 9
    assert {path.name for path in whole.iterdir()} >= {"sweep.yaml", "cells", "table.md", "table.tex", "cells.csv"}

    process = command(*words, "--out", str(broken), "--workers", "1")
    deadline = time.time() + 120
    while finished(broken) < 3 and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in (broken / "cells").glob("*.json")}
    assert 3 <= len(before) < 9
    # The folder alone says what is left to do, and nothing that was finished is run again.
    assert main(["--out", str(broken), "--workers", "2"]) == 0
    assert table(broken) == table(whole)
    after = {path.name: path.stat().st_mtime_ns for path in (broken / "cells").glob("*.json")}
    assert all(after[name] == stamp for name, stamp in before.items())

    # Nothing is left, and a larger sweep in the folder runs only what is new.
    capfd.readouterr()
    assert main([*words, "--loss", "infonce", "dcl", "hcl", "--out", str(broken)]) == 0
    printed, shown = capfd.readouterr()
    assert "12 cells, 3 of them reference rows; 9 finished" in printed
    assert len(shown.strip().split("\n")) == 3

    # A cell is what `graphcl.run` gives, and its file repeats it.
    cell = next(path for path in (whole / "cells").iterdir() if '"loss": "dcl"' in path.read_text())
    record = json.loads(cell.read_text())
    assert run(["--config", str(cell), "--out", str(tmp_path / "again")]) == 0
    result = json.loads((tmp_path / "again" / "result.json").read_text())
    assert result["scores"]["svm"]["per_seed"][0]["trained"]["accuracy"] == record["scores"]["svm"]["accuracy"]
    capfd.readouterr()

    # Other settings for a cell that is there: said which, before anything is run.
    assert main([*words, "--lr", "0.5", "--out", str(whole)]) == 2
    assert "holds a cell `infonce, " in (error := capfd.readouterr().err)
    assert "of other settings, run by graphcl" in error
    assert "`lr` was 0.01 and is 0.5. Pass another --out" in error


def test_gone_on_with_from_another_folder(inline, tmp_path, monkeypatch, capfd):
    """What is relative means what it meant where the sweep was started: data set, recipe, data folder, mirror."""
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
    # Where that folder is no more, it is the present one that counts.
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
    assert "1 of 3 cells failed; the same command tries them again." in error
    assert "Traceback" not in error
    assert "| failed" in printed
    states = [json.loads(path.read_text())["status"] for path in (out / "cells").iterdir()]
    assert sorted(states) == ["done", "done", "failed"]
    assert main(["--out", str(out), "--dry-run"]) == 0
    assert "2 finished" in capfd.readouterr().out


def test_a_cell_of_an_earlier_version(tmp_path):
    """One that lacks a setting which is default now still counts; one of another value does not, and is named."""
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
    with pytest.raises(InputError, match=r"of other settings, run by graphcl \?: `lr` was 0\.1 and is 0\.01\. Pass"):
        keep(lambda config: config.update(lr=0.1))
    with pytest.raises(InputError, match=r"`momentum` is no more"):
        keep(lambda config: config.update(momentum=0.9))


def test_one_sweep_at_a_time(tmp_path, capfd):
    out = tmp_path / "sweep"
    (out / "cells").mkdir(parents=True)
    (out / "sweep.yaml").write_text("axes: {loss: [dcl]}\n")
    with FileLock(out / ".lock"):
        assert main(["--out", str(out)]) == 2
    assert (
        capfd.readouterr().err == f"graphcl: another sweep is at work in {out}; wait for it, or pass another --out.\n"
    )


def test_stopped_by_hand(inline, saved_graphs, tmp_path, capfd, monkeypatch):
    """By a signal in the middle; that workers do not outlive it, test_pool.py checks."""
    out = tmp_path / "sweep"

    def show(self, cell, records):
        if len(records) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(progress.Progress, "__call__", show)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--dataset", saved_graphs(), *QUICK, *AXES, "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    error = capfd.readouterr().err
    assert f"stopped; {out} keeps all finished cells, the same command goes on." in error
    assert finished(out) == 2
    assert (out / "table.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--losss", "dcl", "hcl", "--out", "x"], "`--losss` is not a known option"),
        (["--zzz", "1"], "mirror, non-finite, out, precise-bn,"),  # each once
        (["--loss", "dcl", "hcl"], "`--out` must name the sweep's folder"),
        (["--out", "nothing"], "nothing holds no sweep to go on with"),
        (["nowhere.yaml", "--out", "x"], "there is no file or sweep 'nowhere.yaml'"),
        (["--loss", "dcl", "hcl", "--out", "x", "--workers", "none"], "`--workers` must be a whole number"),
        (["--loss", "dcl", "hcl", "--out", "here"], "here is not the folder of a sweep, and holds something"),
        (["list.yaml", "--out", "x"], "`settings` must be a mapping, got [1, 2]"),
        (["bad.yaml", "--out", "x"], "is not readable as YAML"),
        (["--loss", "dcl", "hcl", "--device", "cuda:63", "--out", "x"], "`device` is cuda:63, but torch sees"),
        (["old.yaml", "--out", "x"], "`settings`: `tau` is no setting"),
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


def test_help_names_what_comes_with_it(capfd):
    assert main(["--help"]) == 0
    assert "published" in capfd.readouterr().out


def test_a_cell_file_of_another_shape_is_as_if_not_there(tmp_path):
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
    for text in ("", "{", "[]", "null", '"done"', "\ud800".encode("utf-8", "replace").decode() + "{}"):
        assert not known(text)
    for key in good:
        assert not known(json.dumps({each: value for each, value in good.items() if each != key}))
        assert not known(json.dumps({**good, key: 3}))
    assert not known(json.dumps({**good, "scores": {"svm": {}}}))
    assert not known(json.dumps({**good, "scores": {"knn": good["scores"]["svm"]}}))
    assert not known(json.dumps({**good, "scores": {"svm": {**good["scores"]["svm"], "accuracy": None}}}))


def test_what_an_earlier_version_failed_at_does_not_hide_what_is_done(tmp_path):
    plan = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0]}})
    (cell,) = plan.cells
    (tmp_path / "cells").mkdir()
    config = cell.config.model_dump()
    record = {"status": "done", "coordinates": dict(cell.coordinates), "config": config, **SCORED}
    (tmp_path / "cells" / f"{cell.key}.json").write_text(json.dumps(record))
    del config["steps"]
    for name in ("0", "z"):  # before and after it, in the order of names
        (tmp_path / "cells" / f"{name}.json").write_text(json.dumps({**record, "status": "failed", "error": "why"}))
    assert SweepFolder(tmp_path).records(plan)[cell.key]["status"] == "done"


def test_folders_that_cannot_be_used(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    for out in ("file", "file/below"):
        assert main(["--loss", "dcl", "hcl", "--out", out]) == 2
        assert f"cannot make the folder {out}: Not a directory; pass another with --out." in capfd.readouterr().err
    # A sweep that was killed as it started left a folder of cells, and no harm; so does one that lost its sweep.yaml.
    (tmp_path / "started" / "cells").mkdir(parents=True)
    (tmp_path / "started" / "table.md").write_text("")
    with SweepFolder(tmp_path / "started"):
        pass


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "\ngraphcl: stopped; nothing had begun.\n"),
        (OSError(28, "No space left on device", "x/table.md"), 2, "graphcl: No space left on device: x/table.md.\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_whatever_comes_there_is_no_traceback(raised, code, message, capfd, monkeypatch):
    def stop(words):
        raise raised

    monkeypatch.setattr("graphcl.sweep.__main__.parse", stop)
    assert main(["published"]) == code
    assert capfd.readouterr().err == message


def test_an_error_is_one_line(monkeypatch):
    def stop(*arguments):
        raise RuntimeError("one\n  two")

    monkeypatch.setattr("graphcl.sweep.cell.load_dataset", stop)
    (planned,) = make_plan({"axes": {"loss": ["dcl"]}, "settings": {"seeds": [0], "data_root": "nowhere"}}).cells
    assert run_cell(planned.config, "cpu")["error"] == "RuntimeError: one two"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_live_table_is_drawn_over_itself(monkeypatch):
    plan = make_plan({"axes": {"loss": ["infonce", "dcl"]}, "settings": {"seeds": [0]}})
    done = {"status": "done", **SCORED}
    monkeypatch.setattr(progress, "REDRAW", -1.0)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    screen, records = Terminal(), {}
    show = progress.Progress(plan, 0, screen)
    for cell in [*plan.untrained, *plan.cells]:
        records[cell.key] = {**done, "references": {"svm": {"untrained": SCORED["scores"]["svm"]}}}
        show(cell, records)
    drawings = screen.getvalue().split("\x1b[J")
    rows = [len(each.strip("\n").split("\n")) for each in drawings[:3]]
    assert rows == [6, 6, 6]  # head, rule, untrained, two rows, what is left
    assert [f"\x1b[{rows[0]}F" in each for each in drawings[:3]] == [False, True, True]
    assert "| dcl       | **85.00 ± 0.00** |" in drawings[2] or "| infonce   | **85.00 ± 0.00** |" in drawings[2]
    assert "[3/3, 0 s left]" in drawings[2]
    plain = [re.sub(r"\x1b\[\d*[FKJ]", "", line) for line in screen.getvalue().split("\n")]
    assert max(map(len, plain)) < 40  # a line that wraps would spoil the next drawing


@pytest.mark.parametrize("name", [".lock", "cells", "figures"])
def test_links_in_a_folder_are_not_written_through(name, tmp_path):
    """Whoever makes a folder for others to go on with could have files of theirs emptied."""
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


@pytest.mark.parametrize(
    "content", ["[" * 10**6, '{"coordinates": {"a": []}}', "9" * 10**5, "\x00", '{"coordinates": 3}']
)
def test_hostile_cells_are_as_if_they_were_not_there(content, tmp_path):
    with SweepFolder(tmp_path / "sweep") as folder:
        (folder.cells / "0.json").write_text(content)
        assert folder.records() == {}
