"""Test checkpoints: resumed training equals uninterrupted training; kills and damaged files lose little."""

import errno
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.loader import DataLoader

import graphcl.training.checkpoint
from graphcl.augment import NodeDrop
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError, Stopped
from graphcl.experiment.build import make_method, make_model
from graphcl.loaders.order import EpochBatches
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.streaming import StreamingLoader
from graphcl.losses import Loss
from graphcl.methods import TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.training.checkpoint import Checkpoints, read_checkpoint
from graphcl.training.loop import NonFiniteLossError, train
from graphcl.training.randomness import Generators
from tests.conftest import small_graphs
from tests.methods.small import OF_GRAPHS, spec
from tests.training.helpers import StopAfter, equal, figures, train_seed

DATA = load_dataset(small_graphs(40))
ENCODER = {"name": "gin", "hidden_channels": 8, "num_layers": 2}
SMALL = {"encoder": ENCODER, "batch_size": 8, "epochs": 3, "diagnostics": True}
PER_EPOCH = 6
"""Looks at the stop in an epoch of five steps."""


def trained(settings, folder=None, looks=None, **rules):
    """Train one seed and return its method and history; after each stop, resume until training is complete."""
    config = make_config({**SMALL, **settings})
    while True:
        model = make_model(config, DATA)
        method = make_method(config, DATA, model)
        checkpoints = None if folder is None else Checkpoints(folder, stop=StopAfter(looks), **rules)
        try:
            return method, train_seed(config, DATA, model, method=method, checkpoints=checkpoints)
        except Stopped:
            continue


def stop(folder, looks, **rules):
    """Train until check number `looks` of the stop signal, and return the checkpoints, newest first."""
    config = make_config(SMALL)
    with pytest.raises(Stopped, match="everything is saved"):
        train_seed(
            config, DATA, make_model(config, DATA), checkpoints=Checkpoints(folder, stop=StopAfter(looks), **rules)
        )
    return Checkpoints(folder).files()


@pytest.fixture(scope="module")
def unbroken():
    return trained({})


@pytest.fixture
def at_once(monkeypatch):
    """Make a stop take effect at once, without waiting for the end of the epoch."""
    monkeypatch.setattr(graphcl.training.checkpoint, "GRACE", 0)


VARIANTS = {
    "plain": {},
    "chunks": {"batch_size": 16, "shuffle_window": 16},
    "steps": {"steps": 12},
    "schedule": {"optimizer": "sgd", "schedule": "cosine", "warmup": 0.2, "patience": 2},
    "skip": {"non_finite": "skip", "clip_norm": 0.5},
    **{name: {"method": spec(name, len(DATA)), "loss": "adnce"} for name in OF_GRAPHS},
}
VARIANTS["moco"]["method"]["queue_size"] = 24
VARIANTS["memory_bank"]["loss"] = "instance_nce"


@pytest.mark.parametrize("name", VARIANTS)
def test_resumed_after_each_epoch_it_equals_an_uninterrupted_training(name, tmp_path):
    """Resuming restores all state: queue, bank, normaliser, momentum encoder, probabilities and adversary."""
    whole, history = trained(VARIANTS[name])
    looks = 4 if name == "chunks" else PER_EPOCH
    resumed, found = trained(VARIANTS[name], tmp_path / "kept", looks)
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


@pytest.mark.parametrize("looks", [1, 3, 5, 8])
def test_a_stop_within_an_epoch_keeps_its_steps(looks, at_once, unbroken, tmp_path, capsys):
    """The remaining steps use a new order, which a line says; the number of steps does not change."""
    path = stop(tmp_path, looks)[0]
    assert path.name == f"step-{looks - looks // PER_EPOCH:09d}.pt"
    method, history = trained({}, tmp_path, 1000)
    assert len(history) == 3
    assert read_checkpoint(Checkpoints(tmp_path).files()[0])["steps"] == 15
    assert equal(method, unbroken[0]) == (looks == 5)  # look 5 is the last step of an epoch
    place = f"resumed within epoch {1 + looks // PER_EPOCH}, after step {looks % PER_EPOCH}"
    assert capsys.readouterr().err.count(f"{place}: the other steps of this epoch") == (looks != 5)
    before = (looks - 1) // PER_EPOCH
    assert figures(history[:before]) == figures(unbroken[1][:before])


