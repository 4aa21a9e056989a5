"""Trackers: calls to mocks of the libraries, and the data that the real libraries store."""

import contextlib
import sys
from unittest.mock import MagicMock, call

import pytest

from graphcl.config import make_config
from graphcl.errors import InputError
from graphcl.experiment.record.progress import TRACKERS, TensorBoard, WandB, tracking
from graphcl.run import main
from graphcl.sweep.plan import make_plan
from graphcl.training.loop import Epoch

EPOCHS = [Epoch(1, 0.5, 0.25, -1.0, 2.0, 1.0), Epoch(2, 0.25, 0.125, -2.0, 2.0, 1.0, {"rank": 3.0})]
SETTINGS = {"loss": {"name": "adnce", "mu": 0.7}, "lr": 0.01}
VARIABLES = ("WANDB_PROJECT", "WANDB_MODE")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Unset the environment variables that trackers read."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fakes(monkeypatch):
    """Replace the tracking libraries by mocks, and return tracker -> mock."""
    found = {name: MagicMock() for name in TRACKERS}
    for name, fake in found.items():
        monkeypatch.setitem(sys.modules, TRACKERS[name].module, fake)
    return found


@pytest.fixture
def go(saved_graphs, tmp_path, capfd):
    """Return a function that runs `graphcl run` and returns the exit code, stdout, stderr and the run folder."""

    def run(*options: str):
        words = ("--epochs", "2", "--seeds", "0", "--encoder.hidden_channels", "8", "--eval", "knn", *options)
        code = main(["--dataset", saved_graphs(), "--out", str(tmp_path / "run"), "--report", "false", *words])
        return code, *capfd.readouterr(), tmp_path / "run"

    return run


@pytest.mark.parametrize("fails", [False, True])
def test_every_tracker_gets_every_epoch_and_the_scores(fails, fakes, tmp_path):
    with (
        pytest.raises(InputError, match="stop") if fails else contextlib.nullcontext(),
        tracking(list(TRACKERS), tmp_path / "run", 3, SETTINGS) as trackers,
    ):
        assert [tracker.name for tracker in trackers] == list(TRACKERS)
        for tracker in trackers:
            for epoch in EPOCHS:
                tracker(epoch)
            tracker.add_scores({"score/knn": 88.5})
        if fails:
            raise InputError("stop")
    metrics = [(*point, epoch.epoch) for epoch in EPOCHS for point in epoch.metrics().items()]
    wanted = [*metrics, ("score/knn", 88.5, 2)]

    board = fakes["tensorboard"].SummaryWriter
    assert board.call_args_list == [call(str(tmp_path / "run" / "tensorboard" / "seed-3"))]
    assert [each.args for each in board.return_value.add_scalar.call_args_list] == wanted
    assert board.return_value.close.call_count == 1

    started, run = fakes["wandb"].init.call_args.kwargs, fakes["wandb"].init.return_value
    assert (started["group"], started["name"], started["dir"]) == ("run", "run-seed-3", str(tmp_path / "run"))
    assert started["config"] == {**SETTINGS, "seed": 3}
    logged = [(*point, each.kwargs["step"]) for each in run.log.call_args_list for point in each.args[0].items()]
    assert logged == wanted
    assert run.finish.call_args_list == [call(exit_code=int(fails))]


def test_a_missing_library_is_reported_before_any_work(go, monkeypatch):
    for name, tracker in TRACKERS.items():
        monkeypatch.setitem(sys.modules, tracker.module, None)
        code, printed, err, out = go("--track", name)
        assert (code, printed, out.exists()) == (2, "", False), name
        assert err.startswith(f"graphcl: tracking with {name} needs its library ("), name
        assert err.endswith(f"); pip install 'graphcl[{name}]'.\n"), name


def test_trackers_that_fail_do_not_stop_the_run(go, fakes):
    """TensorBoard fails at its first epoch, W&B cannot open its log."""
    writer = fakes["tensorboard"].SummaryWriter.return_value
    writer.flush.side_effect = OSError(28, "No space left\non device")
    fakes["wandb"].init.side_effect = ConnectionError("no route to host")
    code, _, err, out = go("--track", "tensorboard", "wandb")
    assert code == 0
    assert err.splitlines() == [
        "graphcl: wandb has failed (ConnectionError: no route to host); the run continues without it.",
        "graphcl: tensorboard has failed (OSError: [Errno 28] No space left on device); the run continues without it.",
    ]
    assert writer.flush.call_count == 1  # not called after the failure
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


def test_environment_variables_of_the_libraries_apply(fakes, tmp_path, monkeypatch):
    for name, value in zip(VARIABLES, ("mine", "offline"), strict=True):
        monkeypatch.setenv(name, value)
    WandB(tmp_path)
    assert fakes["wandb"].init.call_args.kwargs["project"] == "mine"
    assert "mode" not in fakes["wandb"].init.call_args.kwargs  # the library reads it itself


def test_every_tracker_is_a_choice_of_a_single_run():
    assert make_config({"track": [*TRACKERS]}).track == [*TRACKERS]
    for plan in ({"settings": {"track": ["wandb"]}, "axes": {"lr": [0.1]}}, {"axes": {"track": [["wandb"], []]}}):
        with pytest.raises(InputError, match=r"^`track` "):
            make_plan(plan)


def test_tensorboard_stores_curves_and_settings(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoard(tmp_path, seed=3, settings=SETTINGS) as tracker:
        for epoch in EPOCHS:
            tracker(epoch)
        tracker.add_scores({"score/svm": 88.5})
    found = EventAccumulator(str(tmp_path / "tensorboard" / "seed-3")).Reload()
    for name, values in (("loss", [(1, 0.5), (2, 0.25)]), ("rank", [(2, 3.0)]), ("score/svm", [(2, 88.5)])):
        assert [(each.step, each.value) for each in found.Scalars(name)] == values
    (text,) = found.Tensors("settings/text_summary")
    assert b"mu: 0.7" in text.tensor_proto.string_val[0]
