"""Test runs on listed pairs: files, roles, towers, mining, places, initial weights and more epochs."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Batch, Data

from graphcl import GIN, GINE, ContrastiveModel, GraphCL, InputError, load_dataset, load_encoder, make_config
from graphcl.datasets.pair_file import with_pairs
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.evaluate import Kernel
from graphcl.evaluate.graphs.retrieval import _by_pairs
from graphcl.evaluate.ranking import cosines, rank_pairs
from graphcl.experiment.run_config import run
from graphcl.experiment.scoring import RowScores
from graphcl.models.wrapper import Tower
from graphcl.registry import encoders
from graphcl.sweep import make_plan, sweep
from graphcl.tasks.evaluation import grouped_parts
from graphcl.tasks.pairs import Pairs
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line
from tests.experiment.test_resume import Killed, after_epoch, killed_in_a_line
from tests.trials import make_model

pytestmark = pytest.mark.filterwarnings("ignore:the split by (project|group) has")  # expected

N = 40


def graph(number, kind):
    """Return the measurement `kind` of thing `number`: a one-hot code of three columns, or of five."""
    draw = torch.Generator().manual_seed(number)
    code, ring = torch.randint(3, (6,), generator=draw), torch.arange(6)
    edge_index = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    x = torch.eye(3)[code] if kind == "q" else torch.eye(5)[(2 * code + 1) % 5]
    return Data(x=x, edge_index=edge_index, id=f"{kind}{number}", project=f"p{number % 4}", y=number % 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the paths of queries, targets and a table of their pairs."""
    folder = tmp_path_factory.mktemp("relations")
    for kind in "qt":
        torch.save([graph(number, kind) for number in range(N)], folder / f"{kind}.pt")
    with (folder / "pairs.csv").open("w", newline="") as file:
        rows = [[f"q{i}", f"t{i}", f"t{(i + 4) % N}", 1 + i % 2] for i in range(N)]
        csv.writer(file).writerows([["query", "target", "negative", "weight"], *rows])
    return {"dataset": str(folder / "q.pt"), "targets": str(folder / "t.pt"), "positives": str(folder / "pairs.csv")}


def settings(files, folder, **others):
    given = {**files, "towers": "separate", "eval": ["retrieval"], "seeds": [0], "epochs": 2, "batch_size": 8}
    return make_config({**given, "out": str(folder / "run"), "report": False, **others})


def test_two_towers_are_trained_scored_saved_and_resumed(files, tmp_path, capsys):
    config = settings(files, tmp_path, hard_negatives=1, batch_by="project", evaluation={"within": "project"})
    found = run(config)
    assert f"\npairs: {N} of {2 * N} graphs\n" in capsys.readouterr().out
    rows = found.scores["retrieval"]
    assert {"random", "untrained", "calibrated", "bag_trained", "trained"} <= set(rows)
    assert not {"bag", "wl"} & set(rows)  # the roles have other columns
    with np.load(found.folder / "embeddings.npz") as arrays:
        assert arrays["h"].shape == (1, N, 96)
    widths = {role: load_encoder(found.folder, role=role)[1].in_channels for role in ("query", "target")}
    assert widths == {"query": 3, "target": 5}
    assert "| trained encoder |" in (found.folder / "card.md").read_text()
    again = run(config.model_copy(update={"resume": True}))
    assert again.scores == found.scores


def test_a_sweep_scores_listed_pairs_as_runs_do(files, tmp_path):
    given = {**files, "towers": "separate", "eval": ["retrieval"], "seeds": [0], "epochs": 2, "batch_size": 8}
    given |= {"projection": 16, "lr": 0.003}
    pairs = Path(files["positives"])
    shorter = pairs.with_name("shorter.csv")
    shorter.write_text("".join(pairs.read_text().splitlines(keepends=True)[:-8]))
    axes = {"hard_negatives": [0, 1], "positives": [str(pairs), str(shorter)]}
    plan = make_plan({"settings": given, "axes": axes})
    with ThreadPoolExecutor(1) as pool:
        found = sweep(plan, tmp_path / "sweep", executor=pool)
    assert not found.failed
    config = settings(files, tmp_path, hard_negatives=1, projection=16, lr=0.003)
    expected = run(config).scores["retrieval"]
    table = found.tables["retrieval"]
    ((place, entry),) = [(p, e) for p, e in table.entries.items() if {"1", str(pairs)} <= {*p[0], p[1]}]
    assert entry.scores[0].accuracy == expected["trained"][0].accuracy
    assert table.references[place]["untrained"].scores[0].accuracy == expected["untrained"][0].accuracy
    assert len({each.reference for each in plan.cells}) == 2  # one for each list


