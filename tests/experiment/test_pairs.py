"""Test runs on pairs: every method and loss, the data that methods get, the command line, sweeps, the estimator."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl import GraphCL, InputError, load_dataset, make_config, write_on_disk
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.experiment.trial import make_method as honest
from graphcl.registry import methods
from graphcl.run import main
from graphcl.sweep import make_plan, sweep
from tests.methods.small import OF_GRAPHS
from tests.training.helpers import trained
from tests.trials import make_method, make_model

QUICK = {"encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}, "batch_size": 4, "epochs": 1}
GRAPHS = synthetic_pairs(num_groups=9) + synthetic_pairs(1, num_groups=2, members=1)  # two with the groups 0 and 1
for _graph in GRAPHS[-2:]:
    _graph.group = -1
DATA = load_dataset(GRAPHS)
CPU = torch.device("cpu")


def config(**settings):
    return make_config({**QUICK, "positives": "group", **settings})


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_every_method_trains_on_pairs(name):
    """Row i of both views is of group ids[i], no group occurs twice, and the method's weights stay finite."""
    if methods.facts(name).get("pairs") == "no":
        with pytest.raises(InputError, match=f"`positives` group has no effect with method {name}, which encodes one"):
            config(method=name)
        return
    seen = []

    def make(*given):
        method = honest(*given)
        forward = method.forward

        def watched(view1, view2, *, ids=None, generator=None):
            for one, two, number in zip(view1.group, view2.group, ids, strict=True):
                assert one == two == (number if number < 9 else -1)
            assert len(set(ids.tolist())) == len(ids)
            seen.append(ids)
            return forward(view1, view2, ids=ids, generator=generator)

        method.forward = watched
        return method

    views = {} if methods.facts(name).get("views") else {"views": {"first": "random4", "second": "random4"}}
    for settings, groups in (({}, 9), ({"singles": "views", **views}, 11)):
        method, (epoch,) = trained(config(method=name, **settings), DATA, make=make)
        assert np.isfinite(epoch.loss)
        assert sorted(torch.cat(seen).tolist()) == list(range(groups))
        seen.clear()
        assert len(getattr(method, "bank", range(groups))) == groups


def test_members_are_not_augmented_by_default():
    assert config().views.first == config().views.second == {"name": "identity"}
    assert config(views={"first": "node_drop"}).views.first["name"] == "node_drop"
    assert config(method="joao").views.first["name"] == make_config({}).views.first["name"] == "random4"


@pytest.fixture
def saved(tmp_path):
    InMemoryDataset.save(GRAPHS, str(tmp_path / "own.pt"))
    return str(tmp_path / "own.pt")


QUICKLY = "--epochs 1 --batch_size 4 --encoder.hidden_channels 8 --seeds 0 --eval knn --evaluation.folds 2"
WORDS = QUICKLY.split()


def test_a_run_from_files_and_from_disk(saved, tmp_path, capsys):
    """A stream from a packed folder trains the same weights; a run says that groups are not labels."""
    packed, found = str(tmp_path / "folder"), []
    assert main(["--dataset", saved, "--out", str(tmp_path / "views"), *WORDS]) == 0
    words = "groups: 9 groups of 2 members (18 graphs), 2 graphs without a partner; groups are positives, not labels"
    assert f"{words}; --positives group trains on them\n" in capsys.readouterr().out
    write_on_disk(saved, packed)
    for name, source in (("file", saved), ("packed", packed)):
        assert main(["--dataset", source, "--positives", "group", "--out", str(tmp_path / name), *WORDS]) == 0
        assert f"{words}\n" in capsys.readouterr().out
        found.append(json.loads((tmp_path / name / "result.json").read_text())["scores"]["knn"]["per_seed"])
        assert (tmp_path / name / "report.html").exists()
    assert found[0] == found[1]
    other = [graph.clone() for graph in GRAPHS]
    other[0].group = -1
    InMemoryDataset.save(other, saved)
    assert main(["--resume", str(tmp_path / "file")]) == 2
    assert "holds a run on other data" in capsys.readouterr().err


def test_mistakes(saved, tmp_path, capsys):
    bare = str(tmp_path / "bare.pt")
    InMemoryDataset.save([graph.clone() for graph in synthetic_pairs(num_groups=2, members=1)], bare)
    without = [graph.clone() for graph in GRAPHS]
    for graph in without:
        del graph.group
    InMemoryDataset.save(without, str(tmp_path / "none.pt"))
    for source, words, line in (
        (tmp_path / "none.pt", "", "`positives` group needs graphs with a `group`, which none lacks; set it in each"),
        (bare, "", "training on pairs needs at least two groups of two or more graphs each, got 0; check `group`."),
        (saved, "--singles views", "`singles` views would pair equal graphs, as `views` are identity; pass"),
        (saved, "--method infograph", "`positives` group has no effect with method infograph, which encodes one view"),
        (saved, "--method grace", "`positives` group pairs whole graphs, but method grace contrasts nodes; use two"),
    ):
        out = ["--out", str(tmp_path / "run")]
        assert main(["--dataset", str(source), "--positives", "group", *words.split(), *WORDS, *out]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"graphcl: {line}")
        assert err.count("\n") == 1
        assert not (tmp_path / "run").exists()


def test_a_sweep_over_the_positives(saved, tmp_path):
    settings = {**QUICK, "dataset": saved, "seeds": [0], "eval": ["knn"], "evaluation": {"folds": 2}, "report": False}
    plan = make_plan({"settings": settings, "axes": {"positives": ["views", "group"]}})
    with ThreadPoolExecutor(1) as pool:
        sweep(plan, tmp_path / "sweep", executor=pool)
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert re.search(r"\| views +\| *\d", table), table
    assert re.search(r"\| group +\| *\d", table), table


def test_the_estimator_takes_groups_or_finds_them():
    settings = {**QUICK, "random_state": 3, "device": "cpu"}
    expected = GraphCL(positives="group", **settings).fit(GRAPHS).transform(GRAPHS)
    bare = [graph.clone() for graph in GRAPHS]
    for graph in bare:
        del graph.group
    names = [None if graph.group < 0 else f"pair {graph.group}" for graph in GRAPHS]
    for source in (bare, load_dataset(bare), load_dataset(bare + bare)[: len(bare)]):
        for groups in (names, iter(names)):
            assert np.array_equal(GraphCL(**settings).fit(source, groups=groups).transform(GRAPHS), expected)
    assert not np.array_equal(GraphCL(**settings).fit(GRAPHS).transform(GRAPHS), expected)
    for groups, words in (
        (names[1:], "one entry per graph, got 19 for 20"),
        ([0.5] * 20, "`group` of graph 0 must be"),
    ):
        with pytest.raises(InputError, match=words):
            GraphCL(**settings).fit(bare, groups=groups)


def test_a_memory_bank_holds_the_groups_of_the_training_part_only():
    data = load_dataset(synthetic_pairs(num_groups=30))
    for scored, rows in (("knn", 30), ("retrieval", 24)):
        settings = config(method="memory_bank", eval=[scored])
        model = make_model(settings, data, 0)
        assert make_method(settings, data, model).bank.size(0) == rows
