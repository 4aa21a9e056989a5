"""A training that stops anywhere goes on as if it had not, and what is saved survives kills, full disks and damage."""

import errno
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.loader import DataLoader

import graphcl.training.checkpoint
from graphcl.augment import NodeDrop
from graphcl.config.settings import make_config
from graphcl.datasets import load_dataset
from graphcl.datasets.order import EpochBatches
from graphcl.datasets.resident import ResidentLoader
from graphcl.datasets.streaming import StreamingLoader
from graphcl.errors import InputError, Stopped
from graphcl.experiment.seed import make_method, make_model, train_seed
from graphcl.losses import Loss
from graphcl.methods import TwoViews
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.registry import methods
from graphcl.system.signals import Stop
from graphcl.training.checkpoint import Checkpoints, OtherTrainingError, read_checkpoint
from graphcl.training.loop import Epoch, NonFiniteLossError, train
from tests.conftest import small_graphs

DATA = load_dataset(small_graphs(40))


class StopAfter(Stop):
    """Wants to stop at the so manieth look; there is one after each step, and one after each epoch."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def wanted(self) -> bool:
        self.looks -= 1
        return self.looks == 0


def trained(settings, folder=None, looks=None, first=True):
    """A seed's method and history; if it is to stop, again and again until it is over."""
    small = {"encoder": {"name": "gin", "hidden": 8, "layers": 2}, "batch_size": 8, "epochs": 3, "diagnostics": True}
    config = make_config({**small, **settings})
    while True:
        model = make_model(config, DATA)
        method = make_method(config, DATA, model)
        checkpoints = None if folder is None else Checkpoints(folder, stop=StopAfter(looks))
        try:
            return method, train_seed(config, DATA, model, method=method, checkpoints=checkpoints)
        except Stopped:
            continue


def figures(history: list[Epoch]) -> list[dict[str, float]]:
    return [{key: value for key, value in each.figures().items() if "seconds" not in key} for each in history]


