"""`graphcl diagnose`: files, printed page and messages."""

import json
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data

from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.extensions.diagnosis import COMMAND, main
from tests.conftest import small_graphs

SMALL = ["--epochs", "1", "--batch-size", "16", "--encoder", "gin"]
ROWS = ["majority", "statistics", "wl_oa", "untrained", "trained"]
SMALL += ["--encoder.hidden-channels", "4", "--encoder.num-layers", "2"]


@pytest.fixture
def go(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(graphs, *words):
        torch.save(graphs, "own.pt")
        return main(["--dataset", "./own.pt", *SMALL, *words]), capsys.readouterr()

    return run


def test_a_diagnosis_of_classes(go, tmp_path):
    code, (out, err) = go(small_graphs(n=120), "--seeds", "3", "--rows", *ROWS, "--out", "found")
    assert (code, err) == (0, "")
    page = (tmp_path / "found" / "diagnosis.md").read_text()
    assert out.startswith(page.rstrip())
    assert "# own: what carries the score\n\n**The edges carry the score" in page
    assert "| Do edges add to features and sizes? | yes | +" in page
    kept = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert (kept["kind"], kept["graphs"], kept["config"]["epochs"]) == ("edges", 120, 1)
    assert [*kept["table"]] == [
        "as they are", "no edges", "random edges", "shuffled features", "constant features", "sizes only",
    ]  # fmt: skip
    assert [*kept["table"]["no edges"]] == ROWS
    assert [score["seed"] for score in kept["table"]["no edges"]["trained"]] == [3]
    assert "The edges carry the score" in (tmp_path / "found" / "diagnosis.svg").read_text()
    code, (_, err) = go(small_graphs(), "--out", "found")
    assert (code, "found exists already and is never overwritten" in err) == (2, True)


def test_a_diagnosis_of_groups(go, tmp_path):
    rows = ["random", "statistics", "bag", "wl_oa", "untrained", "trained", "bag_trained"]
    words = ["--positives", "group", "--eval", "retrieval", "--quick", "--out", "found", "--rows", *rows]
    code, (out, _) = go(synthetic_pairs(num_groups=120), *words)
    kept = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert (code, kept["gains"]["signal"]["low"] > 0) == (0, True)
    scores = {row: each[0]["accuracy"] for row, each in kept["table"]["as they are"].items()}
    assert [*scores] == rows
    assert scores["bag_trained"] != scores["trained"]
    assert "a random order" in out
    assert "one test part of 12 groups (intervals are too narrow, as of fewer than 30), 1 seed." in out


@pytest.mark.parametrize("with_targets", [False, True])
def test_pairs_of_labelled_graphs_are_scored_as_pairs(go, tmp_path, with_targets):
    graphs = synthetic_pairs(num_groups=40)
    for number, each in enumerate(graphs):
        del each.group
        each.id, each.y = number, torch.tensor([number % 2])
    torch.save(graphs, tmp_path / "targets.pt")
    (tmp_path / "pairs.csv").write_text("query,target\n" + "".join(f"{i},{i + 1}\n" for i in range(0, 80, 2)))
    words = ["--positives", "pairs.csv", "--graphs", "50", "--rows", "statistics", "--out", "found"]
    words += ["--targets", "targets.pt"] * with_targets
    code, (out, err) = go(graphs, *words, "--seeds", "0")
    assert (code, err) == (0, "")
    assert "\n80 graphs; retrieval, MRR %" in out
    assert "class" not in out


def test_without_classes_and_groups_only_copies_are_counted(go, tmp_path):
    graphs = small_graphs(labelled=False)
    code, (out, _) = go([*graphs, graphs[0]], "--quick", "--out", "found")
    assert code == 0
    assert "has neither classes nor groups: what carries a score" in out
    assert out.rstrip().endswith("/: diagnosis.md, diagnosis.json")  # nothing to draw
    assert "% of the graphs have an isomorphic copy" in out
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == ["diagnosis.json", "diagnosis.md"]


def test_without_an_evaluator_copies_of_all_graphs_are_counted(go, tmp_path):
    graphs = small_graphs()
    copy = graphs[0].clone()
    copy.y = 1 - copy.y
    code, (out, err) = go([*graphs, copy], "--eval", "none", "--graphs", "10", "--out", "found")
    assert (code, err) == (0, "")
    assert "Only copies were counted, as `eval` is none." in out
    assert "5.4 % of the graphs have an isomorphic copy (by WL colours, with features). 5.4 % have a copy of" in out
    assert "no function of features and edges exceeds 97.3 % on all graphs" in out
    assert json.loads((tmp_path / "found" / "diagnosis.json").read_text())["graphs"] == 37


def test_copies_that_differ_in_edge_attr_are_named_as_such(go):
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [
        Data(x=torch.ones(3, 1), edge_index=ring, edge_attr=torch.full((3, 1), k % 2.0), y=torch.tensor([k % 2]))
        for k in range(12)
    ]
    code, (out, _) = go(graphs, "--quick", "--rows", "statistics", "--out", "found")
    assert code == 0
    assert "100.0 % of the graphs have an isomorphic copy (by WL colours, with features, without edge_attr)" in out
    assert "so no function of features and edges exceeds 50.0 % on all graphs." in out


def test_quick_sets_what_the_user_does_not():
    found = COMMAND.parse(["--dataset", "MUTAG", "--quick"])
    assert (found.seeds, found.graphs, found.quick) == ([0], 500, True)
    found = COMMAND.parse(["--dataset", "MUTAG", "--quick", "--seeds", "0-4", "--evaluation.folds", "5"])
    assert (found.seeds, found.graphs) == ([0, 1, 2, 3, 4], 500)
    assert (found.evaluation.folds, found.evaluation.inner_folds) == (5, 3)
    assert COMMAND.parse(["--dataset", "MUTAG"]).seeds == [0, 1, 2]


def test_the_core_works_without_the_folder():
    code = """
import sys
sys.modules["graphcl.extensions.diagnosis"] = None  # as if it were deleted
from graphcl.__main__ import main
assert main(["run", "--help"]) == main(["--help"]) == 0
assert main(["diagnose"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "train an encoder" in done.stdout
    assert "diagnose" not in done.stdout
    assert "`diagnose` of graphcl.commands of the package graphcl" in done.stderr
    assert "unknown command `diagnose`" in done.stderr
