"""Test checkpoints: resumed training equals uninterrupted training; kills and damaged files lose little."""

import errno
import random
import shutil
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

import graphcl.training.checkpoint
from graphcl import GIN, Checkpoints, ContrastiveModel, InputError, TwoViews, load_dataset, make_config, train
from graphcl.datasets.dataset import with_groups
from graphcl.errors import Stopped
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import read_checkpoint
from graphcl.training.loop import NonFiniteLossError
from tests.conftest import small_graphs
from tests.datasets.graphs import Trap
from tests.methods.small import OF_GRAPHS
from tests.training.helpers import StopAfter, equal, figures, trained

DATA = with_groups(load_dataset(small_graphs(24)), [number % 10 for number in range(24)])
ENCODER = {"name": "gin", "hidden_channels": 8, "num_layers": 2}
SMALL = {"encoder": ENCODER, "batch_size": 8, "epochs": 2, "diagnostics": True}
PER_EPOCH = 4
"""Looks at the stop in an epoch of three steps."""


def small(settings, *arguments, **options):
    return trained(make_config({**SMALL, **settings}), DATA, *arguments, **options)


def stopped(folder, stop, **rules):
    """Train until `stop` and return the names of the checkpoints, newest first."""
    with pytest.raises(Stopped, match="everything is saved"):
        small({}, folder, stop, resume=False, **rules)
    return [path.name for path in Checkpoints(folder).files()]


@pytest.fixture(scope="module")
def unbroken():
    return small({})


@pytest.fixture
def at_once(monkeypatch):
    """Make a stop take effect at once, without waiting for the end of the epoch."""
    monkeypatch.setattr(graphcl.training.checkpoint, "GRACE", 0)


VARIANTS = {
    "plain": {},
    "chunks": {"batch_size": 16, "shuffle_window": 16},
    "steps": {"steps": 5, "epochs": 20},
    "schedule": {"optimizer": "sgd", "schedule": "cosine", "warmup": 0.2, "patience": 2, "epochs": 3},
    "pairs": {"positives": "group", "method": "memory_bank", "batch_size": 4},
    "temperature": {"loss": {"name": "adnce", "temperature": "learn"}, "diagnostics": True},
    "sigreg": {"loss": {"name": "sigreg", "num_directions": 16}, "micro_batch": 4},
    "skip": {"non_finite": "skip", "clip_norm": 0.5},
    **{name: {"method": {"name": name}, "loss": "adnce"} for name in OF_GRAPHS},
}
VARIANTS["moco"]["method"]["queue_size"] = 32
VARIANTS["memory_bank"]["loss"] = "instance_nce"


@pytest.mark.parametrize("name", VARIANTS)
def test_resumed_after_each_epoch_it_equals_an_uninterrupted_training(name, tmp_path):
    """Resuming restores all state: queue, bank, normaliser, momentum encoder, probabilities and adversary."""
    whole, history = small(VARIANTS[name])
    resumed, found = small(VARIANTS[name], tmp_path / "kept", 3 if name == "chunks" else PER_EPOCH)
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


@pytest.mark.parametrize("looks", [1, 3, 6])
def test_a_stop_within_an_epoch_keeps_its_steps(looks, at_once, unbroken, tmp_path, capsys):
    """The remaining steps use a new order, which a line says; the number of steps does not change."""
    epoch, step = divmod(looks, PER_EPOCH)
    assert stopped(tmp_path, looks) == [f"step-{looks - epoch:09d}.pt"]
    method, history = small({}, tmp_path)
    assert len(history) == 2
    assert read_checkpoint(Checkpoints(tmp_path).files()[0])["steps"] == 6
    assert equal(method, unbroken[0]) == (step == 3)  # the last step of an epoch
    line = f"resumed within epoch {1 + epoch}, after step {step}: the other steps of this epoch"
    assert capsys.readouterr().err.count(line) == (step != 3)
    assert figures(history[:epoch]) == figures(unbroken[1][:epoch])


def test_a_stop_waits_for_the_end_of_a_short_epoch(tmp_path):
    wanted = Stop()
    wanted.requested = True
    assert stopped(tmp_path, wanted) == ["step-000000003.pt"]


class Noised(list):
    """List of graphs that draws from the global generators of torch, NumPy and Python."""

    def __getitem__(self, number):
        graph = super().__getitem__(number).clone()
        graph.x = graph.x + torch.rand(()) + float(np.random.rand()) + random.random()
        return graph