def equal(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    same = (
        torch.equal(first[key], second[key]) if torch.is_tensor(first[key]) else first[key] == second[key]
        for key in first
    )
    return first.keys() == second.keys() and all(same)


@pytest.fixture(scope="module")
def unbroken():
    return trained({})


@pytest.mark.parametrize("looks", [1, 2, 3, 4, 5, 6, 7, 16])
def test_stopped_anywhere_it_ends_the_same(looks, unbroken, tmp_path):
    """All five batches are one chunk: stops in it, at its end, at the epoch's, again and again."""
    method, history = trained({}, tmp_path / "kept", looks)
    assert equal(method, unbroken[0])
    assert figures(history) == figures(unbroken[1])


VARIANTS = {
    "chunks": {"batch_size": 16, "shuffle_window": 16},
    "steps": {"steps": 12},
    "skip": {"non_finite": "skip", "clip_norm": 0.5},
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_settings_that_bear_on_it(name, tmp_path):
    whole, history = trained(VARIANTS[name])
    resumed, found = trained(VARIANTS[name], tmp_path / "kept", 4)
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


@pytest.mark.parametrize("name", sorted(methods))
def test_every_method_keeps_what_it_needs(name, tmp_path):
    """Queue, bank, normaliser, slow copy, probabilities, adversary."""
    settings = {"loss": "instance_nce" if name == "memory_bank" else "adnce", "method": {"name": name}}
    if name == "moco":
        settings["method"]["queue_size"] = 24
    whole, history = trained(settings)
    resumed, found = trained(settings, tmp_path / "kept", 4)
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


class Noisy:
    """A transform that draws from the global generators of torch, NumPy and Python."""

    def __call__(self, graph):
        graph = graph.clone()
        graph.x = graph.x + torch.rand(()) + float(np.random.rand()) + random.random()
        return graph


class Dropping(GIN):
    """An encoder that draws from torch's global generator."""

    def forward(self, x, edge_index, batch):
        return nn.functional.dropout(super().forward(x, edge_index, batch), 0.3, self.training)


class Noised(list):
    """Graphs with a transform, as a PyG data set has."""

    transform = Noisy()

    def __getitem__(self, number):
        return self.transform(super().__getitem__(number))


def loaders():
    graphs = small_graphs(40)

    def order():
        return torch.Generator().manual_seed(0)

    return {
        "resident": lambda: ResidentLoader(graphs, 8, True, order()),
        "streaming": lambda: StreamingLoader(graphs, 8, True, order()),
        "sampler": lambda: DataLoader(Noised(graphs), batch_sampler=EpochBatches(40, 8, True, order())),
        "own": lambda: DataLoader(Noised(graphs), batch_size=8, shuffle=True, generator=order()),
        "global": lambda: DataLoader(Noised(graphs), batch_size=8, shuffle=True),
    }


@pytest.mark.parametrize("name", loaders())
def test_any_loader_and_the_global_generators(name, tmp_path):
    def go(stop=None):
        random.seed(3)
        np.random.seed(4)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            method = TwoViews(ContrastiveModel(Dropping(3, hidden=8, layers=2)), Loss("infonce"))
            own = torch.Generator().manual_seed(1)
            kept = None if stop is None else Checkpoints(tmp_path / "kept", stop=stop)
            drop = NodeDrop(0.2)
            return method, train(method, loaders()[name](), drop, drop, epochs=2, generator=own, checkpoints=kept)

    whole, history = go()
    for _ in range(20):
        try:
            resumed, found = go(StopAfter(3))
            break
        except Stopped:
            torch.rand(7), np.random.rand(7), random.random()  # what others draw meanwhile
    assert equal(whole, resumed)
    assert figures(history) == figures(found)


def test_the_rules_of_when(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(graphcl.training.checkpoint.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, epochs=3, minutes=2)
    assert [kept.due(epoch) for epoch in range(1, 7)] == [False, False, True, False, False, True]
    assert not kept.due()
    now[0] = 121.0
    assert kept.due()
    kept.save({}, 1)
    assert not kept.due()


def test_two_are_kept_and_the_end_is_one(tmp_path):
    config = make_config({"encoder": {"name": "gin", "hidden": 8}, "batch_size": 8, "epochs": 4})
    model = make_model(config, DATA)
    train_seed(config, DATA, model, checkpoints=Checkpoints(tmp_path / "kept", epochs=1))
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == ["step-000000015.pt", "step-000000020.pt"]
    # The training is over: nothing is done again.
    again = make_model(config, DATA)
    history = train_seed(config, DATA, again, checkpoints=Checkpoints(tmp_path / "kept"))
    assert len(history) == 4
    assert equal(model, again)
    Checkpoints(tmp_path / "kept").clear()
    assert not (tmp_path / "kept").exists()


@pytest.fixture
def two(tmp_path):
    """A folder with two checkpoints of a stopped training."""
    config = make_config(
        {"encoder": {"name": "gin", "hidden": 8, "layers": 2}, "batch_size": 8, "epochs": 3, "diagnostics": True}
    )
    with pytest.raises(Stopped, match="everything is saved"):
        train_seed(
            config,
            DATA,
            make_model(config, DATA),
            checkpoints=Checkpoints(tmp_path / "kept", epochs=1, stop=StopAfter(9)),
        )
    assert len(Checkpoints(tmp_path / "kept").files()) == 2
    return tmp_path / "kept"


DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "text": lambda data: b"hello",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(how, two, unbroken, capsys):
    newest = Checkpoints(two).files()[0]
    newest.write_bytes(DAMAGE[how](newest.read_bytes()))
    method, history = trained({}, two, 1000)
    assert equal(method, unbroken[0])
    assert figures(history) == figures(unbroken[1])
    err = capsys.readouterr().err
    assert str(newest) in err
    assert err.count("\n") == 1
    assert "going back to the checkpoint before it." in err


def test_a_damaged_newest_does_not_outlive_what_follows(two):
    """Else it would count as one of the two that are kept, and newer ones as its elders."""
    _, before = Checkpoints(two).files()
    Checkpoints(two).files()[0].write_bytes(b"")
    config = make_config(
        {"encoder": {"name": "gin", "hidden": 8, "layers": 2}, "batch_size": 8, "epochs": 3, "diagnostics": True}
    )
    with pytest.raises(Stopped):
        train_seed(config, DATA, make_model(config, DATA), checkpoints=Checkpoints(two, stop=StopAfter(1)))
    assert [each.name for each in Checkpoints(two).files()] == ["step-000000006.pt", before.name]


def test_places_are_compared_as_numbers(tmp_path):
    for name in ("step-999999999.pt", "step-1000000000.pt"):
        (tmp_path / name).touch()
    assert Checkpoints(tmp_path).files()[0].name == "step-1000000000.pt"


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """Within an epoch either, where nothing else has looked yet."""
    config = make_config({"encoder": {"name": "gin", "hidden": 8, "layers": 2}, "batch_size": 8, "epochs": 1})
    model = make_model(config, DATA)

    class Poison(StopAfter):
        @property
        def wanted(self) -> bool:
            next(model.parameters()).data.fill_(torch.nan)
            return True

    with pytest.raises(NonFiniteLossError, match="became NaN or infinite at epoch 1, step 1 of 5"):
        train_seed(config, DATA, model, checkpoints=Checkpoints(tmp_path / "kept", stop=Poison(1)))
    assert not (tmp_path / "kept").exists()


def test_stopped_at_the_last_of_its_steps(tmp_path):
    """The epoch that it lies in is over then, and more steps begin a new one."""
    found = []
    for folder, looks in ((tmp_path / "whole", 1000), (tmp_path / "stopped", 8)):
        trained({"steps": 7}, folder, looks)
        found.append(trained({"steps": 9}, folder, 1000))
    (whole, history), (resumed, again) = found
    assert figures(again) == figures(history)
    assert equal(resumed, whole)


def test_a_loader_of_fewer_batches(tmp_path):
    def go_on(graphs, looks):
        model = make_model(make_config({"encoder": {"name": "gin", "hidden": 8, "layers": 2}}), DATA)
        loader = DataLoader([DATA[number] for number in range(graphs)], batch_size=8)
        kept = Checkpoints(tmp_path, stop=StopAfter(looks))
        train(TwoViews(model, Loss("infonce")), loader, NodeDrop(0.2), NodeDrop(0.2), epochs=1, checkpoints=kept)

    with pytest.raises(Stopped):
        go_on(40, 4)
    with pytest.raises(InputError, match="gives fewer batches than the checkpoint has seen; go on with the same data"):
        go_on(16, 1000)


def test_when_none_can_be_read_nothing_is_trained_anew(two):
    for path in Checkpoints(two).files():
        path.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"none of the 2 checkpoints in .*kept can be read; delete that folder"):
        trained({}, two, 1000)


class Evil:
    def __reduce__(self):
        return (open, ("canary", "w"))


def test_code_in_one_is_refused_and_never_run(two, tmp_path, monkeypatch, capsys, unbroken):
    monkeypatch.chdir(tmp_path)
    newest = Checkpoints(two).files()[0]
    torch.save({**read_checkpoint(newest), "epoch": Evil()}, newest)
    assert equal(trained({}, two, 1000)[0], unbroken[0])
    assert "holds pickled code (io.open), which is never run" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()


MISFITS = {
    "nothing": lambda state: {"format": state["format"], "version": 1},
    "format": lambda state: {**state, "format": "other"},
    "version": lambda state: {**state, "version": 99},
    "weights": lambda state: {**state, "method": {}},
    "moments": lambda state: {**state, "optimiser": {**state["optimiser"], "state": {}} | {"param_groups": []}},
    "stream": lambda state: {**state, "ranks": [{**state["ranks"][0], "stream": {"step": 1}}]},
    "ranks": lambda state: {**state, "ranks": []},
    "history": lambda state: {**state, "history": [{"epoch": 1}]},
    "list": lambda state: [state],
}


@pytest.mark.parametrize("how", MISFITS)
def test_what_does_not_fit_is_left_for_the_one_before(how, two, capsys, unbroken):
    newest = Checkpoints(two).files()[0]
    torch.save(MISFITS[how](read_checkpoint(newest)), newest)
    assert equal(trained({}, two, 1000)[0], unbroken[0])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_another_training_is_refused_with_what_differs(two):
    with pytest.raises(OtherTrainingError, match=r"of another training: `lr` is 0.01 there, `clip_norm` is None there"):
        trained({"lr": 0.1, "clip_norm": 1.0}, two, 1000)


def test_a_full_disk_costs_a_line_and_no_training(tmp_path, monkeypatch, capsys, unbroken):
    def full(path, write):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(graphcl.training.checkpoint, "write_whole", full)
    method, _ = trained({}, tmp_path / "kept", 1000)
    assert equal(method, unbroken[0])
    assert "no checkpoint at step 15: No space left on device" in capsys.readouterr().err


def test_arguments():
    with pytest.raises(InputError, match="`epochs` between checkpoints must be at least 1, got 0"):
        Checkpoints("kept", epochs=0)
    with pytest.raises(InputError, match="`minutes` between checkpoints must be above 0, got 0"):
        Checkpoints("kept", minutes=0)