def test_the_report_of_labelled_queries_maps_the_queries(files, tmp_path, capsys):
    found = run(settings(files, tmp_path, epochs=1, report=True))
    assert "no report.html" not in capsys.readouterr().out
    assert f"map of {N} graphs" in (found.folder / "report.html").read_text("utf-8")
    with np.load(found.folder / "report.npz") as arrays:
        assert arrays["after_map"].shape == (N, 2)


def test_scores_are_those_of_the_embeddings(files, tmp_path):
    """The trained row is the better of raw and standardised cosines, by validation, over the targets of the part."""
    found = run(settings(files, tmp_path, epochs=1))
    models = {role: load_encoder(found.folder, role=role)[0] for role in ("query", "target")}
    h = []
    for role, kind in (("query", "q"), ("target", "t")):
        batch = Batch.from_data_list([graph(number, kind) for number in range(N)])
        h.append(models[role](batch.x, batch.edge_index, batch.batch).detach().double())
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    parts = grouped_parts(dataset)
    rows = torch.cat(h)
    figures = {}
    for scale in (False, True):
        train = rows[parts["train"]]
        scaled = (rows - train.mean(0)) / train.std(0, correction=0) if scale else rows
        similarity = cosines(torch.nn.functional.normalize(scaled))
        for part in ("valid", "test"):
            own = torch.from_numpy(parts[part])
            queries, targets = own[own < N], own[own >= N]
            ranked = rank_pairs(similarity, torch.stack([queries, queries + N]), targets)
            figures[scale, part] = ranked.percent()["mrr"]
    best = max((False, True), key=lambda scale: figures[scale, "valid"])
    assert found.accuracy == pytest.approx(figures[best, "test"])


def test_one_encoder_serves_both_roles_with_rows_without_training(tmp_path):
    graphs = synthetic_pairs(num_groups=40)
    for number, each in enumerate(graphs):
        del each.group
        each.id = f"g{number}"
    torch.save(graphs, tmp_path / "graphs.pt")
    rows = [[f"g{i}", f"g{i + 1}"] for i in range(0, 80, 2)]
    (tmp_path / "pairs.tsv").write_text("query\ttarget\n" + "\n".join("\t".join(row) for row in rows))
    found = run(make_config({
        "dataset": str(tmp_path / "graphs.pt"), "positives": str(tmp_path / "pairs.tsv"), "eval": ["retrieval"],
        "epochs": 2, "seeds": [0], "batch_size": 8, "out": str(tmp_path / "run"), "report": False,
    }))  # fmt: skip
    assert {"bag", "wl", "wl_oa", "bag_trained", "trained"} <= set(found.scores["retrieval"])
    score = found.scores["retrieval"]["trained"][0]
    assert score.figures["mrr_low"] <= score.mean <= score.figures["mrr_high"]


def test_training_goes_on_bit_by_bit(files, tmp_path):
    longer = settings(files, tmp_path, out=str(tmp_path / "whole"), epochs=4, hard_negatives=1)
    run(settings(files, tmp_path, hard_negatives=1))
    run(settings(files, tmp_path, hard_negatives=1, epochs=4, resume=True))
    run(longer)
    assert_same_weights(tmp_path / "run", tmp_path / "whole")
    assert (tmp_path / "run" / "result-2-epochs.json").exists()