def test_a_stop_waits_for_the_end_of_a_short_epoch(tmp_path):
    class Wanted(StopAfter):
        requested = True

    config = make_config(SMALL)
    with pytest.raises(Stopped):
        train_seed(config, DATA, make_model(config, DATA), checkpoints=Checkpoints(tmp_path, stop=Wanted(0)))
    assert [each.name for each in Checkpoints(tmp_path).files()] == ["step-000000005.pt"]


def test_stopped_at_its_last_step_the_epoch_ends(at_once, tmp_path):
    """Further steps then start a new epoch."""
    found = []
    for folder, looks in ((tmp_path / "whole", 1000), (tmp_path / "stopped", 8)):
        trained({"steps": 7}, folder, looks)
        found.append(trained({"steps": 9}, folder, 1000))
    (whole, history), (resumed, again) = found
    assert figures(again) == figures(history)
    assert equal(resumed, whole)


class Noisy:
    """A transform that draws from the global generators of torch, NumPy and Python."""

    def __call__(self, graph):
        graph = graph.clone()
        graph.x = graph.x + torch.rand(()) + float(np.random.rand()) + random.random()
        return graph


class Dropping(GIN):
    """Encoder with dropout, which draws from torch's global generator."""

    def forward(self, x, edge_index, batch):
        return nn.functional.dropout(super().forward(x, edge_index, batch), 0.3, self.training)


class Noised(list):
    """List of graphs with a transform, like a PyG data set."""

    transform = Noisy()

    def __getitem__(self, number):
        return self.transform(super().__getitem__(number))


LOADERS = {
    "resident": lambda data, order: ResidentLoader(data, 8, True, order),
    "streaming": lambda data, order: StreamingLoader(ResidentLoader(data, 8, True, order)),
    "sampler": lambda data, order: DataLoader(Noised(data), batch_sampler=EpochBatches(40, 8, True, order)),
    "own": lambda data, order: DataLoader(Noised(data), batch_size=8, shuffle=True, generator=order),
    "global": lambda data, order: DataLoader(Noised(data), batch_size=8, shuffle=True),
}


@pytest.mark.parametrize("name", LOADERS)
def test_any_loader_and_the_global_generators(name, tmp_path):
    def go(stop=None):
        random.seed(3)
        np.random.seed(4)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            method = TwoViews(ContrastiveModel(Dropping(3, hidden_channels=8, num_layers=2)), Loss("infonce"))
            loader = LOADERS[name](small_graphs(40), torch.Generator().manual_seed(0))
            own = torch.Generator().manual_seed(1)
            kept = None if stop is None else Checkpoints(tmp_path / "kept", stop=stop)
            drop = NodeDrop(0.2)
            return method, train(method, loader, drop, drop, epochs=3, generator=own, checkpoints=kept)

    whole, history = go()
    for _ in range(2):
        with pytest.raises(Stopped):
            go(StopAfter(PER_EPOCH))
        torch.rand(7), np.random.rand(7), random.random()  # draws that `restore` must undo
    resumed, found = go(StopAfter(1000))
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


