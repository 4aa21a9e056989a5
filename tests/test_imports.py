"""Losses, evaluators and rows of a file, by `--import`: a run, its resumption, a sweep, and messages."""

import ast
import json
import re
from pathlib import Path

import pytest
from torch_geometric.data import InMemoryDataset

import graphcl.extend
from graphcl.commands.sweep import main as sweep
from graphcl.evaluate import FoldScores, paired_test
from graphcl.registry import evaluators, losses, references
from graphcl.run import main as run
from tests.conftest import restored, small_graphs

LOSS = '''from graphcl.extend import losses

@losses.register("imported")
def imported(z1, z2):
    """Distance of the two views."""
    return (z1 - z2).square().mean() - z1.var()
'''
SCORES = '''import torch
from graphcl.extend import FoldScores, evaluators, references

@evaluators.register("centres", rows="graphs", chooses="nothing")
def centres(h, y, *, seed=0, folds=10):
    """Distance of the first class's mean from 1, a number per fold."""
    part = torch.arange(len(y)) % folds
    found = tuple(abs(float(h[(y == 0) & (part != fold)].mean()) - 1) for fold in range(folds))
    return FoldScores(seed, found, (0.0,) * folds, found, folds, 1, "distance", lower=True)

@references.register("edges", label="number of edges", needs="graphs")
def edges(inputs):
    """Number of edges."""
    return torch.tensor([[float(graph.num_edges)] for graph in inputs.dataset])
'''
QUICK = ["--dataset", "own.pt", "--epochs", "1", "--seeds", "0", "--eval", "knn", "--report", "false"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder that holds the graphs `own.pt`."""
    monkeypatch.chdir(tmp_path)
    InMemoryDataset.save(small_graphs(), "own.pt")


def test_a_loss_of_a_file_runs_resumes_and_is_swept(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(LOSS)
    words = ["--loss", "imported", *QUICK]
    assert run(words) == 2
    assert "--import FILE adds your own" in capsys.readouterr().err
    with restored(losses):
        assert run(["--import", "mine.py", "--help", "imported"]) == 0
        assert "imported" in capsys.readouterr().out
        assert run([*words, "--import", "mine.py", "--out", "one"]) == 0
        assert run(["--resume", "one", "--seeds", "0-1", "--report", "false"]) == 0
        assert "seed 0: finished before" in capsys.readouterr().out
        axis = ["--loss", "imported", "infonce", *QUICK[:-2], "--import", "mine.py", "--workers", "1", "--out", "two"]
        assert sweep(axis) == 0  # the worker is a new process
        assert "| imported " in capsys.readouterr().out
        (tmp_path / "mine.py").write_text(LOSS + "# another\n")
        assert run(["--resume", "one"]) == 2
        assert "mine.py" in capsys.readouterr().err


def test_a_run_with_a_relative_import_resumes_from_another_folder(tmp_path, monkeypatch, capsys):
    """Also one whose `data.json` names the file by another path, as earlier versions did."""
    (tmp_path / "mine.py").write_text(LOSS)
    words = ["--loss", "imported", *QUICK[2:], "--dataset", str(tmp_path / "own.pt"), "--import", "mine.py"]
    with restored(losses):
        assert run([*words, "--out", "one"]) == 0
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        resume = ["--resume", str(tmp_path / "one"), "--report", "false", "--seeds"]
        assert run([*resume, "0-1"]) == 0
        file = tmp_path / "one" / "data.json"
        file.write_text(file.read_text().replace(str(tmp_path / "mine.py"), "mine.py"))
        assert run([*resume, "0-2"]) == 0
        (tmp_path / "mine.py").write_text(LOSS + "# another\n")
        assert run([*resume, "0-3"]) == 2
        assert "holds a run on other data or files: " in capsys.readouterr().err


def test_the_files_to_start_from_need_names_of_extend_only():
    """Of losses: the decorator's formulas, which docs/extending.md and docs/architecture.md say to copy."""
    root = Path(graphcl.__file__).parent
    copied = [file for file in (root / "losses" / "formulas").glob("*.py") if "@pairwise" in file.read_text()]
    for file in (*copied, root / "augment" / "node_drop.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("graphcl"):
                own = node.module.startswith(("graphcl.losses.formulas", "graphcl.losses.rows"))
                missing = {alias.name for alias in node.names} - {*vars(graphcl.extend), "ranks", *graphcl.__all__}
                assert own or not missing, f"{file.name}: {missing}"


def test_a_changed_file_keeps_the_cells_that_do_not_use_it(tmp_path, inline, capfd):
    """Cells are reused unless the changed file registered one of their names; a finished sweep names the file."""
    (tmp_path / "mine.py").write_text(LOSS)
    words = ["--import", "mine.py", *QUICK, "--loss", "infonce", "imported"]
    with restored(losses):
        assert sweep([*words, "--out", "one"]) == 0
        (tmp_path / "mine.py").write_text(LOSS + "# another\n")
        capfd.readouterr()
        assert sweep([*words, "--out", "one"]) == 2
        line = "mine.py changed after cell `imported, own.pt, seed 0` was run in one. Restore it, or run"
        assert line in capfd.readouterr().err
        assert sweep([*words, "--reuse", "one", "--out", "two"]) == 0
        assert "3 cells, 1 of them reference rows; 2 finished" in capfd.readouterr().out
        assert sweep([*words, "--reuse", "one", "two", "--out", "three"]) == 0
        assert "3 finished" in capfd.readouterr().out


def test_an_evaluator_and_a_row_of_a_file_are_scored_swept_and_tested(tmp_path, inline, capsys):
    (tmp_path / "mine.py").write_text(SCORES)
    words = [*QUICK[:4], "--evaluation.folds", "3", "--import", "mine.py", "--eval", "centres,knn"]
    references_of_run = ["majority", "statistics", "untrained", "calibrated", "edges"]
    with restored(evaluators), restored(references):
        assert run([*words, "--seeds", "0-1", "--out", "one"]) == 0
        assert f"{'centres, number of edges':40}" in capsys.readouterr().out
        assert "number of edges" in (tmp_path / "one" / "report.html").read_text()
        result = json.loads((tmp_path / "one" / "result.json").read_text())
        for name, metric, sign in ("centres", "distance", -1), ("knn", "accuracy", 1):
            scores = result["scores"][name]
            assert scores["metric"] == metric
            assert list(scores["per_seed"][0]) == [*references_of_run, "trained"]
            assert scores["best_reference"] == max(references_of_run, key=lambda row: sign * scores[row]["mean"])
            gain = sign * (scores["trained"]["mean"] - scores["untrained"]["mean"])
            assert scores["gain"]["mean"] == pytest.approx(gain)
        assert result["scores"]["centres"]["majority"]["mean"] == 1  # its rows are zeros

        axis = ["--loss", "infonce", "dcl", "--seeds", "0", "1", "--workers", "1", "--out", "two"]
        assert sweep([*words, "--report", "false", *axis]) == 0
        cells = [json.loads(file.read_text()) for file in sorted((tmp_path / "two" / "cells").iterdir())]
        cells.sort(key=lambda cell: cell["config"]["seeds"])
        dcl = [cell["scores"]["centres"] for cell in cells if cell["config"]["loss"]["name"] == "dcl"]
        before = [cell["references"]["centres"] for cell in cells if not cell["config"]["epochs"]]
        best = min(references_of_run, key=lambda row: sum(FoldScores.of(each[row]).mean for each in before))
        test = paired_test([FoldScores.of(each) for each in dcl], [FoldScores.of(each[best]) for each in before])
        table = (tmp_path / "two" / "table.md").read_text().partition("### knn")[0]
        assert "| edges " in table
        gains = table.partition("Gain over the best row")[2].partition("Gain over")[0]
        assert re.search(rf"^\| dcl +\| {re.escape(f'{test.mean:+.2f}')} \(", gains, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "file 'bad.py' not found"),
        ("1 / 0", "bad.py fails: ZeroDivisionError: division by zero; "),
        ("import sys; sys.exit(0)", "bad.py calls sys.exit(0); call it under `if __name__"),
        ("raise SystemExit('usage: mine.py')", "bad.py calls sys.exit('usage: mine.py'); "),
        ("import pytest; pytest.skip('not here', allow_module_level=True)", "bad.py fails: Skipped: not here; "),
        ("from graphcl.extend import losses\nlosses.register('')", "a loss must be registered by a name of letters"),
    ],
)
def test_a_file_that_fails_is_one_line(text, line, tmp_path, capsys):
    if text:
        (tmp_path / "bad.py").write_text(text)
    assert run(["--import", "bad.py", "--loss", "of_bad"]) == 2  # an unknown loss is not reported: the file may add it
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