def assert_same_weights(one, two):
    one, two = (torch.load(each / "encoder.pt", weights_only=True) for each in (one, two))
    for key in ("weights", "target_weights"):
        ((seed, weights),) = two[key].items()
        assert all(torch.equal(one[key][seed][name], value) for name, value in weights.items())


def test_mined_negatives_survive_a_kill(files, tmp_path):
    mined = {"hard_negatives": 1, "mine_every": 2, "epochs": 4, "checkpoint": {"epochs": 1}}
    with pytest.MonkeyPatch.context() as patch:
        after_epoch(killed_in_a_line)(patch)  # in epoch 3; epoch 2 mined
        with pytest.raises(Killed):
            run(settings(files, tmp_path, seeds=[1], **mined))
    run(settings(files, tmp_path, seeds=[1], resume=True, **mined))
    run(settings(files, tmp_path, seeds=[1], out=str(tmp_path / "whole"), **mined))
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_best_epoch_of_the_validation_part_survives_a_kill(files, tmp_path, monkeypatch):
    """The second epoch is best by a score that only counts the epochs."""
    measure, measured = RowScores.validation, []

    def second_is_best(self):
        measured.append(measure(self))
        return -abs(len(measured) % 4 - 2)

    monkeypatch.setattr(RowScores, "validation", second_is_best)
    best = {"best_epoch": True, "epochs": 4, "lr": 0.1, "checkpoint": {"epochs": 1}, "hard_negatives": 1}
    best["seeds"] = [1]  # that which is killed, after the third epoch
    whole = run(settings(files, tmp_path, **best))
    assert [row["valid"] for row in metrics(whole.folder)] == [-1, 0, -1, -2]
    assert whole.scores["retrieval"]["trained"][0].inner[0] == pytest.approx(measured[1])
    assert len({*measured}) > 1
    best["out"] = str(tmp_path / "killed")
    with monkeypatch.context() as patch:
        after_epoch(killed_in_a_line)(patch)
        with pytest.raises(Killed):
            run(settings(files, tmp_path, **best))
    run(settings(files, tmp_path, **best, resume=True))
    assert_same_weights(tmp_path / "killed", tmp_path / "run")


def test_calibration_gives_each_tower_the_statistics_of_its_graphs(files):
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    config = settings(files, Path())
    task = make_task(config, dataset)
    model = task.make_model()
    rows, seen = torch.from_numpy(grouped_parts(dataset)["train"]), []
    for tower in (model, model.target):
        norm = next(each for each in tower.encoder.modules() if isinstance(each, torch.nn.BatchNorm1d))
        norm.register_forward_hook(lambda _, given, __: seen.append(given[0].mean(0)))
    found = task.calibrated(model)
    seen.clear()
    for tower, other, kind in ((model, found, "q"), (model.target, found.target, "t")):
        own = [int(row) % N for row in rows if (row < N) == (kind == "q")]
        tower.encode(Batch.from_data_list([graph(number, kind) for number in own]))
        norm = next(each for each in other.encoder.modules() if isinstance(each, torch.nn.BatchNorm1d))
        torch.testing.assert_close(norm.running_mean, seen[-1])


def test_initial_weights_are_those_of_the_file(tmp_path):
    graphs = synthetic_pairs(num_groups=12)
    first = GraphCL(positives="group", epochs=1, batch_size=8).fit(graphs)
    first.save(tmp_path / "first.pt")
    torch.save(graphs, tmp_path / "graphs.pt")
    common = {"dataset": str(tmp_path / "graphs.pt"), "positives": "group", "eval": ["retrieval"], "seeds": [0]}
    common |= {"init": str(tmp_path / "first.pt"), "batch_size": 8, "report": False, "epochs": 1, "lr": 1e-12}
    found = run(make_config({**common, "out": str(tmp_path / "run")}))
    encoder, _ = load_encoder(found.folder)
    before = first.model_.encoder.state_dict()
    weights = [name for name in before if "running" not in name and "num_batches" not in name]
    assert all(torch.allclose(before[name], encoder.state_dict()[name], atol=1e-6) for name in weights)
    assert "initial" in found.scores["retrieval"]
    again = first.set_params(warm_start=True, lr=1e-12).fit(graphs)
    assert all(torch.allclose(before[name], again.model_.encoder.state_dict()[name], atol=1e-6) for name in weights)


