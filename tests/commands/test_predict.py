"""`graphcl predict` and `graphcl.predict`: heads equal scikit-learn's, columns have names, bad folders get one line."""

import csv
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from graphcl import predict
from graphcl.__main__ import main
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.evaluate.folds import unit_rows
from graphcl.experiment import predict as module
from graphcl.experiment.predict import fit_head, most_chosen
from graphcl.experiment.record.seed_files import label_arrays
from tests.commands.files import save_untrained
from tests.conftest import small_graphs
from tests.evaluate.data import blobs

ALCOHOLS = ["C" * (number % 9 + 1) + "O" * (number % 2) + "C" * (number // 9) for number in range(36)]


def write_run(folder, source, scores, seeds=(3, 4), **arrays):
    """Write the files of a run that `predict` reads: untrained encoders of the seeds, their rows and the scores."""
    folder.mkdir()
    dataset, models = save_untrained(folder / "encoder.pt", source, seeds, **arrays.pop("settings", {}))
    h = np.random.default_rng(0).normal(size=(len(seeds), len(dataset), models[seeds[0]].width)).astype(np.float32)
    y = dataset.y.numpy()
    np.savez(folder / "embeddings.npz", h=h, y=y, seeds=list(seeds), **label_arrays(dataset) | arrays)
    per_seed = lambda metric, chosen: [  # noqa: E731
        {"trained": {"seed": seed, "accuracy": [90.0], "chosen": chosen, "inner": [90.0], "folds": len(chosen),
                     "inner_folds": 2, "metric": metric}}
        for seed in seeds
    ]  # fmt: skip
    found = {name: {"per_seed": per_seed(*each)} for name, each in scores.items()}
    (folder / "result.json").write_text(json.dumps({"scores": found, "config": {}}))
    return dataset, h


@pytest.fixture
def run(tmp_path):
    """Return a run on graphs of two classes, whose names are texts, and its data set and rows."""
    graphs = small_graphs()
    for graph in graphs:
        graph.y = "ring" if graph.y else "star"
    scores = {"svm": ("accuracy", [10.0, 1.0, 10.0]), "logreg": ("accuracy", [1.0]), "knn": ("accuracy", [3.0])}
    dataset, h = write_run(tmp_path / "run", graphs, {"retrieval": ("mrr", [0.0])} | scores)
    return tmp_path / "run", dataset, h


def test_the_most_frequent_choice_is_used():
    assert most_chosen([10.0, 1.0, 10.0, 1.0, 0.1]) == 1.0


def test_heads_on_folds_are_those_of_scikit_learn_on_all_rows():
    h, y = blobs(n=60, classes=3)
    new = blobs(n=20, seed=5)[0]
    for name, model in (
        ("svm", SVC(C=10)),
        ("logreg", make_pipeline(StandardScaler(), LogisticRegression(C=10, tol=1e-8, max_iter=9999))),
    ):
        head = fit_head(name, h, y.astype(float), 10.0, "accuracy", 0, False)
        model.fit(h, y)
        assert (head.classes[head.outputs(new).argmax(1)] == model.predict(new)).all()
        assert head.certain == (name == "svm")
        if not head.certain:
            np.testing.assert_allclose(head.outputs(new), model.predict_proba(new), atol=1e-4)
    head = fit_head("knn", h, y.astype(float), 5, "accuracy", 0, False)
    for row, votes in zip(unit_rows(new), head.outputs(new), strict=True):
        similarity = unit_rows(h) @ row
        near = (-similarity).argsort()[:5]
        expected = [np.exp(similarity[near][y[near] == each] / 0.07).sum() for each in range(3)]
        np.testing.assert_allclose(votes, np.array(expected) / sum(expected))


@pytest.mark.parametrize("name", ["svm", "logreg", "knn"])
def test_names_of_classes_and_ids_are_columns(run, name):
    folder, _, _ = run
    graphs = small_graphs(9)
    for number, graph in enumerate(graphs):
        graph.id = f"new {number}"
    found = predict(folder, graphs, eval=name)
    assert [*found] == ["id", "y", *([] if name == "svm" else ["y_p_star"])]
    assert found["id"].tolist() == [f"new {number}" for number in range(9)]
    assert set(found["y"]) <= {"ring", "star"}
    if name != "svm":
        assert ((found["y_p_star"] > 0.5) == (found["y"] == "star")).all()


def test_the_only_target_of_a_table_names_the_column(run):
    folder, _, _ = run
    file = folder / "result.json"
    for name, column in (("shape", "shape"), ("id", "id_")):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"config": {"target": [name]}}))
        assert [*predict(folder, small_graphs(4))] == ["id", column]


def test_a_seed_has_its_own_encoder_and_rows(run):
    folder, _, _ = run
    graphs = small_graphs(9)
    first, second = (predict(folder, graphs, eval="logreg", seed=seed)["y_p_star"] for seed in (3, 4))
    assert np.array_equal(first, predict(folder, graphs, eval="logreg")["y_p_star"])
    assert not np.allclose(first, second)
    with pytest.raises(InputError, match=r"holds no seed 9; it holds 3, 4\."):
        predict(folder, graphs, seed=9)
    for settings, line in (
        ({"target": "y"}, "`target` is not read, as the targets are those of the run"),
        ({"device": "cudaa"}, "`device` must be auto, cpu or cuda, got 'cudaa'"),
        ({"seed": "4"}, "holds no seed '4'; it holds 3, 4"),
    ):
        with pytest.raises(InputError, match=line):
            predict(folder, graphs, **settings)