def test_own_loaders_and_the_global_generators(tmp_path):
    def go(checkpoints=None):
        random.seed(3)
        np.random.seed(4)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            method = TwoViews(ContrastiveModel(GIN(3, hidden_channels=8, num_layers=2)), "infonce")
            loader = DataLoader(Noised(small_graphs(24)), batch_size=8, shuffle=True)
            options = {"epochs": 2, "generator": torch.Generator().manual_seed(1), "checkpoints": checkpoints}
            return method, train(method, loader, "node_drop", "node_drop", **options)

    whole, history = go()
    with pytest.raises(Stopped):
        go(Checkpoints(tmp_path, stop=StopAfter(PER_EPOCH)))
    torch.rand(7), np.random.rand(7), random.random()  # draws that `restore` must undo
    resumed, found = go(Checkpoints(tmp_path))
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


def test_when_checkpoints_are_due(tmp_path, monkeypatch):
    now, training = [0.0], SimpleNamespace(steps=0, finished=False, state_dict=mock.Mock(return_value={}))
    monkeypatch.setattr(graphcl.training.checkpoint.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, epochs=3, minutes=2)

    def saves(seconds, epoch=None):
        """Return True if a checkpoint is saved within an epoch, or at the end of epoch `epoch`."""
        now[0], training.epoch, before = seconds, epoch, training.state_dict.call_count
        (kept.after_epoch if epoch else kept.after_step)(training)
        return training.state_dict.call_count > before

    assert [saves(0.0, epoch) for epoch in range(1, 7)] == [False, False, True, False, False, True]
    # The epoch that begins at second 100 is saved when it takes two minutes, and then also at its end.
    times = [(100.0, 7), (121.0, None), (121.0, 8), (242.0, None), (243.0, None), (250.0, 10), (251.0, 11)]
    assert [saves(*each) for each in times] == [False, False, True, True, False, True, False]


def test_two_are_kept_and_the_end_is_one(tmp_path):
    model, _ = small({"epochs": 3}, tmp_path / "kept", epochs=1)
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == ["step-000000006.pt", "step-000000009.pt"]
    again, history = small({"epochs": 3}, tmp_path / "kept")  # training is complete, so no epoch is repeated
    assert len(history) == 3
    assert equal(model, again)
    for name in ("step-999999999.pt", "step-1000000000.pt"):
        (tmp_path / "kept" / name).touch()
    assert Checkpoints(tmp_path / "kept").files()[0].name == "step-1000000000.pt"  # compared as numbers
    Checkpoints(tmp_path / "kept").keep_last()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["step-1000000000.pt"]


def test_non_finite_weights_are_not_saved(at_once, tmp_path):
    """A stop within an epoch must not save them, although the loss has not been checked yet."""

    def make(task, model, seed):
        return TwoViews(model, lambda z1, z2: z1.sum() * torch.nan)

    with pytest.raises(NonFiniteLossError, match="became NaN or infinite at epoch 1, step 1 of 3"):
        small({}, tmp_path / "kept", 1, make=make)
    assert not (tmp_path / "kept").exists()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    assert stopped(folder, 2 * PER_EPOCH, epochs=1) == ["step-000000006.pt", "step-000000003.pt"]
    return folder


@pytest.fixture
def two(original, tmp_path):
    """Return a folder with the checkpoints of epochs 1 and 2."""
    return shutil.copytree(original, tmp_path / "kept")


DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "bit": lambda data: bytes(each ^ (i == len(data) // 2) for i, each in enumerate(data)),
    "code": {"epoch": Trap()},
    "format": {"format": "other"},
    "weights": {"method": {}},
    "optimiser": {"optimiser": {"state": {}, "param_groups": []}},
    "unfinished": {"unfinished": {"done": 1}},
    "generators": {"generators": []},
}
"""Name -> function that changes the bytes of a checkpoint, or entries that replace those of its state."""


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(how, two, unbroken, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    newest, change = two / "step-000000006.pt", DAMAGE[how]
    if callable(change):
        newest.write_bytes(change(newest.read_bytes()))
    else:
        torch.save(read_checkpoint(newest) | change, newest)
    method, history = small({}, two)
    assert equal(method, unbroken[0])
    assert figures(history) == figures(unbroken[1])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "trying the checkpoint before it." in err
    assert ("holds pickled code (posix.mkdir), which is never run" in err) == (how == "code")
    assert not (tmp_path / "sprung").exists()


def test_messages(two):
    with pytest.raises(InputError, match=r"another training run: `lr` is 0.01 there, `clip_norm` is None there"):
        small({"lr": 0.1, "clip_norm": 1.0}, two)
    for path in Checkpoints(two).files():
        path.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"none of the 2 checkpoints in .*kept can be read; delete that folder"):
        small({}, two)


def test_a_full_disk_costs_a_warning(tmp_path, monkeypatch, capsys, unbroken):
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(graphcl.training.checkpoint, "write_torch_file", full)
    method, _ = small({}, tmp_path / "kept")
    assert equal(method, unbroken[0])
    assert "no checkpoint at step 6: No space left on device" in capsys.readouterr().err
