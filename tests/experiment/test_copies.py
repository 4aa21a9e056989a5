"""Augmented copies: who draws them, that all rows see the same, and a run without labels."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl import InputError, load_dataset, make_config, run
from graphcl.evaluate import instance
from graphcl.experiment import scoring
from graphcl.experiment.scoring import RowBatches, copied_graphs, copying, sampled
from graphcl.loaders.loader import make_loader
from graphcl.models.saved import load_encoder
from graphcl.tasks import pairs
from graphcl.tasks.task import make_task
from graphcl.training.loop import embed
from tests.conftest import small_graphs
from tests.trials import run_seed

CPU = torch.device("cpu")
SMALL = {"epochs": 1, "batch_size": 12, "encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}}
SCORED = {**SMALL, "evaluation": {"folds": 3, "inner_folds": 2}, "seeds": [0]}


def config(**settings):
    return make_config({**SMALL, "eval": ["instance"], **settings})


def loader(settings, dataset, seed=0):
    return RowBatches(make_task(settings, dataset), make_loader(dataset, 10), seed, CPU)


def test_training_used_no_augmentation_that_draws_copies():
    data = load_dataset(small_graphs())
    every = {"attribute_mask", "edge_drop", "edge_perturb", "feature_mask", "node_drop", "subgraph"}
    for views, drawn_by in (
        ({}, {"edge_drop", "feature_mask"}),
        ({"first": "identity", "second": "random2"}, every - {"node_drop", "subgraph"}),
        ({"first": "identity", "second": "drop_and_mask"}, every - {"edge_drop", "feature_mask"}),
        ({"first": "identity", "second": {"name": "one_of", "members": ["random4", "edge_drop"]}}, {"feature_mask"}),
    ):
        found, unused = copying(make_task(config(views=views), data))
        assert (set(found), unused) == (drawn_by, True)
    found, unused = copying(make_task(config(views={"first": "random4", "second": "drop_and_mask"}), data))
    assert (set(found), unused) == (every, False)
    # on categories and on one column, `feature_mask` changes nothing, or all
    molecules = load_dataset(small_graphs(molecules=True, edge_attr=True), categories=True)
    graphs = small_graphs()
    for graph in graphs:
        graph.x = graph.x[:, :1] * 0 + 1
    for other in molecules, load_dataset(graphs):
        assert set(copying(make_task(config(), other))[0]) == {"edge_drop"}


def test_all_rows_see_the_same_copies(monkeypatch):
    data = load_dataset(small_graphs())
    monkeypatch.setattr(scoring, "COPIES", 14)
    _, queries = copied_graphs(make_task(config(), data), 0)
    assert len(queries.unique()) == 7
    whole = loader(config(), data)
    first, again, other = list(whole), list(whole), list(loader(config(), data, seed=1))
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one.edge_index, two.edge_index)
        assert torch.equal(one.x, two.x)
    graphs, dropped, masked = first[:4], first[4], first[5]
    assert torch.cat([each.y for each in graphs]).tolist() == data.y.tolist()
    assert dropped.get("y") is None
    nodes = [data[int(i)].num_nodes for i in queries]
    assert dropped.batch.bincount().tolist() == masked.batch.bincount().tolist() == nodes
    assert dropped.num_edges < masked.num_edges == sum(data[int(i)].num_edges for i in queries)
    assert not torch.equal(torch.cat([each.x for each in first]), torch.cat([each.x for each in other]))


def test_the_score_is_that_of_the_encoder_and_changes_nothing_else(tmp_path):
    InMemoryDataset.save(small_graphs(), tmp_path / "own.pt")
    own = {"dataset": str(tmp_path / "own.pt"), "report": False, **SCORED}
    both = run(**own, eval=["svm", "instance"], out=str(tmp_path / "both"))
    plain = run(**own, out=str(tmp_path / "plain"))
    assert both.scores["svm"] == plain.scores["svm"]
    h, kept = (np.load(tmp_path / name / "embeddings.npz") for name in ("both", "plain"))
    assert {key: each.tolist() for key, each in h.items()} == {key: each.tolist() for key, each in kept.items()}
    assert "copies" not in plain.summary
    data = load_dataset(own["dataset"])
    settings = make_config({**both.summary["config"]})
    found, _ = embed(load_encoder(tmp_path / "both")[0], loader(settings, data))
    assert torch.equal(found[:36], torch.from_numpy(h["h"][0]))
    score = both.scores["instance"]["trained"][0]
    assert score.accuracy == instance(found[:36], found[36:], torch.arange(36).repeat(2)).accuracy
    assert 1 < score.figures["effective_rank"] <= found.size(1)


@pytest.mark.filterwarnings("ignore:`evaluation.scale` has no effect")  # expected
def test_a_run_without_labels_scores_its_rows_on_one_seed(tmp_path, capsys):
    InMemoryDataset.save(small_graphs(labelled=False), tmp_path / "mine.pt")
    own = {"dataset": str(tmp_path / "mine.pt"), **SMALL, "evaluation": {"scale": True}}
    found = run(**own, out=str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert list(found.rows) == ["statistics", "untrained", "calibrated", "trained"]
    kept = json.loads((tmp_path / "run" / "result.json").read_text())
    assert kept["seeds"] == [0]
    assert kept["copies"] == {
        "augmentations": ["edge_drop", "feature_mask"], "unused_in_training": True, "copied": 36, "graphs": 36,
    }  # fmt: skip
    assert not {"folds", "split"} & kept.keys()
    rank = kept["scores"]["instance"]["per_seed"][0]["trained"]["figures"]["effective_rank"]
    trained = found.rows["trained"].mean
    (line,) = (each for each in printed.split("\n") if each.startswith("instance, trained encoder"))
    assert line.split()[3:] == [f"{trained:.2f}", "-", f"{rank:.1f}"]
    assert "copies of all 36 graphs by edge_drop, feature_mask, which training did not use" in printed
    assert not [text for text in ("gain", "next, try", "one seed of five") if text in printed]
    assert "recall@1 does not tell which row to use" in printed
    with pytest.raises(InputError, match="the graphs have no class labels, so there is no accuracy"):
        print(found.accuracy)
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"<td>{trained:.2f}</td><td>{rank:.1f}</td>" in page
    assert "gain" not in page.partition("<h2>Training</h2>")[0].partition("<body>")[2]
    again = run(str(tmp_path / "run" / "config.yaml"), out=str(tmp_path / "again"), report=False)
    assert again.rows == found.rows
    two = run(**own | {"epochs": 0}, seeds=[1, 2], out=str(tmp_path / "two"), report=False)
    assert list(two.rows) == ["statistics", "untrained", "calibrated"]
    assert two.summary["seeds"] == [1, 2]


def test_scores_on_the_way_and_the_message_for_nodes(tmp_path):
    data = load_dataset(small_graphs(labelled=False))
    result = run_seed(config(score_every=1), data)
    assert result.epoch_scores[1]["instance"] == result.scores["instance"]["trained"]
    assert len(result.h) == 36
    with pytest.raises(InputError, match=r"^`eval` instance scores whole graphs in graphcl run only; drop it\.$"):
        run(dataset="sbm", method="grace", epochs=1, eval=["instance"], out=str(tmp_path / "x"))


def without_labels(folder):
    graphs = small_graphs()
    for graph in graphs:
        del graph.y
    InMemoryDataset.save(graphs, folder / "bare.pt")
    return str(folder / "bare.pt")


def test_nothing_is_drawn_that_nothing_scores(tmp_path):
    data = load_dataset(without_labels(tmp_path))
    task = make_task(make_config({"eval": "none"}), data)
    assert sampled(task, 0) is task


def test_many_graphs_without_labels_are_scored_on_a_sample(tmp_path, capsys):
    settings = {**SCORED, "dataset": without_labels(tmp_path), "evaluation": {"sample": 20}, "report": False}
    result = run(**settings, out=str(tmp_path / "run"))
    with np.load(tmp_path / "run" / "embeddings.npz") as arrays:
        h = torch.from_numpy(arrays["h"][0])
    assert len(h) == 36
    data, chosen = load_dataset(settings["dataset"]), make_config(settings | {"eval": ["instance"]})
    task = sampled(make_task(chosen, data), 0)
    part = task.dataset
    assert len(part) == 20
    encoder, _ = load_encoder(tmp_path / "run")
    rows, _ = embed(encoder, loader(chosen, part))
    numbers = list(part.indices())
    torch.testing.assert_close(rows[:20], h[numbers])
    expected = instance(rows[:20], rows[20:], copied_graphs(task, 0)[1].repeat(2)).mean
    assert result.scores["instance"]["trained"][0].mean == expected
    assert "copies of all 20 graphs by edge_drop, feature_mask" in (printed := capsys.readouterr().out)
    assert ", found by cosine among a sample of 20 of 36" in printed


@pytest.mark.parametrize("scored", [{"eval": ["instance"], "evaluation": {"sample": 10}}, {"eval": "none"}])
def test_hard_negatives_are_mined_among_all_graphs_also_if_a_sample_is_scored(scored, monkeypatch):
    graphs, mined = small_graphs(labelled=False), []
    for number, graph in enumerate(graphs):
        graph.group = number // 3
    mine = pairs.mine_hard_negatives
    monkeypatch.setattr(pairs, "mine_hard_negatives", lambda h, *a, **o: mined.append(h) or mine(h, *a, **o))
    chosen = config(**scored, positives="group", hard_negatives=1, epochs=2, lr=1e-12, frozen_bn=True)
    found = run_seed(chosen, load_dataset(graphs))
    torch.testing.assert_close(torch.as_tensor(mined[0]), found.h)


def test_no_evaluator_scores_nothing(saved_graphs, tmp_path, capsys):
    for name, source in {"labelled": saved_graphs(), "bare": without_labels(tmp_path)}.items():
        out = tmp_path / name
        run(**SMALL, dataset=source, eval="none", seeds=[0], report=False, out=str(out))
        assert "The embeddings are saved but not scored, as `eval` is none." in capsys.readouterr().out
        assert "scores" not in json.loads((out / "result.json").read_text())
        assert (out / "embeddings.npz").exists()
        again = run(config=str(out / "config.yaml"), out=str(tmp_path / f"{name} again"))
        assert again.scores == {}
