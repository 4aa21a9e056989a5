"""The test predictions of a run on a split are kept, with the names of targets and classes."""

import csv

import numpy as np
import pytest

from graphcl.evaluate.metrics import task_mean
from graphcl.experiment.record.predictions import write_predictions
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