def test_targets_of_a_split_are_predicted_by_the_training_part(tmp_path):
    """The head of the training part predicts numbers and classes of several targets; unlabelled rows do not count."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("rdkit")
    y = np.random.default_rng(0).normal(size=(36, 2)).round(3)
    y[::5, 1] = np.nan
    table = pd.DataFrame({"smiles": ALCOHOLS, "logS": y[:, 0], "mp": y[:, 1], "toxic": ["no", "yes"] * 18})
    settings = {"settings": {"encoder": {"name": "molecule_gine", "hidden_channels": 4, "num_layers": 1}}}
    numbers = load_dataset(table, target=["logS", "mp"], split="random")
    _, h = write_run(tmp_path / "numbers", numbers, {"ogb": ("rmse", [0.1]), "ogb_forest": ("rmse", [3])}, **settings)
    new = pd.DataFrame({"smiles": ["CCO", "C1CC", "CCCCCC"]})
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        found = predict(tmp_path / "numbers", new)
    assert [*found] == ["id", "logS", "mp"]
    assert found["id"].tolist() == [0, 2]
    encoder = module.read_encoder(tmp_path / "numbers", 3)[0]
    rows = load_dataset(["CCO", "CCCCCC"])
    embedded = module.embed(encoder, module.make_loader(rows, 9))[0].double().numpy()
    train = numbers.split["train"].numpy()
    scaler = StandardScaler().fit(h[0][train].astype(float))
    for task, name in enumerate(("logS", "mp")):
        known = train[~np.isnan(y[train, task])]
        model = Ridge(10.0).fit(scaler.transform(h[0][known].astype(float)), y[known, task])
        expected = model.predict(scaler.transform(embedded).clip(-5, 5))
        np.testing.assert_allclose(found[name], expected, rtol=1e-4)
    assert predict(tmp_path / "numbers", ["CCO"], eval="ogb_forest")["mp"].shape == (1,)
    classes = load_dataset(table, target="toxic", split="random")
    write_run(tmp_path / "classes", classes, {"ogb": ("rocauc", [0.1])}, **settings)
    found = predict(tmp_path / "classes", ["CCO", "CC"])
    assert [*found] == ["id", "toxic", "toxic_p_yes"]
    assert set(found["toxic"]) <= {"no", "yes"}


def test_the_command_writes_a_table(run, tmp_path, capsys, monkeypatch, saved_graphs):
    folder, _, _ = run
    monkeypatch.chdir(tmp_path)
    new = saved_graphs()
    assert main(["predict", str(folder), "--dataset", new]) == 0
    printed = capsys.readouterr().out
    assert "36 predictions of y by svm (chosen: 10), fitted on all 36 labelled graphs; accuracy % 90.00 is" in printed
    with open("own.predicted.csv") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["id", "y"]
    assert [int(row["id"]) for row in rows] == [*range(36)]
    assert {row["y"] for row in rows} <= {"ring", "star"}
    words = ["predict", str(folder), "--dataset", new]
    for more, line in (
        ([], "own.predicted.csv exists already; pass --force"),
        (["--out", "h.npz"], "`out` must end in .csv or .parquet, got 'h.npz'"),
        (["--target", "y", "--force"], "`target` is not read, as the targets are those of the run"),
        (["--eval", "retrieval", "--force"], "has no head of 'retrieval'; choose from: svm, logreg, knn."),
    ):
        assert main([*words, *more]) == 2
        assert line in capsys.readouterr().err
    table = ["--dataset", "own.predicted.csv", "--out", "./own.predicted.csv", "--force"]
    for command in (["predict", str(folder)], ["embed", str(folder)]):
        assert main([*command, *table]) == 2
        assert "`out` ./own.predicted.csv is the data set; give another file" in capsys.readouterr().err
    pytest.importorskip("pyarrow")
    assert main([*words, "--out", "p.parquet", "--eval", "knn"]) == 0
    from pyarrow.parquet import read_table

    assert read_table("p.parquet").column_names == ["id", "y", "y_p_star"]


def change_arrays(**changes):
    def change(folder):
        arrays = dict(np.load(folder / "embeddings.npz")) | changes
        np.savez(folder / "embeddings.npz", **{key: each for key, each in arrays.items() if each is not None})

    return change


def change_scores(scores):
    return lambda folder: (folder / "result.json").write_text(json.dumps({"scores": scores, "config": {}}))


BROKEN = [
    (lambda folder: (folder / "result.json").unlink(), "is not the folder of a run or a transfer"),
    (
        lambda folder: (folder / "embeddings.npz").unlink(),
        "has no embeddings.npz, so it is incomplete; run it again",
    ),
    (change_scores({}), "has no scores, so it has no head to predict by; train on labels or targets, with --eval svm"),
    (change_scores({"retrieval": {}}), "is scored by retrieval, so it has no head"),
    (change_arrays(y=np.array([{}] * 36, object)), r"embeddings.npz cannot be read: .*allow_pickle=False"),
]


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_bad_folders_get_one_line(run, number, recwarn):
    folder, _, _ = run
    damage, words = BROKEN[number]
    damage(folder)
    with pytest.raises(InputError, match=words) as caught:
        predict(folder, small_graphs(4))
    assert "\n" not in str(caught.value)
