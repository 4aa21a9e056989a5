"""Test retrieval in a run: the parts, what training sees, and the rows without training."""

import json
import re

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, InMemoryDataset
from torch_geometric.utils import from_networkx

from graphcl import InputError, load_dataset, make_config, run
from graphcl.evaluate import rank_queries, retrieval
from graphcl.graphs.wl import histogram, numbered, unary
from graphcl.loaders.samplers import EpochPairs
from graphcl.references.rows import Inputs
from graphcl.references.wl import first_colours, kernel, wl, wl_oa
from graphcl.report.summary import protocol_line
from graphcl.tasks import task as task_module
from graphcl.tasks.evaluation import grouped_parts, split_column
from graphcl.tasks.task import make_task

SETTINGS = {"eval": ["retrieval"], "epochs": 1, "seeds": [0], "batch_size": 8, "evaluation": {"inner_folds": 2}}


def graphs(n=40, **attributes):
    """Return n pairs of random graphs that differ by one edge, with one-hot labels, and more attributes of each."""
    found = []
    for number in range(n):
        network = nx.gnp_random_graph(7, 0.5, seed=number)
        kinds = np.random.default_rng(number).integers(0, 3, 7)
        for member in range(2):
            graph = from_networkx(network)
            graph.x = torch.nn.functional.one_hot(torch.from_numpy(kinds), 3).float()
            graph.group = f"pair {number}"
            for key, value in attributes.items():
                graph[key] = value(number, member)
            found.append(graph)
            network.remove_edge(*next(iter(network.edges)))
    return found


def dataset(**attributes):
    return load_dataset(graphs(**attributes))


def test_training_and_calibration_draw_only_groups_of_the_training_part(monkeypatch):
    data, config = dataset(), make_config(SETTINGS)
    parts = grouped_parts(data)
    task = make_task(config, data)
    loader = task.training_loader(torch.Generator().manual_seed(0), torch.device("cpu"))
    for _ in range(2):
        drawn = torch.cat(loader.batch_sampler.draw())
        assert sorted(drawn.tolist()) == parts["train"].tolist()
    for number, batch in enumerate(loader):
        assert torch.equal(batch.group, data.groups[loader.batch_sampler.current[number]])
    seen = []
    monkeypatch.setattr(
        task_module, "calibrate", lambda model, loader: seen.append(len(loader.batch_sampler.draw()[0]))
    )
    task.calibrated(torch.nn.Linear(1, 1))
    assert seen == [len(parts["train"])]
    assert make_task(make_config({}), data).training_graphs is None


