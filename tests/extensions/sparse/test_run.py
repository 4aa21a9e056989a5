"""Test the encoder `wl_sparse` in a run, the estimator, files of encoders and of embeddings, and the evaluators."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC, LinearSVC
from torch_geometric.data import Batch, Data, InMemoryDataset

from graphcl import ContrastiveModel, GraphCL, InputError, load_dataset, load_encoder, make_config, predict, run
from graphcl.commands.embed import main as embed_main
from graphcl.commands.transfer import main as transfer_main
from graphcl.datasets.relation import relation_of_groups
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.evaluate import knn, logreg, retrieval, svm
from graphcl.experiment.trial import prepared
from graphcl.extensions.sparse.encoder import WLSparse
from graphcl.extensions.sparse.index import SparseIndex, SparseRows
from graphcl.loaders.mining import mine_hard_negatives
from graphcl.loaders.resident import ResidentLoader
from graphcl.registry import losses
from graphcl.tasks.evaluation import grouped_parts
from graphcl.tasks.task import make_task
from graphcl.training.loop import embed
from tests.trials import make_method, make_model, try_settings

SETTINGS = {"encoder": {"name": "wl_sparse", "depth": 2}, "positives": "group", "eval": ["retrieval"]}


@pytest.fixture(scope="module")
def graphs():
    return synthetic_pairs(num_groups=60)


@pytest.fixture(scope="module")
def file(graphs, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "pairs.pt"
    InMemoryDataset.save(graphs, path)
    return str(path)


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory):
    """Return the result of a run of two seeds."""
    out = str(tmp_path_factory.mktemp("run") / "a")
    return run(**SETTINGS, dataset=file, out=out, seeds=[0, 1], epochs=15, batch_size=16)


def rows_of(encoder, graphs):
    return embed(encoder, ResidentLoader(load_dataset(graphs), 64))[0]


def test_a_run_starts_at_the_kernel_and_goes_up(finished):
    scores = {name: score.mean for name, score in finished.rows.items()}
    assert scores["trained"] > scores["untrained"] + 5
    assert abs(scores["untrained"] - scores["wl_oa"]) < 10  # the kernel's depth is chosen, that of the rows is 2
    assert "hybrid" not in scores


def test_a_run_does_not_say_that_edge_attr_is_unused(graphs, tmp_path, capsys):
    for each in (given := [graph.clone() for graph in graphs]):
        each.edge_attr = torch.ones(each.num_edges, 1)
    torch.save(given, tmp_path / "g.pt")
    run(**SETTINGS, dataset=str(tmp_path / "g.pt"), out=str(tmp_path / "a"), seeds=[0], epochs=1, report=False)
    assert "encoder: wl_sparse; method" in capsys.readouterr().out


def test_patterns_are_counted_in_the_share_that_trains(graphs):
    data = load_dataset(graphs)
    counted = []
    for given in (
        {"eval": ["retrieval"]},
        {"eval": ["retrieval"], "pair_share": 0.25},
        {"eval": [], "pair_share": 0.25},
    ):
        config = make_config({**SETTINGS, **given})
        task = make_task(config, data)
        model = task.make_model()
        prepared(task, model)
        train = task.training_rows
        alone = WLSparse(data.num_features, depth=2).fit(
            [Batch.from_data_list([data[i] for i in train])], data.groups[train]
        )
        assert torch.equal(model.encoder.column, alone.column)
        assert torch.equal(model.encoder.frequency, alone.frequency)
        counted.append(len(alone.column))
    assert counted[1] < counted[0]


def test_the_folder_of_a_run_holds_encoders_and_rows(finished, graphs):
    with np.load(finished.folder / "embeddings.npz") as stored:
        arrays = dict(stored)
    for number, seed in enumerate((0, 1)):
        encoder, description = load_encoder(finished.folder, seed)
        h = rows_of(encoder, graphs)
        np.testing.assert_array_equal(h.column, arrays["column"])
        np.testing.assert_array_equal(h.ptr, arrays["ptr"])
        np.testing.assert_allclose(h.value, arrays["h"][number], rtol=1e-6)
    assert description.out_channels == len(encoder.column)
    assert not np.allclose(*arrays["h"])
    page = (finished.folder / "report.html").read_text("utf-8")
    assert "the 12 heaviest patterns" in page
    assert "Map of the embeddings" not in page


def test_embed_writes_sparse_rows(finished, file, graphs, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    encoder = load_encoder(finished.folder)[0]
    h = rows_of(encoder, graphs)
    for name in ("h.npz", "h.parquet"):
        assert embed_main([str(finished.folder), "--dataset", file, "--out", str(tmp_path / name)]) == 0
    wanted, columns = h.scipy()
    assert (scipy.sparse.load_npz(tmp_path / "h.npz") != wanted).nnz == 0
    with np.load(tmp_path / "h.npz") as stored:
        np.testing.assert_array_equal(stored["column"], columns)
        assert stored["id"].tolist() == list(range(len(graphs)))
    index = SparseIndex.load(tmp_path / "h.npz")
    for found, best in zip(index.search(h[:4], 3), SparseIndex(h).search(h[:4], 3), strict=True):
        np.testing.assert_array_equal(found, best)
    assert index.encoder == encoder.digest() == h.encoder
    with pytest.raises(InputError, match="of different encoders"):
        index.add(rows_of(load_encoder(finished.folder, 1)[0], graphs))
    with pytest.raises(InputError, match="exists already"):  # it holds more than an index
        index.save(tmp_path / "h.npz")
    table = parquet.read_table(tmp_path / "h.parquet").to_pydict()
    assert table["indices"][7] == h[7:8].column.tolist()
    assert table["values"][7] == h[7:8].value.tolist()
    assert embed_main([str(finished.folder), "--dataset", file, "--out", str(tmp_path / "h.csv")]) == 2
    assert "`out` must end in .npz or .parquet for sparse rows" in capsys.readouterr().err


@pytest.fixture
def saved(finished):
    """Return a function that writes `encoder.pt` of the run with a changed state dict, and returns the path."""
    content = torch.load(finished.folder / "encoder.pt", weights_only=True)

    def write(path, **changed):
        state = {**content["weights"][0], **changed}
        weights = {0: {key: value for key, value in state.items() if value is not None}}
        torch.save({**content, "weights": weights}, path)
        return str(path)

    return write


def test_an_encoder_with_colours_of_another_version_is_refused(saved, tmp_path):
    with pytest.raises(InputError, match=r"its colours have version 3, and this graphcl has 2; train it again"):
        load_encoder(saved(tmp_path / "e.pt", version=torch.tensor(3)))


@pytest.mark.parametrize("value", [1e30, -1e30, 3e38])
def test_absurd_weights_give_a_line_and_no_file(saved, file, tmp_path, value, capsys):
    encoder = saved(tmp_path / "e.pt", a=torch.full((3, 16, 8), value))
    assert embed_main([encoder, "--dataset", file, "--out", str(tmp_path / "h.npz")]) == 2
    assert "the embedding of graph 0 is NaN or infinite; look for NaN or very large" in capsys.readouterr().err
    assert not (tmp_path / "h.npz").exists()


DTYPES = "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float64"


def test_categories_of_any_type_have_equal_rows(graphs, tmp_path):
    few = [graph.clone() for graph in graphs[:24]]
    wanted = rows_of(WLSparse(1, depth=2), [Data(graph.x[:, :1], graph.edge_index) for graph in few])
    for dtype in DTYPES:
        for graph in few:
            graph.x = graph.x[:, :1].to(getattr(torch, dtype))
        data = load_dataset(few, categories=True)
        assert embed(WLSparse(1, depth=2), ResidentLoader(data, 64))[0].column.equal(wanted.column), dtype
        assert data[0].x.dtype in (torch.long, torch.float32), dtype


def test_a_run_takes_categories_of_eight_bits(graphs, tmp_path):
    few = [graph.clone() for graph in graphs]
    for graph in few:
        graph.x = graph.x.argmax(1, keepdim=True).to(torch.int8)
    torch.save(few, tmp_path / "g.pt")
    result = run(**SETTINGS, dataset=str(tmp_path / "g.pt"), out=str(tmp_path / "a"), seeds=[0], epochs=1, report=False)
    assert load_encoder(result.folder)[1].in_channels == 1


def test_fine_tuning_is_refused_before_the_folder_is_made(finished, file, tmp_path, capsys):
    arguments = [str(finished.folder), "--dataset", file, "--mode"]
    assert transfer_main([*arguments, "finetune", "--out", str(tmp_path / "t")]) == 2
    assert "wl_sparse, an encoder of sparse rows, which no layer can follow; use --mode" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
    probe = [*arguments, "probe", "--seeds", "0", "--eval", "knn", "--out", str(tmp_path / "p")]
    assert transfer_main(probe) == 0
    with pytest.raises(InputError, match="holds sparse rows, for which no head is fitted; use graphcl embed"):
        predict(tmp_path / "p", file)


def test_training_goes_on_from_the_weights_of_a_run(finished, file, tmp_path):
    more = run(**SETTINGS, dataset=file, out=str(tmp_path / "b"), seeds=[0], epochs=1, init=str(finished.folder))
    score = finished.scores["retrieval"]["trained"][0].mean
    assert more.rows["initial"].mean == pytest.approx(score)
    assert more.rows["untrained"].mean == pytest.approx(finished.rows["untrained"].mean)


def test_every_pairwise_loss_trains_it(graphs):
    data = load_dataset(graphs)
    known = {name: losses.arguments(name) for name in losses if losses.facts(name)["repels"] == "yes"}
    of_pairs = {name: of for name, of in known.items() if {"weight", "ids"} <= {*of.tensors}}
    trained = [name for name, of in of_pairs.items() if of.defaults.get("negatives") != "queue"] + ["tuplet", "supcon"]
    assert len(trained) > 15
    for name in trained:
        config = make_config({**SETTINGS, "loss": name, "method": "two_views", "epochs": 1})
        try_settings(config, data)
        model = make_model(config, data)
        one, two = (Batch.from_data_list([data[row] for row in range(start, 32, 2)]) for start in (0, 1))
        make_method(config, data, model)(one, two, ids=torch.arange(16)).loss.backward()
        assert float(model.encoder.a.grad.abs().sum()) > 0, name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"positives": "views"}, "`encoder` wl_sparse needs pairs of graphs; pass --positives group or a table of pai"),
        ({"projector": "mlp"}, "`projector` mlp does not fit encoder wl_sparse, whose rows are sparse; leave it out."),
        (
            {"loss": "vicreg"},
            "`loss` vicreg compares columns, which differ from batch to batch with encoder wl_sparse; use",
        ),
        ({"method": "moco"}, "`method` moco does not fit encoder wl_sparse, whose rows are sparse; use two_views."),
    ],
)
def test_settings_without_a_meaning_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        make_config({**SETTINGS, **given})


def test_several_ranks_and_layers_on_top_are_refused(graphs):
    data, config = load_dataset(graphs), make_config(SETTINGS)
    with pytest.raises(InputError, match="encoder `wl_sparse` trains in one process, got 2 ranks"):
        try_settings(config, data, ranks=2)
    with pytest.raises(InputError, match="WLSparse returns sparse rows, which no layer can follow"):
        ContrastiveModel(make_model(config, data).encoder)


def test_mined_negatives_train_it(graphs, file, tmp_path):
    """Mining on sparse rows equals mining on the same dense matrix, and changes what is learned."""
    dataset = load_dataset(graphs)
    h = GraphCL(encoder="wl_sparse", positives="group", epochs=1).fit_transform(graphs)
    relation = relation_of_groups(dataset.groups)
    given = {"k": 3, "relative_margin": 0.05}
    found, expected = (mine_hard_negatives(rows, rows, relation, **given) for rows in (h, h.toarray()))
    assert torch.equal(found.negatives, expected.negatives)
    assert found.negatives.size(1) > len(graphs)
    common = {**SETTINGS, "dataset": file, "seeds": [0], "epochs": 3, "batch_size": 16, "report": False}
    weights = []
    for number in (0, 2):
        folder = run(**common, hard_negatives=number, batch_by="group", out=str(tmp_path / str(number))).folder
        weights.append(load_encoder(folder)[0].b)
    assert not torch.equal(*weights)


def test_pieces_give_the_weights_of_whole_batches(graphs):
    common = {"encoder": {"name": "wl_sparse", "depth": 2}, "positives": "group", "batch_size": 16, "optimizer": "sgd"}
    whole, pieces = (GraphCL(**common, epochs=2, lr=0.1, micro_batch=size).fit(graphs) for size in (None, 5))
    assert bool(whole.model_.encoder.b.any())
    for one, two in zip(whole.model_.parameters(), pieces.model_.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_only_the_training_part_gives_patterns(finished, graphs):
    data = load_dataset(graphs)
    train = [graphs[row] for row in grouped_parts(data)["train"]]
    encoder = load_encoder(finished.folder)[0]
    np.testing.assert_array_equal(encoder.column, rows_of(encoder, train).column.unique())


@pytest.fixture(scope="module")
def estimator(graphs):
    fitted = GraphCL(encoder={"name": "wl_sparse", "depth": 2}, epochs=3, batch_size=32)
    return fitted.fit(graphs[:80], groups=[each.group for each in graphs[:80]])


def test_the_estimator_returns_a_sparse_matrix(estimator, graphs, tmp_path):
    """Columns are those of the training graphs, so inner products with these are exact for any graph."""
    train, new = estimator.transform(graphs[:80]), estimator.transform(graphs[80:])
    assert isinstance(new, scipy.sparse.csr_matrix)
    assert train.shape[1] == new.shape[1] == len(estimator.get_feature_names_out())
    every = estimator.sparse_rows(graphs)
    exact = every.scipy()[0]
    np.testing.assert_allclose((new @ train.T).toarray(), (exact[80:] @ exact[:80].T).toarray(), atol=1e-6)
    assert len(every.value) > train.nnz + new.nnz
    estimator.save(tmp_path / "encoder.pt")
    loaded = GraphCL.load(tmp_path / "encoder.pt")
    assert (loaded.transform(graphs) != estimator.transform(graphs)).nnz == 0
    LinearSVC().fit(train, [int(each.y) for each in graphs[:80]])
    scores, found = SparseIndex(every).search(every[:3], k=1)
    assert found.flatten().tolist() == [0, 1, 2]
    np.testing.assert_allclose(scores, 1, rtol=1e-6)


def test_rows_of_invalid_graphs_are_empty():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCN", "CCCO", "CCCN", "c1ccccc1O", "c1ccccc1N", "CC(C)O", "CC(C)N"]
    fitted = GraphCL(encoder="wl_sparse", epochs=1, invalid="skip").fit(smiles, groups=[row // 2 for row in range(8)])
    h = fitted.transform(["CCO", "not a molecule", "CCN"])
    assert h.shape == (3, len(fitted.model_.encoder.column))
    assert np.diff(h.indptr)[1] == 0 < np.diff(h.indptr)[2]
    assert fitted.transform(["no", "none"]).nnz == 0


def test_the_estimator_trains_on_a_table_of_pairs(graphs):
    for number, each in enumerate(named := [each.clone() for each in graphs[:40]]):
        each.id = f"graph {number}"
        del each.group
    fitted = GraphCL(encoder="wl_sparse", epochs=1)
    fitted.fit(named, pairs=[(f"graph {row}", f"graph {row + 1}") for row in range(0, 40, 2)])
    like = GraphCL(encoder="wl_sparse", epochs=1).fit(graphs[:40], groups=[row // 2 for row in range(40)])
    for name in ("colour", "frequency", "column"):
        assert getattr(fitted.model_.encoder, name).equal(getattr(like.model_.encoder, name))
    assert float(fitted.model_.encoder.b.abs().sum()) > 0


@pytest.mark.parametrize("evaluator", [svm, knn])
def test_evaluators_refuse_an_invalid_sparse_matrix(evaluator):
    h, y = scipy.sparse.csr_matrix(np.tile(np.arange(3.0), (40, 1))), np.tile([0, 1], 20)
    h.data[[3, 5, 7]] = [np.nan, 0, np.inf]  # rows 1, 2 and 3
    with pytest.raises(InputError, match=r"finite and below 1e150, got 2 of 40 rows that are not\.$"):
        evaluator(h, y)
    with pytest.raises(InputError, match=r"must be \[graphs, features\], got shape \[40, 0\]"):
        evaluator(scipy.sparse.csr_matrix((40, 0)), y)


def test_evaluators_score_a_sparse_matrix_as_a_dense_one(graphs, estimator):
    data, h = load_dataset(graphs), estimator.transform(graphs)
    y, dense = data.y.numpy(), h.toarray()
    options = {"folds": 3, "inner_folds": 2}
    assert knn(h, y, **options).accuracy == knn(dense, y, **options).accuracy
    groups = {"group": data.groups, "split": grouped_parts(data)}
    plain = retrieval(dense, **groups)
    found = retrieval(h, **groups)
    assert found.chosen == (0.0,)
    assert plain.chosen != (0.0,) or found.accuracy == pytest.approx(plain.accuracy)
    splits = StratifiedKFold(3, shuffle=True, random_state=0).split(dense, y)
    wanted = []
    for train, held in splits:
        inner = StratifiedKFold(2, shuffle=True, random_state=0)
        search = GridSearchCV(SVC(), {"C": [0.1, 1.0, 10.0]}, cv=inner).fit(h[train], y[train])
        wanted.append(100 * search.score(h[held], y[held]))
    assert svm(h, y, grid=(0.1, 1.0, 10.0), **options).accuracy == pytest.approx(tuple(wanted))
    for scored in (logreg, partial(svm, scale=True)):
        with pytest.raises(InputError, match="`h` must be dense, got a sparse matrix; use knn, retrieval, or svm"):
            scored(h, y, **options)
    constant = scipy.sparse.csr_matrix(np.ones((len(y), 2)))
    assert svm(constant, y, **options).accuracy == svm(constant.toarray(), y, **options).accuracy


@pytest.mark.parametrize("some", [1, -1, [2, 0], np.array([0, 2]), torch.tensor([True, False, True]), slice(1, None)])
def test_sparse_rows_are_indexed_like_an_array(some):
    rows = SparseRows(torch.tensor([0, 2, 4, 5]), torch.tensor([3, 8, 3, 9, 1]), torch.tensor([0.6, 0.8, 0.8, 0.6, 1]))
    dense = rows.scipy()[0].toarray()
    found = rows[some].scipy(np.array([1, 3, 8, 9]))[0]
    np.testing.assert_array_equal(found.toarray(), np.atleast_2d(dense[some]))
    assert [len(row) for row in rows] == [1, 1, 1]
