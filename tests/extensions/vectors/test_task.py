"""Test pairs of graphs and vectors: training, both towers, search both ways, and all that listed pairs have."""

import csv

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphcl import GIN, GraphCL, InputError, load_dataset, load_encoder, make_config
from graphcl.commands.embed import main as embed
from graphcl.commands.export import main as export
from graphcl.datasets.load import load_targets
from graphcl.datasets.pair_file import with_pairs
from graphcl.evaluate.ranking import cosines, rank_pairs
from graphcl.experiment.run_config import run
from graphcl.extensions.vectors.encoder import VectorPerceptron
from graphcl.run import main
from graphcl.tasks.evaluation import grouped_parts
from graphcl.tasks.task import make_task
from tests.datasets.graphs import one_line
from tests.experiment.test_relations import assert_same_weights
from tests.experiment.test_resume import Killed, after_epoch, killed_in_a_line
from tests.trials import make_model

N = 40


def graph(number):
    draw = torch.Generator().manual_seed(number)
    code, ring = torch.randint(3, (6,), generator=draw), torch.arange(6)
    edge_index = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    return Data(x=torch.eye(3)[code], edge_index=edge_index, id=f"g{number}", project=f"p{number % 4}")


GRAPHS = [graph(number) for number in range(N)]
VECTORS = np.stack([each.x.sum(0).numpy() for each in GRAPHS]) @ np.random.default_rng(0).normal(size=(3, 5)) * 3 + 7
VECTORS[::7, 1] = np.nan
PAIRS = [(f"g{i}", f"v{i}") for i in range(N)]
BY_ID = {"h": VECTORS, "id": [f"v{i}" for i in range(N)]}
SMALL = {"epochs": 2, "batch_size": 8, "encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    torch.save(GRAPHS, folder / "graphs.pt")
    np.savez(folder / "v.npz", h=VECTORS, id=np.array(BY_ID["id"]))
    with (folder / "pairs.csv").open("w", newline="") as file:
        rows = [[f"g{i}", f"v{i}", f"v{(i + 4) % N}", 1 + i % 2] for i in range(N)]
        csv.writer(file).writerows([["query", "target", "negative", "weight"], *rows])
    return {
        "dataset": str(folder / "graphs.pt"),
        "targets": str(folder / "v.npz"),
        "positives": str(folder / "pairs.csv"),
    }


def settings(files, folder, **others):
    return make_config({**files, **SMALL, "seeds": [0], "report": False, "out": str(folder / "run"), **others})


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    return run(settings(files, tmp_path_factory.mktemp("trained")))


def test_a_run_of_vectors_has_two_towers_rows_without_training_and_a_verdict(trained, files, capsys, tmp_path):
    config = settings(files, tmp_path, epochs=1)
    assert (config.towers, config.target_encoder["name"], config.eval) == ("separate", "perceptron", ["retrieval"])
    rows = run(config).scores["retrieval"]
    assert {"random", "untrained", "ridge_wl", "nearest_wl", "trained"} <= {*rows}
    assert not {"wl", "bag", "statistics", "bag_trained"} & {*rows}
    printed = capsys.readouterr().out
    assert f"pairs: {N} of {N} graphs and VectorDataset('v', {N} vectors of 5 numbers)" in printed
    assert "retrieval: training is not told apart from the best row" in printed or "training does worse" in printed
    assert 'role="target"' in (trained.folder / "card.md").read_text()
    widths = {role: load_encoder(trained.folder, role=role)[1].in_channels for role in ("query", "target")}
    assert widths == {"query": 3, "target": 5}


def test_both_directions_are_scored_by_the_embeddings(trained, files, tmp_path):
    """Recompute the figures of both searches from the files of `graphcl embed`."""
    h = []
    for role, source in (("query", files["dataset"]), ("target", files["targets"])):
        words = [str(trained.folder), "--dataset", source, "--out", str(tmp_path / f"{role}.npz"), "--role", role]
        assert embed(words) == 0
        with np.load(tmp_path / f"{role}.npz") as arrays:
            h.append(torch.from_numpy(arrays["h"]).double())
    score = trained.scores["retrieval"]["trained"][0]
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    rows, parts = torch.cat(h), grouped_parts(dataset)
    if score.chosen[0]:
        train = rows[parts["train"]]
        rows = (rows - train.mean(0)) / train.std(0, correction=0)
    similarity, test = cosines(torch.nn.functional.normalize(rows)), torch.from_numpy(parts["test"])
    graphs, vectors = test[test < N], test[test >= N]
    for name, pairs, pool in (
        ("mrr", [graphs, graphs + N], vectors),
        ("mrr_back", [graphs + N, graphs], graphs),
    ):
        expected = rank_pairs(similarity, torch.stack(pairs), pool)
        value = score.mean if name == "mrr" else score.figures[name]
        assert value == pytest.approx(expected.percent()["mrr"])
        ends = [score.figures[f"{name}_{end}"] for end in ("low", "high")]
        assert ends == pytest.approx(expected.intervals()["mrr"])
        assert ends[0] <= value <= ends[1]


def test_columns_are_standardised_by_the_training_part(trained, files):
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    rows = grouped_parts(dataset)["train"]
    train = VECTORS[rows[rows >= N] - N]
    mean, deviation = load_encoder(trained.folder, role="target")[1].scales["x"]
    np.testing.assert_allclose(mean, np.nanmean(train, 0), rtol=1e-5)
    np.testing.assert_allclose(deviation, np.nanstd(train, 0), rtol=1e-5)


def test_a_missing_cell_is_the_mean_with_a_mark():
    encoder = VectorPerceptron(2, hidden_channels=4, missing=True)
    x, edges = torch.tensor([[1.0, torch.nan], [2.0, 3.0]]), torch.zeros(2, 0).long()
    filled = torch.tensor([[1.0, 0.0, 0.0, 1.0], [2.0, 3.0, 0.0, 0.0]])
    torch.testing.assert_close(encoder(x, edges, torch.arange(2)), encoder.mlp(filled))
    with pytest.raises(InputError, match=r"^encoder `perceptron` takes vectors of 2 numbers, got \[2, 3\]\.$"):
        encoder(torch.ones(2, 3), edges)


MINED = {"hard_negatives": 1, "mine_every": 2, "epochs": 4, "checkpoint": {"epochs": 1}, "micro_batch": 3}
MINED |= {"batch_by": "project", "batch_share": 0.5, "evaluation": {"within": "project"}}


def test_mined_negatives_weights_places_and_pieces_survive_a_kill(files, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        after_epoch(killed_in_a_line)(patch)  # in epoch 3; epoch 2 mined
        with pytest.raises(Killed):
            run(settings(files, tmp_path, seeds=[1], **MINED))
    found = run(settings(files, tmp_path, seeds=[1], resume=True, **MINED))
    run(settings(files, tmp_path, seeds=[1], out=str(tmp_path / "whole"), **MINED))
    assert_same_weights(tmp_path / "run", tmp_path / "whole")
    assert "mrr_all" in found.scores["retrieval"]["trained"][0].figures


def test_mined_negatives_are_vectors_of_the_querys_place(files, tmp_path):
    task = make_task(settings(files, tmp_path, **MINED), with_pairs(load_dataset(GRAPHS), PAIRS, load_targets(BY_ID)))
    assert torch.equal(task.places("batch_by")[:N], task.places("batch_by")[N:])
    sampler = task.sampler(8, torch.Generator())
    rows = torch.randn(2 * N, 4, generator=torch.Generator().manual_seed(0))

    class Loader:
        batch_sampler = sampler

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphcl.tasks.pairs.embed", lambda model, whole: (rows, None))
        task.after_epoch(type("Epoch", (), {"epoch": 2})(), task.make_model(), None, Loader)
    pair, negative = sampler.relation.negatives
    assert len(pair)
    assert ((sampler.relation.query[pair] - negative) % 4 == 0).all()


def test_pieces_give_the_gradient_of_the_whole_batch():
    common = {**SMALL, "frozen_bn": True, "optimizer": "sgd", "lr": 0.1}
    whole, pieces = (
        GraphCL(**common, micro_batch=size).fit(GRAPHS, targets=BY_ID, pairs=PAIRS).transform(VECTORS, role="target")
        for size in (None, 3)
    )
    np.testing.assert_allclose(whole, pieces, rtol=1e-4, atol=1e-5)


def test_weights_and_known_negatives_enter_the_loss():
    columns = {"query": [*range(N)], "target": [*range(N)]}
    first = [
        GraphCL(**SMALL).fit(GRAPHS, targets=VECTORS, pairs=columns | more).history_[0].loss
        for more in ({}, {"weight": [1 + 9 * (i % 2) for i in range(N)]}, {"negative": [(i + 4) % N for i in range(N)]})
    ]
    assert len({*first}) == 3


def test_a_graph_may_have_several_vectors_and_a_vector_several_graphs_or_none():
    pairs = [(i, i // 2) for i in range(20)] + [(i, 20 + i) for i in range(10)]  # vectors 10 to 19 have no graph
    for loss in ("infonce", "supcon"):
        model = GraphCL(**SMALL, loss=loss).fit(GRAPHS, targets=VECTORS, pairs=pairs)
        assert model.transform(VECTORS, role="target").shape == (N, 16)


def test_a_common_space_is_learned_and_searched_both_ways():
    """Vectors are a linear map of histograms, so graphs of the training part are found by their vectors."""
    vectors = np.stack([each.x.sum(0).numpy() for each in GRAPHS]) + 0.01 * np.arange(N)[:, None]
    model = GraphCL(epochs=60, batch_size=N, lr=0.003, encoder={"name": "gin", "hidden_channels": 16})
    model.fit(GRAPHS, targets=vectors, pairs=[(i, i) for i in range(N)])
    h = torch.nn.functional.normalize(torch.as_tensor(model.transform(GRAPHS)))
    z = torch.nn.functional.normalize(torch.as_tensor(model.transform(vectors, role="target")))
    near = (h @ z.T).topk(5, dim=1).indices
    same = (near == torch.arange(N)[:, None]).any(1).float().mean()
    assert same > 0.5


def test_the_estimator_saves_and_loads_both_towers(tmp_path):
    model = GraphCL(**SMALL).fit(GRAPHS, targets=BY_ID, pairs=PAIRS)
    h, z = model.transform(GRAPHS), model.transform(VECTORS, role="target")
    assert (h.shape, z.shape) == ((N, 16), (N, 16))
    np.testing.assert_allclose(model.transform(VECTORS[:1], role="target"), z[:1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.transform(VECTORS[1], role="target"), z[1:2], rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "model.pt")
    loaded = GraphCL.load(tmp_path / "model.pt")
    np.testing.assert_array_equal(loaded.transform(GRAPHS), h)
    np.testing.assert_array_equal(loaded.transform(VECTORS, role="target"), z)
    for call, line in (
        (lambda: model.transform(VECTORS[:, :3], role="target"), "has 3 columns of `x`"),
        (lambda: model.transform(GRAPHS, role="target"), "own has 3 columns of `x`"),
        (lambda: GraphCL().fit(GRAPHS, targets=VECTORS), "`targets` needs the `pairs`"),
        (lambda: GraphCL(method="moco").fit(GRAPHS, targets=BY_ID, pairs=PAIRS), "`moco` trains one encoder only"),
    ):
        one_line(call, line)


def test_the_tower_of_vectors_is_a_perceptron_or_linear_or_the_users():
    def tower(**given):
        return GraphCL(**SMALL | given).fit(GRAPHS, targets=BY_ID, pairs=PAIRS).model_.target.encoder

    linear = tower(projector="linear", target_encoder={"name": "auto", "hidden_channels": 6})
    x = torch.randn(2, 5)
    edges, batch = torch.zeros(2, 0).long(), torch.arange(2)
    torch.testing.assert_close(
        linear(x, edges, batch).sum(0) / 2, linear(x.mean(0, keepdim=True), edges, batch[:1])[0], rtol=1e-4, atol=1e-4
    )
    assert not any(isinstance(each, torch.nn.ReLU) for each in linear.modules())
    own = tower(encoder=lambda columns: GIN(columns, 8, 2))
    assert isinstance(own.encoder, VectorPerceptron)
    vectors = {"h": np.nan_to_num(VECTORS), "id": BY_ID["id"]}
    mine = GraphCL(**SMALL, target_encoder=lambda columns: GIN(columns, 4, 1))
    assert isinstance(mine.fit(GRAPHS, targets=vectors, pairs=PAIRS).model_.target.encoder.encoder, GIN)


def test_initial_weights_of_one_encoder_or_of_both_towers(trained, files, tmp_path):
    one = GraphCL(**SMALL).fit(GRAPHS)
    one.save(tmp_path / "one.pt")
    dataset = with_pairs(load_dataset(files["dataset"]), files["positives"], load_dataset(files["targets"]))
    for init in (tmp_path / "one.pt", trained.folder):
        config = settings(files, tmp_path, init=str(init))
        model, fresh = make_model(config, dataset), make_model(settings(files, tmp_path), dataset)
        first = load_encoder(init)[0]
        first = first if init == tmp_path / "one.pt" else first.encoder
        assert equal(model.encoder.encoder, first)
        second = fresh.target.encoder if init == tmp_path / "one.pt" else load_encoder(init, role="target")[0].encoder
        assert equal(model.target.encoder, second)
    found = run(settings(files, tmp_path, init=str(trained.folder), epochs=1))
    assert "initial" in found.scores["retrieval"]


def equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_vectors_follow_their_graphs_into_the_parts():
    graphs = [each.clone() for each in GRAPHS]
    for number, each in enumerate(graphs):
        each.part = ("train", "valid", "test")[number % 3]
        del each.project
    dataset = with_pairs(load_dataset(graphs), PAIRS[:30], load_targets(BY_ID))
    parts = grouped_parts(dataset)
    for rows in parts.values():
        graphs_of, vectors_of = rows[rows < 30], rows[rows >= N] - N
        assert graphs_of.tolist() == vectors_of.tolist()


def test_the_tower_of_vectors_is_exported(trained, tmp_path):
    out = tmp_path / "target.pt2"
    assert export([str(trained.folder), "--format", "pt2", "--role", "target", "--out", str(out)]) == 0
    encoder = load_encoder(trained.folder, role="target")[0]
    x, edges, batch = torch.from_numpy(VECTORS).float(), torch.zeros(2, 0).long(), torch.arange(N)
    found = torch.export.load(out).module()(x=x, edge_index=edges, batch=batch)
    torch.testing.assert_close(found, encoder(x, edges, batch), rtol=1e-4, atol=1e-5)


def test_options_of_a_table_do_not_apply_to_vectors(tmp_path):
    pytest.importorskip("rdkit")
    lines = [f"{'C' * (1 + i % 6)}{'O' * (i % 5)}N,m{i}" for i in range(N)]
    (tmp_path / "m.csv").write_text("structure,name\n" + "\n".join(lines))
    np.save(tmp_path / "v.npy", np.nan_to_num(VECTORS))
    (tmp_path / "pairs.csv").write_text("query,target\n" + "".join(f"m{i},{i}\n" for i in range(N)))
    given = {"dataset": str(tmp_path / "m.csv"), "smiles": "structure", "id": "name", "epochs": 1, "batch_size": 8}
    given |= {"targets": str(tmp_path / "v.npy"), "positives": str(tmp_path / "pairs.csv"), "seeds": [0]}
    small = {"name": "molecule_gine", "hidden_channels": 8, "num_layers": 1}
    found = run(make_config({**given, "encoder": small, "out": str(tmp_path / "run"), "report": False}))
    assert {"ridge_ecfp4", "nearest_ecfp4"} <= {*found.scores["retrieval"]}


def test_settings_that_do_not_fit(files, tmp_path):
    for given, line in (
        ({"towers": "shared", "target_encoder": "gin", "encoder": "gin"}, "`towers` shared does not fit VectorDataset"),
        ({"eval": ["svm"]}, "`eval` svm does not fit graphs, which is searched for vectors; pass --eval retrieval"),
    ):
        one_line(lambda given=given: run(settings(files, tmp_path, **given)), line)
    assert not (tmp_path / "run").exists()


def test_clip_is_refused_in_one_line(tmp_path, capsys):
    line = "`method` clip was replaced; train anew with its vectors as `targets` and a table of pairs as `positives`."
    one_line(lambda: make_config({"method": "clip"}), line)
    one_line(lambda: GraphCL(method={"name": "clip", "vectors": "v.npy"}).fit(GRAPHS), line)
    (tmp_path / "config.yaml").write_text("dataset: synthetic\nmethod: {name: clip, vectors: v.npy}\n")
    assert main(["--resume", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "clip was replaced" in printed
    assert printed.count("\n") == 1