@pytest.mark.parametrize("singles", ["drop", "views"])
def test_pairs_are_drawn_from_the_training_part_too(singles):
    data = dataset()
    train = torch.from_numpy(grouped_parts(data)["train"])
    alone = train[3:]  # three graphs of the first two groups are left out, so that one member is single
    order = torch.Generator().manual_seed(0)
    sampler = EpochPairs(data.groups, 8, True, order, singles=singles)
    sampler.restrict_to(alone)
    for _ in range(3):
        pairs = torch.cat([torch.stack(pair) for pair in sampler.draw()], dim=1)
        assert pairs.shape == (2, len(train) // 2 - (1 if singles == "views" else 2))
        assert torch.isin(pairs, alone).all()
        assert torch.equal(*data.groups[pairs])
        assert int((pairs[0] == pairs[1]).sum()) == (singles == "views")
    with pytest.raises(InputError, match="training on pairs needs at least two groups"):
        sampler.restrict_to(train[:2])


def test_a_given_part_and_project():
    names = ["train"] * 30 + ["val"] * 5 + ["test"] * 5
    parts = grouped_parts(dataset(part=lambda number, _: names[number]))
    assert {part: rows.tolist() for part, rows in parts.items()} == {
        "train": list(range(60)),
        "valid": list(range(60, 70)),
        "test": list(range(70, 80)),
    }
    data = dataset(project=lambda number, _: f"p{number // 4}")
    projects = grouped_parts(data)
    assert split_column(data) == "project"
    assert split_column(dataset(part=lambda number, _: names[number])) == "part"
    assert protocol_line({"group_split": {"train": 8, "valid": 1, "test": 1}, "split_by": "project"}) == (
        "split by project: 8 training graphs, settings by 1 for validation, retrieval among 1 test graphs"
    )
    assert all(
        len(rows) % 8 == 0 and (rows // 8 * 8).tolist() == np.repeat(rows[::8], 8).tolist()
        for rows in projects.values()
    )
    for wrong, message in (
        (
            {"part": lambda number, member: names[min(number + member, 39)]},
            r"group 29 is in the parts train and valid; put ",
        ),
        (
            {"part": lambda number, _: "dev"},
            r"`part` of graph 0 must be train, valid or test, or 0, 1 or 2, got 'dev'\.",
        ),
        (
            {"part": lambda number, _: number % 2},
            r"no graph of own has the `part` test; name train, valid and test graphs\.",
        ),
        (
            {"part": lambda number, _: names[number], "project": lambda number, _: number % 10},
            r"project 0 is in the parts train and valid, and so are 4 more; put ",
        ),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            grouped_parts(dataset(**wrong))


def test_the_kernel_rows_equal_loops_over_colours():
    data = dataset()
    parts, rows = grouped_parts(data), torch.arange(0, 80, 3)
    labels, edge_index, batch = first_colours(data, rows)
    whole = Batch.from_data_list([data[int(i)] for i in rows])
    assert np.array_equal(edge_index, whole.edge_index.numpy())
    assert len(np.unique(labels)) == 3
    counts = [histogram(colours, batch) for colours in numbered(labels, edge_index, 2)]
    place = np.full(80, -1)
    place[rows] = np.arange(len(rows))
    # colours as nested tuples, by hand
    colour = whole.x.argmax(1).tolist()
    tables = [[] for _ in rows]
    for _ in range(3):
        for graph, table in enumerate(tables):
            table.append([colour[node] for node in range(whole.num_nodes) if whole.batch[node] == graph])
        sources = [[int(u) for u, v in whole.edge_index.T if v == node] for node in range(whole.num_nodes)]
        colour = [
            (colour[node], tuple(sorted(map(repr, (colour[u] for u in sources[node]))))) for node in range(len(colour))
        ]

    def inner(one, two, kind):
        total = 0
        for first, second in zip(one, two, strict=True):
            both = [(first.count(each), second.count(each)) for each in set(first) | set(second)]
            total += sum(a * b if kind == "wl" else min(a, b) for a, b in both)
        return total

    for kind, columns in (("wl", counts), ("wl_oa", [unary(each) for each in counts])):
        found = kernel(columns, place).similarity(2, None)(rows[:4], rows)
        for i, j in np.ndindex(4, len(rows)):
            own = inner(tables[i], tables[i], kind) * inner(tables[j], tables[j], kind)
            assert found[i, j] == pytest.approx(inner(tables[i], tables[j], kind) / own**0.5)
    inputs = Inputs(data, (), torch.nn.Identity(), torch.nn.Identity, parts)
    assert len(parts["test"]) > 4
    for row in wl, wl_oa:
        assert retrieval(row(inputs), group=data.groups, split=parts).mean > 50


def test_a_run_scores_groups_without_classes_in_all_rows(tmp_path, capsys):
    """Training and the report draw pairs of the training part only: the bank has no other graphs."""
    InMemoryDataset.save(graphs(), tmp_path / "pairs.pt")
    settings = {"dataset": str(tmp_path / "pairs.pt"), "positives": "group", "method": "memory_bank"}
    found = run(**settings, out=str(tmp_path / "run"), **SETTINGS)
    printed = capsys.readouterr().out
    assert "split by group: 64 training graphs, settings by 8 for validation, retrieval among 8 test graphs" in printed
    assert "retrieval, trained, recall_at_1" in printed
    note = "(too narrow, as of fewer than 30)"
    assert re.search(rf"\nretrieval, trained, 95 % over 4 groups +[\d.]+ to [\d.]+ {re.escape(note)}\n", printed)
    assert f"| row | MRR % | ± seeds | 95 % over 4 groups {note} |" in (tmp_path / "run" / "card.md").read_text()
    rows = ["random", "statistics", "bag", "untrained", "calibrated", "wl", "wl_oa"]
    rows += ["bag_trained", "wl_sparse", "hybrid", "trained"]
    assert list(found.rows) == rows
    assert found.rows["random"].mean == pytest.approx(100 * sum(1 / rank for rank in range(1, 8)) / 7)
    score = found.scores["retrieval"]["trained"][0]
    data = load_dataset(str(tmp_path / "pairs.pt"))
    h, test = np.load(tmp_path / "run" / "embeddings.npz")["h"][0], grouped_parts(data)["test"]
    if score.chosen == (0.0,):
        assert score.accuracy[0] == pytest.approx(rank_queries(h, data.groups, test, test).percent()["mrr"])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["group_split"]["test"] == 8
    assert (tmp_path / "run" / "report.html").exists()


def test_messages(tmp_path):
    InMemoryDataset.save(graphs(), tmp_path / "pairs.pt")
    InMemoryDataset.save(graphs(2), tmp_path / "few.pt")
    with pytest.raises(InputError, match="needs 3 groups or more"):
        run(dataset=str(tmp_path / "few.pt"), out=str(tmp_path / "run"), **SETTINGS)
    assert not (tmp_path / "run").exists()
    with pytest.raises(
        InputError, match=r"`eval` svm does not fit pairs, which has groups but no classes; pass --eval r"
    ):
        run(dataset=str(tmp_path / "pairs.pt"), **SETTINGS | {"eval": ["svm", "retrieval"]})