def test_settings_beside_initial_weights_are_kept_or_refused(saved_graphs, tmp_path):
    common = {"dataset": saved_graphs(), "eval": "none", "seeds": [0], "batch_size": 8, "report": False, "epochs": 1}
    first = run(make_config({**common, "encoder": {"name": "gin", "num_layers": 2}, "out": str(tmp_path / "first")}))
    common["init"] = str(first.folder)
    found = run(make_config({**common, "encoder": {"name": "auto", "readout": "mean"}, "out": str(tmp_path / "mean")}))
    encoder = found.summary["config"]["encoder"]
    assert (encoder["name"], encoder["num_layers"], encoder["readout"]) == ("gin", 2, "mean")
    for settings, line in (
        ({"encoder": {"name": "auto", "num_layers": 3}}, "do not fit the settings of the encoder"),
        ({"encoder": "gcn"}, "do not fit the settings of the encoder"),
        ({"features": "degree"}, "`features` is labels in `init`"),
        ({"max_degree": 3}, "`max_degree` is 64 in `init`"),
        ({"tu_features": "both"}, "`tu_features` is labels in `init`"),
    ):
        one_line(lambda settings=settings: run(make_config({**common, **settings, "out": str(tmp_path / "no")})), line)


def test_an_integer_is_no_index_where_a_string_has_its_digits(tmp_path):
    graphs = small_graphs(4)
    for number, graph in enumerate(graphs):
        graph.id = str(3 - number)
    dataset = load_dataset(graphs)
    assert with_pairs(dataset, [("3", "0"), ("2", "1")]).relation.query.tolist() == [0, 1]
    one_line(lambda: with_pairs(dataset, [(3, 0), (2, 1)]), "no graph has the id 3 of `query` in pair 0")
    for graph in graphs:
        graph.id = f"graph {graph.id}"
    assert with_pairs(load_dataset(graphs), [(3, 0), (2, 1)]).relation.query.tolist() == [3, 2]


def test_a_kept_projector_makes_the_embeddings_and_is_saved(tmp_path):
    graphs = synthetic_pairs(num_groups=12)
    common = {"positives": "group", "epochs": 1, "batch_size": 8, "lr": 1e-12}
    model = GraphCL(keep_projector=True, projection=5, **common).fit(graphs)
    tower, batch = model.model_.encoder, Batch.from_data_list(graphs)
    h = tower.encoder(batch.x, batch.edge_index, batch.batch).detach()
    rows = model.transform(graphs)
    np.testing.assert_allclose(rows, tower.projector(h).detach(), atol=1e-5)
    torch.testing.assert_close(model.model_(batch), model.model_.encode(batch))  # the loss compares the embeddings
    model.save(tmp_path / "kept.pt")
    np.testing.assert_array_equal(GraphCL.load(tmp_path / "kept.pt").transform(graphs), rows)
    GraphCL(**common).fit(graphs).save(tmp_path / "bare.pt")
    for file, keep in (("kept", True), ("kept", False), ("bare", True)):
        start, _ = load_encoder(tmp_path / f"{file}.pt")
        config = make_config({"keep_projector": keep, "projection": 5, "init": str(tmp_path / f"{file}.pt")})
        assert_close_weights(start, make_model(config, load_dataset(graphs)).encoder)
    assert_close_weights(
        load_encoder(tmp_path / "kept.pt")[0], model.set_params(warm_start=True).fit(graphs).model_.encoder
    )


def assert_close_weights(one, two):
    """Compare the encoders, and the projectors if both are kept."""
    if isinstance(one, Tower) != isinstance(two, Tower):
        one, two = (each.encoder if isinstance(each, Tower) else each for each in (one, two))
    for (name, weight), (other, found) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(weight, found, atol=1e-6, rtol=0)


