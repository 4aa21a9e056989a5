"""The test predictions of a run on a split are kept, with the names of targets and classes."""

import csv

import numpy as np
import pytest

from graphcl.evaluate.on_split import task_mean
from graphcl.experiment.record.seed_files import write_predictions
from graphcl.run import run

pd = pytest.importorskip("pandas")
pytest.importorskip("rdkit")

TABLE = pd.DataFrame({"smiles": ["C" * (n % 7 + 1) + "O" * (n % 2) + "C" * (n // 7) for n in range(60)]})
TABLE["logS"], TABLE["mp"] = np.random.default_rng(0).normal(size=(2, 60)).round(3)
TABLE["toxic"] = np.where(TABLE.index % 2, "yes", "no")
TABLE.loc[TABLE.index % 7 == 3, "mp"] = np.nan


def rows_of(folder):
    with open(folder / "predictions.csv", newline="") as file:
        return list(csv.DictReader(file))


def settings(folder, **more):
    TABLE.to_csv(folder / "table.csv", index=False)
    small = {"encoder": {"name": "molecule_gine", "hidden_channels": 4, "num_layers": 1}, "epochs": 1, "seeds": [0]}
    return {"dataset": str(folder / "table.csv"), "split": "random", "report": False, **small, **more}


@pytest.mark.parametrize(("targets", "metric"), [(["logS", "mp"], "rmse"), (["toxic"], "rocauc"), (["toxic"], "acc")])
def test_the_score_is_that_of_the_predictions(tmp_path, targets, metric):
    result = run(**settings(tmp_path, target=targets, metric=metric, out=str(tmp_path / "run"), eval=["ogb"]))
    rows = rows_of(result.folder)
    extra = {"rmse": ["mp", "mp_predicted"], "rocauc": ["toxic_p_yes"], "acc": []}[metric]
    assert [*rows[0]] == ["seed", "eval", "id", targets[0], f"{targets[0]}_predicted", *extra]
    assert len(rows) == 6
    table = TABLE.loc[[int(row["id"]) for row in rows]]
    if metric == "rmse":
        assert [row["mp"] for row in rows] == ["" if value != value else f"{value:g}" for value in table["mp"]]
        truth = table[targets].to_numpy(float)
        predicted = np.array([[float(row[f"{name}_predicted"]) for name in targets] for row in rows])
    else:
        assert [row["toxic"] for row in rows] == table["toxic"].tolist()
        truth = (table[["toxic"]] == "yes").to_numpy(float)
        column = "toxic_p_yes" if metric == "rocauc" else "toxic_predicted"
        values = [row[column] for row in rows]
        predicted = np.array([[float(v if metric == "rocauc" else v == "yes")] for v in values])
    assert task_mean(metric, truth, predicted) == pytest.approx(result.accuracy, rel=1e-5)


def test_resuming_keeps_the_rows_of_finished_seeds_only(tmp_path):
    from graphcl import load_dataset

    dataset = load_dataset(TABLE, target="logS", split="random")
    test = dataset.split["test"].numpy()
    for seed, finished in ((0, ()), (1, (0,)), (1, (0,))):
        write_predictions(tmp_path, seed, {"ogb": (test, np.full((6, 1), float(seed)))}, dataset, finished)
    assert [(row["seed"], row["logS_predicted"]) for row in rows_of(tmp_path)] == [("0", "0")] * 6 + [("1", "1")] * 6


def test_no_target_takes_the_name_of_another_column(tmp_path):
    """Targets such as `id`, or `y` beside `y_predicted`, get `_`, so that ids and predictions stay."""
    from graphcl import load_dataset

    names = ["id", "eval", "y", "y_predicted"]
    table = TABLE.assign(name=TABLE.index + 100, **{name: TABLE["logS"] + k for k, name in enumerate(names)})
    dataset = load_dataset(table, target=names, id="name", split="random")
    test = dataset.split["test"].numpy()
    write_predictions(tmp_path, 5, {"ogb": (test, np.tile([10.0, 20.0, 30.0, 40.0], (6, 1)))}, dataset)
    row = rows_of(tmp_path)[0]
    assert [*row] == [
        "seed", "eval", "id", "id_", "id__predicted", "eval_", "eval__predicted", "y", "y_predicted",
        "y_predicted_", "y_predicted__predicted",
    ]  # fmt: skip
    assert (row["seed"], row["eval"], row["id"]) == ("5", "ogb", str(test[0] + 100))
    unnamed = load_dataset(table, target=names, split="random")
    assert unnamed.ids.tolist() == TABLE.index.tolist()  # the column `id` is a target, so rows are numbered
    assert (row["id__predicted"], row["y_predicted"], row["y_predicted__predicted"]) == ("10", "30", "40")
