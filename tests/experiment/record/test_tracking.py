"""Trackers: calls to mocks of the libraries, and the data that the real libraries store."""

import json
import sys
from typing import get_args
from unittest.mock import MagicMock, call

import pytest

from graphcl.config import Config
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.experiment.record.tracking import TRACKERS, MLflow, TensorBoard, WandB, tracking
from graphcl.run import main
from graphcl.sweep.plan import make_plan
from graphcl.training.loop import Epoch

EPOCHS = [Epoch(1, 0.5, 0.25, -1.0, 2.0, 1.0), Epoch(2, 0.25, 0.125, -2.0, 2.0, 1.0, {"rank": 3.0})]
SETTINGS = {"loss": {"name": "adnce", "mu": 0.7}, "lr": 0.01}
VARIABLES = ("WANDB_PROJECT", "WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Unset the environment variables that trackers read."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fakes(monkeypatch):
    """Replace the three tracking libraries by mocks, and return tracker -> mock."""
    found = {name: MagicMock() for name in TRACKERS}
    for name, fake in found.items():
        monkeypatch.setitem(sys.modules, TRACKERS[name].module, fake)
    found["mlflow"].entities.Metric = lambda *values: values
    found["mlflow"].entities.Param = lambda *values: values
    found["mlflow"].MlflowClient.return_value.get_experiment_by_name.return_value = None
    return found


@pytest.fixture
def go(saved_graphs, tmp_path, capfd):
    """Return a function that runs `graphcl run` and returns the exit code, stdout, stderr and the run folder."""

    def run(*options: str):
        words = ("--epochs", "2", "--seeds", "0", "1", "--batch-size", "16", "--encoder.hidden_channels", "8", *options)
        words += ("--evaluation.folds", "3", "--evaluation.inner-folds", "2", "--out", str(tmp_path / "run"))
        words += ("--report", "false")
        code = main(["--dataset", saved_graphs(), *words])
        return code, *capfd.readouterr(), tmp_path / "run"

    return run


def lines_of(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_every_tracker_gets_every_epoch_and_the_scores_of_each_seed(go, fakes):
    code, _, err, out = go("--track", "tensorboard", "wandb", "mlflow", "--eval", "knn", "logreg")
    assert (code, err) == (0, "")
    lines, scores = lines_of(out), json.loads((out / "result.json").read_text())["scores"]
    wanted = []
    for seed in range(2):
        epochs = [line for line in lines if line["seed"] == seed]
        wanted += [
            (*point, line["epoch"]) for line in epochs for point in line.items() if point[0] not in ("seed", "epoch")
        ]
        for name in ("knn", "logreg"):
            for row, each in scores[name]["per_seed"][seed].items():
                label = f"score/{name}" + ("" if row == "trained" else f"_{row}")
                wanted.append((label, FoldScores(**each).mean, 2))
    assert "score/knn_statistics" in {name for name, *_ in wanted}

    board = fakes["tensorboard"].SummaryWriter
    assert board.call_args_list == [call(str(out / "tensorboard" / f"seed-{seed}")) for seed in range(2)]
    assert [each.args for each in board.return_value.add_scalar.call_args_list] == wanted
    assert board.return_value.close.call_count == 2

    started = [each.kwargs for each in fakes["wandb"].init.call_args_list]
    assert [(each["group"], each["name"], each["config"]["seed"], each["dir"]) for each in started] == [
        ("run", f"run-seed-{seed}", seed, str(out)) for seed in range(2)
    ]
    run = fakes["wandb"].init.return_value
    logged = [(*point, each.kwargs["step"]) for each in run.log.call_args_list for point in each.args[0].items()]
    logged += [(*point, 2) for each in run.summary.update.call_args_list for point in each.args[0].items()]
    assert logged == sorted(wanted, key=lambda point: point[0].startswith("score/"))
    assert run.finish.call_args_list == [call(exit_code=0)] * 2

    client = fakes["mlflow"].MlflowClient.return_value
    assert fakes["mlflow"].MlflowClient.call_args == call(tracking_uri=f"sqlite:///{out / 'mlflow' / 'mlflow.db'}")
    batches = [each.kwargs for each in client.log_batch.call_args_list]
    params = [dict(each["params"]) for each in batches if "params" in each]
    assert [(each["loss.name"], each["epochs"], each["seed"]) for each in params] == [
        ("infonce", "2", seed) for seed in "01"
    ]
    found = [(name, value, step) for each in batches for name, value, _, step in each.get("metrics", ())]
    assert found == wanted
    assert [each.args[1] for each in client.set_terminated.call_args_list] == ["FINISHED", "FINISHED"]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_library_is_reported_before_any_work(go, monkeypatch, name):
    monkeypatch.setitem(sys.modules, TRACKERS[name].module, None)
    code, printed, err, out = go("--track", name)
    assert (code, printed) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"graphcl: tracking with {name} needs its library (")
    assert err.endswith(f"); pip install 'graphcl[{name}]'.\n")
    assert not out.exists()


def test_trackers_that_fail_do_not_stop_the_run(go, fakes):
    """TensorBoard fails at its first epoch, W&B cannot open its log; MLflow gets everything."""
    writer = fakes["tensorboard"].SummaryWriter.return_value
    writer.flush.side_effect = OSError(28, "No space left\non device")
    fakes["wandb"].init.side_effect = ConnectionError("no route to host")
    code, printed, err, out = go("--track", "tensorboard", "wandb", "mlflow", "--seeds", "0")
    assert code == 0
    assert err == (
        "graphcl: wandb has failed (ConnectionError: no route to host); the run continues without it.\n"
        "graphcl: tensorboard has failed (OSError: [Errno 28] No space left on device); the run continues without it.\n"
    )
    assert writer.flush.call_count == 1  # not called after the failure
    batches = fakes["mlflow"].MlflowClient.return_value.log_batch.call_args_list
    assert [{step for *_, step in each.kwargs["metrics"]} for each in batches if "metrics" in each.kwargs] == [
        {1}, {2}, {2},
    ]  # fmt: skip
    assert len(lines_of(out)) == 2
    assert "trained" in printed
    assert (out / "result.json").exists()


def test_a_run_that_fails_is_closed_as_failed(fakes, tmp_path):
    def fail():
        with tracking(list(TRACKERS), tmp_path, 3, SETTINGS) as trackers:
            assert [tracker.name for tracker in trackers] == list(TRACKERS)
            raise InputError("stop")

    with pytest.raises(InputError, match="stop"):
        fail()
    assert fakes["wandb"].init.return_value.finish.call_args == call(exit_code=1)
    assert fakes["mlflow"].MlflowClient.return_value.set_terminated.call_args.args[1] == "FAILED"
    assert fakes["tensorboard"].SummaryWriter.return_value.close.called


def test_environment_variables_of_the_libraries_apply(fakes, tmp_path, monkeypatch):
    values = dict(zip(VARIABLES, ("mine", "offline", "http://tracking:5000", "trial"), strict=True))
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    WandB(tmp_path)
    MLflow(tmp_path)
    assert fakes["wandb"].init.call_args.kwargs["project"] == "mine"
    assert "mode" not in fakes["wandb"].init.call_args.kwargs  # the library reads it itself
    client = fakes["mlflow"].MlflowClient
    assert client.call_args == call(tracking_uri="http://tracking:5000")
    assert client.return_value.create_experiment.call_args == call("trial", None)  # artifacts stay on the server
    assert not (tmp_path / "mlflow").exists()


def test_parameters_are_split_over_requests(fakes, tmp_path):
    MLflow(tmp_path, settings={f"key{number}": number for number in range(250)})
    sizes = [len(each.kwargs["params"]) for each in fakes["mlflow"].MlflowClient.return_value.log_batch.call_args_list]
    assert sizes == [100, 100, 51]


def test_names(go):
    (known,) = get_args(Config.model_fields["track"].annotation)
    assert list(get_args(known)) == list(TRACKERS)
    for words, line in [
        (["--track", "tensorbord"], "`track.0` must be 'tensorboard', 'wandb' or 'mlflow', got 'tensorbord'."),
        (["--track"], "`--track` takes one or more values, got 0."),
    ]:
        assert go(*words)[:3:2] == (2, f"graphcl: {line}\n")


def test_a_sweep_refuses_trackers():
    with pytest.raises(InputError, match="`track` is for single runs"):
        make_plan({"settings": {"track": ["wandb"]}, "axes": {"loss": ["dcl", "infonce"]}})
    with pytest.raises(InputError, match="`track` cannot be an axis"):
        make_plan({"axes": {"track": [["wandb"], []]}})


def test_tensorboard_stores_curves_and_settings(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoard(tmp_path, seed=3, settings=SETTINGS) as tracker:
        for epoch in EPOCHS:
            tracker(epoch)
        # Flushed: a killed run keeps its curves.
        found = EventAccumulator(str(tmp_path / "tensorboard" / "seed-3")).Reload()
        assert [(each.step, each.value) for each in found.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
        tracker.add_scores({"score/svm": 88.5})
    found = EventAccumulator(str(tmp_path / "tensorboard" / "seed-3")).Reload()
    assert [(each.step, each.value) for each in found.Scalars("rank")] == [(2, 3.0)]
    assert [(each.step, each.value) for each in found.Scalars("score/svm")] == [(2, 88.5)]
    (text,) = found.Tensors("settings/text_summary")
    assert b"mu: 0.7" in text.tensor_proto.string_val[0]


def test_mlflow_stores_curves_and_settings(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    for seed in (3, 4):  # the second seed finds the experiment of the first seed
        with MLflow(tmp_path / "run", seed=seed, settings=SETTINGS) as tracker:
            for epoch in EPOCHS:
                tracker(epoch)
            tracker.add_scores({"score/svm": 88.5})
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/run/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("graphcl")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["run-seed-3", "run-seed-4"]
    run = runs["run-seed-3"]
    assert run.info.status == "FINISHED"
    assert run.data.params == {"loss.name": "adnce", "loss.mu": "0.7", "lr": "0.01", "seed": "3"}
    assert [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "loss")] == [
        (1, 0.5), (2, 0.25),
    ]  # fmt: skip
    assert run.data.metrics["score/svm"] == 88.5
    assert experiment.artifact_location.startswith((tmp_path / "run").as_uri())