def test_the_estimator_has_roles(files, tmp_path):
    sets = {kind: [graph(number, kind) for number in range(N)] for kind in "qt"}
    pairs = [(f"q{i}", f"t{i}") for i in range(N)]
    model = GraphCL(towers="separate", epochs=1, batch_size=8).fit(sets["q"], pairs=pairs, targets=sets["t"])
    rows = model.transform(sets["q"]), model.transform(sets["t"], role="target")
    model.save(tmp_path / "model.pt")
    loaded = GraphCL.load(tmp_path / "model.pt")
    np.testing.assert_array_equal(loaded.transform(sets["q"]), rows[0])
    np.testing.assert_array_equal(loaded.transform(sets["t"], role="target"), rows[1])
    for call, line in (
        (lambda: model.transform(sets["q"], role="both"), "`role` must be 'query' or 'target', got 'both'."),
        (lambda: model.transform(sets["t"]), "own has 5 columns of `x`"),
        (lambda: GraphCL().fit(sets["q"], targets=sets["t"]), "`targets` needs the `pairs` of queries and targets"),
        (lambda: model.set_params(warm_start=True).fit(sets["q"], pairs=pairs, targets=sets["t"]), "trained two"),
    ):
        one_line(call, line)


def test_supcon_takes_several_targets_of_a_query():
    """A loss of several positives learns from each of them: both targets become nearer than others."""
    sets = {kind: [graph(number, kind) for number in range(N)] for kind in "qt"}
    for each in (*sets["q"], *sets["t"]):
        del each.project
    pairs = [(f"q{i - i % 2}", f"t{i}") for i in range(N)]
    model = GraphCL(towers="separate", loss="supcon", epochs=20, batch_size=16, lr=0.003)
    model.fit(sets["q"], pairs=pairs, targets=sets["t"])
    h, other = (
        torch.nn.functional.normalize(torch.as_tensor(model.transform(sets[kind], role=role)))
        for kind, role in (("q", "query"), ("t", "target"))
    )
    nearest = (h[::2] @ other.T).topk(2, dim=1).indices
    assert float((nearest // 2 == torch.arange(N // 2)[:, None]).float().mean()) > 0.3  # by chance 0.03


def test_settings_that_contradict_each_other(files):
    lone = {key: value for key, value in files.items() if key != "positives"}
    for given, line in (
        ({"targets": "synthetic"}, "`targets` needs the pairs of queries and targets"),
        ({"towers": "separate"}, "`towers` separate needs queries and targets"),
        ({"batch_by": "project"}, "`batch_by` needs pairs"),
        ({"pair_share": 0.5}, "`pair_share` needs pairs"),
        ({"keep_projector": True, "method": "infograph"}, "`keep_projector` projects whole graphs"),
        ({**files, "hard_negatives": 2, "method": "moco"}, "`hard_negatives` are keys of the loss"),
        (lone, "`targets` needs the pairs"),
    ):
        with pytest.raises(InputError, match=line):
            make_config(given)


def test_too_few_pairs_for_a_split_are_refused_before_training(files, tmp_path):
    (tmp_path / "few.csv").write_text("query,target\nq0,t0\nq1,t1\n")
    config = settings(files, tmp_path, positives=str(tmp_path / "few.csv"))
    line = "q: the valid part of the split has 20 graphs, but no two of a group or pair; list more pairs, or name"
    one_line(lambda: run(config), line)
    assert not (tmp_path / "run").exists()


def test_a_share_of_the_pairs_is_part_of_a_larger_share(files, tmp_path):
    """A run trains on whole components only, and scores the same test part."""
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    whole = make_task(settings(files, tmp_path), dataset).training_graphs
    shares = (0.25, 0.5)
    tasks = [make_task(settings(files, tmp_path, pair_share=share), dataset) for share in shares]
    less, more = (task.training_graphs for task in tasks)
    assert set(less.tolist()) < set(more.tolist()) < set(whole.tolist())
    assert [len(each) / len(whole) for each in (less, more)] == pytest.approx(shares, abs=0.03)
    for share, graphs in zip(shares, (less, more), strict=True):
        task = make_task(settings(files, tmp_path, pair_share=share, eval=["retrieval"]), dataset)
        assert torch.equal(task.training_targets, graphs)  # the component of q1 is q1 and t1
        assert task.scored_parts["train"].tolist() == [*graphs.tolist(), *(graphs + N).tolist()]
    with pytest.raises(InputError, match=r"^`pair_share` 0\.02 of \d+ training groups is 0; pass a larger one\.$"):
        _ = make_task(settings(files, tmp_path, pair_share=0.02), dataset).training_graphs
    sampler = task.sampler(4, torch.Generator())
    assert {*torch.cat([one for one, _ in sampler.draw()]).tolist()} <= {*more.tolist()}


def test_settings_of_pairs_that_do_not_fit(files, tmp_path):
    for others, line in (
        ({"eval": ["svm"]}, "`eval` svm does not fit q, which is searched for graphs of t; pass --eval retrieval."),
        ({"eval": ["instance"]}, "`eval` instance does not fit q, which is searched for graphs of t"),
        ({"shuffle_window": 16}, "`shuffle_window` has no effect on listed pairs"),
    ):
        one_line(lambda others=others: run(settings(files, tmp_path, **others)), line)
    run(settings(files, tmp_path, schedule="cosine"))
    again = settings(files, tmp_path, schedule="cosine", epochs=4, resume=True)
    one_line(lambda: run(again), "`schedule` or `warmup` fix the length of its training; start a new run with --init")
    assert (tmp_path / "run" / "result.json").exists()
    graphs = [graph(number, "q") for number in range(N)]
    one_line(lambda: GraphCL(positives="none.csv").fit(graphs), "is a list of pairs; pass it to `fit` as `pairs`.")


def test_targets_are_standardised_as_the_file_says(tmp_path):
    sets = {kind: [graph(number, kind) for number in range(N)] for kind in "qt"}
    for each in sets["t"]:
        each.x = 50 * each.x + 100
    given = {"towers": "separate", "standardise_columns": True, "epochs": 1, "batch_size": 8}
    seen = []
    original = Pairs.training_loader
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairs, "training_loader", lambda task, *args: seen.append(task) or original(task, *args))
        model = GraphCL(**given).fit(sets["q"], pairs=[(i, i) for i in range(N)], targets=sets["t"])
    (task,) = seen
    assert task.targets._data.x.mean(0).abs().max() < 1e-3
    assert model.description_.target.scales["x"][0][0] > 90


def test_a_negative_column_and_a_bank_of_listed_pairs_run(files, tmp_path):
    first = [i for i in range(N) if i // 4 % 2 == 0]  # pairs of one project each
    rows = "".join(f"q{i},q{i + 4},q{(i + 20) % N}\n" for i in first) + "q1,q2,\n"
    (tmp_path / "pairs.csv").write_text("query,target,negative\n" + rows)
    given = {"targets": None, "towers": "shared", "positives": str(tmp_path / "pairs.csv")}
    found = run(settings(files, tmp_path, **given))
    assert {"wl_sparse", "hybrid"} <= set(found.scores["retrieval"])
    (tmp_path / "plain.csv").write_text("\n".join(line.rpartition(",")[0] for line in ("query,target,", *rows.split())))
    given["positives"] = str(tmp_path / "plain.csv")
    run(settings(files, tmp_path, **given, method="memory_bank", out=str(tmp_path / "bank")))


def test_a_positive_listed_in_the_other_direction_is_no_wrong_answer():
    scores = torch.eye(4) * 0
    scores[2, 1], scores[2, 3] = 0.9, 0.8  # 2 finds 1, listed as 1 -> 2, then 3, listed as 2 -> 3
    kernel = Kernel(lambda _setting, _train: lambda one, two: scores[one][:, two], (0,), 4)
    rows = np.arange(4)
    split = {"train": rows[:0], "valid": rows, "test": rows}
    rank = _by_pairs(4, torch.tensor([[0, 1, 2], [1, 2, 3]]), None)
    found = rank(kernel.similarity(0, split["train"]), rows, None)
    assert found.values["mrr"][found.queries.tolist().index(2)] == 1


@pytest.mark.parametrize("name", [name for name in encoders if "edge_dim" not in encoders.arguments(name).required])
def test_one_encoder_of_graphs_with_other_columns_is_refused(files, name, tmp_path):
    line = (
        "`x` of the queries has 3 columns of numbers, that of the targets 5 columns of numbers; pass --towers separate."
    )
    one_line(lambda: run(settings(files, tmp_path, towers="shared", encoder=name)), line)
    assert not (tmp_path / "run").exists()


def test_one_encoder_of_graphs_with_other_edge_columns_is_refused():
    queries, targets = ([graph(number, "q") for number in range(8)] for _ in range(2))
    for number, each in enumerate(queries):
        each.edge_attr, targets[number].id = torch.ones(each.num_edges, 2), number
        each.id = number
    pairs = [(number, number) for number in range(8)]
    given = {"epochs": 1, "batch_size": 4}
    one_line(
        lambda: GraphCL(encoder="gine", **given).fit(queries, pairs=pairs, targets=targets),
        "`edge_attr` of the queries has 2 columns, that of the targets no columns; pass --towers separate.",
    )
    GraphCL(encoder="gin", **given).fit(queries, pairs=pairs, targets=targets)  # which reads no edge_attr
    batches = Batch.from_data_list(queries[:4]), Batch.from_data_list(targets[:4])
    model = ContrastiveModel(GINE(3, 2, 8, 1))
    with pytest.raises(InputError):  # a pass for both views would leave out the edge_attr of the first
        model.encode_views(*batches)


def test_the_encoder_of_the_targets_is_the_one_that_is_asked_for(files, tmp_path):
    config = settings(files, tmp_path, encoder={"name": "gin", "num_layers": 2}, target_encoder={"name": "auto"})
    assert config.target_encoder == config.encoder
    config = settings(files, tmp_path, encoder="sage", target_encoder={"name": "auto", "hidden_channels": 8})
    assert config.target_encoder == {**config.encoder, "hidden_channels": 8}
    one_line(
        lambda: run(settings(files, tmp_path, target_encoder="wl_sparse")), "`target_encoder` wl_sparse has sparse rows"
    )
    assert not (tmp_path / "run").exists()


def small_gin(columns):
    return GIN(columns, 8, 1)


@pytest.mark.parametrize(
    ("given", "own", "width"),
    [
        ({"target_encoder": {"name": "gin", "hidden_channels": 4}}, {}, 12),
        ({"target_encoder": small_gin}, {"target_encoder": small_gin}, 8),
        ({"encoder": small_gin}, {"encoder": small_gin}, 8),
        ({"encoder": small_gin, "target_encoder": "gin"}, {"encoder": small_gin}, 96),
    ],
)
def test_the_estimator_takes_an_encoder_of_the_targets(given, own, width, tmp_path):
    sets = {kind: [graph(number, kind) for number in range(N)] for kind in "qt"}
    pairs = {"pairs": [(f"q{i}", f"t{i}") for i in range(N)], "targets": sets["t"]}
    model = clone(GraphCL(towers="separate", epochs=1, batch_size=8, **given)).fit(sets["q"], **pairs)
    assert model.model_.target.encoder.encoder.out_channels == width
    model.save(tmp_path / "model.pt")
    loaded, rows = GraphCL.load(tmp_path / "model.pt", **own), model.transform(sets["t"], role="target")
    np.testing.assert_array_equal(loaded.transform(sets["t"], role="target"), rows)
    assert loaded.fit(sets["q"], **pairs).model_.target.encoder.encoder.out_channels == width
    alone = GraphCL(target_encoder=small_gin)
    one_line(lambda: alone.fit(sets["q"]), "`target_encoder` needs separate encoders of queries and targets")
    assert GraphCL().set_params(target_encoder__heads=2).target_encoder == {"name": "auto", "heads": 2}