def test_when_checkpoints_are_due(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(graphcl.training.checkpoint.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, epochs=3, minutes=2)
    assert [kept.due_after_epoch(epoch) for epoch in range(1, 7)] == [False, False, True, False, False, True]
    now[0] = 100.0
    assert not kept.due_after_epoch(7)
    now[0] = 121.0
    assert not kept.due_within_epoch()  # this epoch has lasted 21 seconds
    assert kept.due_after_epoch(8)
    now[0] = 242.0
    assert kept.due_within_epoch()
    kept.save({}, 1)
    assert not kept.due_within_epoch()
    now[0] = 250.0
    assert kept.due_after_epoch(10)  # replaces the checkpoint within the epoch as the newest
    assert not kept.due_after_epoch(11)


def test_two_are_kept_and_the_end_is_one(tmp_path):
    model, _ = trained({}, tmp_path / "kept", 1000, epochs=1)
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == ["step-000000010.pt", "step-000000015.pt"]
    again, history = trained({}, tmp_path / "kept", 1000)  # training is complete, so no epoch is repeated
    assert len(history) == 3
    assert equal(model, again)
    Checkpoints(tmp_path / "kept").clear()
    assert not (tmp_path / "kept").exists()


def test_steps_are_compared_as_numbers(tmp_path):
    for name in ("step-999999999.pt", "step-1000000000.pt"):
        (tmp_path / name).touch()
    assert Checkpoints(tmp_path).files()[0].name == "step-1000000000.pt"


def test_non_finite_weights_are_not_saved(at_once, tmp_path):
    """A stop within an epoch must not save them, although the loss has not been checked yet."""
    config = make_config({**SMALL, "epochs": 1})
    model = make_model(config, DATA)

    class Poison(StopAfter):
        @property
        def requested(self):
            next(model.parameters()).data.fill_(torch.nan)
            return True

    with pytest.raises(NonFiniteLossError, match="became NaN or infinite at epoch 1, step 1 of 5"):
        train_seed(config, DATA, model, checkpoints=Checkpoints(tmp_path / "kept", stop=Poison(1)))
    assert not (tmp_path / "kept").exists()


@pytest.fixture
def two(tmp_path):
    """Return a folder with the checkpoints of epochs 1 and 2."""
    assert len(stop(tmp_path / "kept", 2 * PER_EPOCH, epochs=1)) == 2
    return tmp_path / "kept"


class Evil:
    def __reduce__(self):
        return (open, ("canary", "w"))


def bytes_of(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def state_of(change):
    return lambda path: torch.save(change(read_checkpoint(path)), path)


DAMAGE = {
    "empty": bytes_of(lambda data: b""),
    "half": bytes_of(lambda data: data[: len(data) // 2]),
    "bit": bytes_of(lambda data: bytes(each ^ (i == len(data) // 2) for i, each in enumerate(data))),
    "text": bytes_of(lambda data: b"hello"),
    "code": state_of(lambda state: {**state, "epoch": Evil()}),
    "nothing": state_of(lambda state: {"format": state["format"], "version": state["version"]}),
    "format": state_of(lambda state: {**state, "format": "other"}),
    "version": state_of(lambda state: {**state, "version": 99}),
    "weights": state_of(lambda state: {**state, "method": {}}),
    "optimiser": state_of(lambda state: {**state, "optimiser": {"state": {}, "param_groups": []}}),
    "unfinished": state_of(lambda state: {**state, "unfinished": {"done": 1}}),
    "generators": state_of(lambda state: {**state, "generators": []}),
    "history": state_of(lambda state: {**state, "history": [{"epoch": 1}]}),
    "list": state_of(lambda state: [state]),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(how, two, unbroken, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    newest = Checkpoints(two).files()[0]
    DAMAGE[how](newest)
    method, history = trained({}, two, 1000)
    assert equal(method, unbroken[0])
    assert figures(history) == figures(unbroken[1])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "trying the checkpoint before it." in err
    assert ("holds pickled code (io.open), which is never run" in err) == (how == "code")
    assert not (tmp_path / "canary").exists()


def test_a_damaged_newest_is_removed_by_the_next_one(two, at_once):
    """Otherwise the damaged file would count as one of the two checkpoints to keep."""
    newest, before = Checkpoints(two).files()
    newest.write_bytes(b"")
    assert [each.name for each in stop(two, 1)] == ["step-000000006.pt", before.name]


def unreadable(folder):
    for path in Checkpoints(folder).files():
        path.write_bytes(b"PK")
    trained({}, folder, 1000)


@pytest.mark.parametrize(("call", "message"), [
    (unreadable, r"none of the 2 checkpoints in .*kept can be read; delete that folder"),
    (lambda folder: trained({"lr": 0.1, "clip_norm": 1.0}, folder, 1000),
     r"belongs to another training run: `lr` is 0.01 there, `clip_norm` is None there"),
    (lambda folder: Checkpoints(folder, epochs=0), "`epochs` between checkpoints must be at least 1, got 0"),
    (lambda folder: Checkpoints(folder, minutes=0), "`minutes` between checkpoints must be above 0, got 0"),
])  # fmt: skip
def test_messages(call, message, two):
    with pytest.raises(InputError, match=message):
        call(two)


def test_a_full_disk_costs_a_warning(tmp_path, monkeypatch, capsys, unbroken):
    def full(path, write):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(graphcl.training.checkpoint, "write_whole", full)
    method, _ = trained({}, tmp_path / "kept", 1000)
    assert equal(method, unbroken[0])
    assert "no checkpoint at step 15: No space left on device" in capsys.readouterr().err


def test_views_saved_on_another_type_of_device_are_drawn_anew(capsys):
    own = torch.Generator().manual_seed(0)
    generators = Generators(torch.device("cpu"), views=own)
    state = generators.state()
    state["own"]["views"] = state["own"]["views"][:16]  # the size of a CUDA generator's state
    before = own.get_state()
    generators.restore(state)
    assert torch.equal(own.get_state(), before)
    assert "the views are new draws" in capsys.readouterr().err
