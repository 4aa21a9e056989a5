"""Test that GraphGym trains with this library's networks, losses, methods and data sets, and logs metrics."""

import copy
import functools
import json
import logging
import math
import runpy
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, InMemoryDataset

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.registry import losses
from tests.conftest import small_graphs

pytest.importorskip("yacs", reason="the extra `graphgym` is not installed")
pytest.importorskip("pytorch_lightning", reason="the extra `graphgym` is not installed")
from torch_geometric.graphgym import compute_loss, create_model, register, set_cfg, train
from torch_geometric.graphgym.config import CN, assert_cfg, cfg
from torch_geometric.graphgym.train import GraphGymDataModule

import graphcl.graphgym as gym

EXAMPLE = Path(__file__).parents[1] / "examples" / "graphgym"
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphgym") / "own.pt"
    InMemoryDataset.save(small_graphs(30, edge_attr=True), str(path))
    return str(path)


@pytest.fixture(autouse=True)
def clean(tmp_path, graphs):
    """Reset GraphGym's global configuration before each test, with small graphs and few epochs."""
    set_cfg(cfg)
    cfg.out_dir, cfg.num_threads, cfg.accelerator = str(tmp_path), 1, "cpu"
    cfg.dataset.format, cfg.dataset.name, cfg.dataset.task = "graphcl", graphs, "graph"
    cfg.dataset.transductive = False
    cfg.model.type, cfg.model.loss_fun, cfg.train.batch_size = "graphcl", "infonce", 12
    cfg.custom_metrics, cfg.train.enable_ckpt, cfg.optim.max_epoch = ["alignment", "uniformity"], False, 2
    cfg.graphcl.encoder.hidden_channels = 8
    handlers, threads = logging.root.handlers, torch.get_num_threads()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # warnings from GraphGym and Lightning
        torch.manual_seed(0)
        yield
    logging.root.handlers = handlers
    torch.set_num_threads(threads)


def pipeline():
    """Train a model like GraphGym's main script; return the model and its log lines for each of train, val and test."""
    assert_cfg(cfg)
    data, model = GraphGymDataModule(), create_model()
    cfg.params = 0
    before = copy.deepcopy(model.state_dict())
    register.train_dict.get(cfg.train.mode, train)(model, data, trainer_config=QUIET)
    assert any(not torch.equal(before[key], value) for key, value in model.state_dict().items())
    lines = {part: Path(cfg.run_dir, part, "stats.json").read_text().splitlines() for part in ("train", "val", "test")}
    return model, {part: [json.loads(line) for line in of] for part, of in lines.items()}


def test_keys_are_in_the_global_configuration_and_in_others():
    set_cfg(other := CN())
    for each in (cfg, other):
        assert (each.graphcl.method.name, each.graphcl.features, each.train.mode) == ("auto", "auto", "standard")
    settings = gym.settings(cfg)
    names = (settings.loss["name"], settings.method["name"], settings.views.first["name"])
    assert names == ("infonce", "two_views", "random4")
    assert settings.encoder["hidden_channels"] == 8


@pytest.mark.parametrize("mode", ["standard", "graphcl"])
def test_either_loop_trains_logs_and_writes_a_checkpoint(mode):
    cfg.train.mode, cfg.train.enable_ckpt, cfg.graphcl.loss.temperature = mode, True, 0.5
    model, logged = pipeline()
    assert [line["epoch"] for line in logged["train"]] == [0, 1]
    assert len(logged["test"]) == 1
    for line in (each for part in logged.values() for each in part):
        assert all(math.isfinite(line[key]) for key in ("loss", "alignment", "uniformity"))
    assert model.model.encoder.out_channels == 24
    file = max(Path(cfg.run_dir, "ckpt").glob("*.ckpt"))
    again = create_model()
    again.load_state_dict(torch.load(file, weights_only=False)["state_dict"])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("method", ["moco", "joao", "infograph"])
def test_the_mode_graphcl_trains_by_any_method(method):
    cfg.train.mode, cfg.optim.max_epoch, cfg.model.loss_fun = "graphcl", 1, "auto"
    cfg.graphcl.method.name = method
    network = pipeline()[0].model
    if method == "moco":
        assert len(network.method.queue) == 48  # both views of the 24 training graphs only
    if method == "joao":
        assert len(set(network.method.probabilities().values())) > 1


def test_an_encoder_of_edge_attributes():
    cfg.graphcl.encoder = CN({"name": "gine", "hidden_channels": 8}, new_allowed=True)
    GraphGymDataModule()
    network = create_model().model
    assert network.encoder.convs[0].lin.in_features == 2
    cfg.share.edge_dim = 0
    with pytest.raises(InputError, match=r"^encoder `gine` needs `edge_attr`, but these graphs have none; use gin\.$"):
        create_model()


def test_every_loss_is_graphgyms_too_and_others_are_unchanged():
    z1, z2 = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0)).unbind()
    for name in (name for name in losses if "labels" not in losses.arguments(name).tensors):
        queued = losses.arguments(name).defaults.get("negatives") == "queue"
        keys = {"negatives": "cross"} if queued else {}
        cfg.model.loss_fun, cfg.graphcl.loss = name, CN(keys, new_allowed=True)
        value, score = compute_loss(z1, z2)
        assert torch.equal(value, Loss(name, **keys)(z1, z2)), name
        assert torch.equal(score, z1)
    cfg.model.loss_fun = "mse"
    assert compute_loss(torch.ones(3), torch.zeros(3))[0] == 1
    assert "graphcl_supcon" not in register.loss_dict


def test_data_sets_are_split_by_the_seed(graphs):
    cfg.dataset.split = [0.6, 0.2, 0.2]
    parts = [len(loader.dataset) for loader in GraphGymDataModule().loaders]
    assert parts == [18, 6, 6]
    one, same = gym.load("graphcl", graphs, "."), gym.load("graphcl", graphs, ".")
    cfg.seed = 1
    other = gym.load("graphcl", graphs, ".")
    names = [f"{part}_graph_index" for part in ("train", "val", "test")]
    drawn = [torch.cat([dataset._data[name] for name in names]) for dataset in (one, same, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].sort().values.tolist() == list(range(30))
    assert gym.load("PyG", "Cora", ".") is None


def test_mistakes(graphs):
    fails = functools.partial(pytest.raises, InputError)
    cfg.model.loss_fun, cfg.graphcl.loss.temperature, cfg.graphcl.encoder.widht = "infonce", -1.0, 3
    with fails(match=r"^`loss\.temperature` must be in .*, got -1\.0\.\n`encoder\.widht` is not a known key"):
        gym.Network(3, 2)
    del cfg.graphcl.encoder["widht"], cfg.graphcl.loss["temperature"]
    cfg.graphcl.loss.temperature = "learn"
    with fails(
        match=r"^`graphcl\.loss\.temperature` must be a number: a loss function of GraphGym has no parameters\.$"
    ):
        compute_loss(*torch.eye(3).expand(2, 3, 3))
    del cfg.graphcl.loss["temperature"]
    cfg.model.loss_fun, cfg.graphcl.method.name = "auto", "memory_bank"
    with fails(match=r"^method `memory_bank` needs the indices of a batch's graphs"):
        gym.Network(3, 2)
    cfg.graphcl.method.name = "moco"
    with fails(match=r"^method MoCo needs `train\.mode: graphcl`\.$"):
        gym.Network(3, 2)(Batch.from_data_list(small_graphs(4)))
    cfg.model.type, cfg.gnn.head = "gnn", "graph"
    with fails(match=r"^`train\.mode` graphcl needs `model\.type` graphcl, got a GNN\.$"):
        gym.pretrain(create_model(dim_in=3, dim_out=2), None)
    cfg.dataset.split = [0.95, 0.05, 0.0]
    with fails(match=r"^`dataset\.split` must give each of three parts at least two graphs, .*0\.05, 0\.0\]\.$"):
        gym.load("graphcl", graphs, ".")


def test_the_example(monkeypatch, tmp_path, capsys):
    """The example script improves its metric in two epochs; run in this process, which saves ten seconds of imports."""
    set_cfg(cfg)
    words = ["main.py", "--cfg", str(EXAMPLE / "contrastive.yaml"), "optim.max_epoch", "2", "num_threads", "1"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE / "main.py"), run_name="__main__")
    line = capsys.readouterr().out.splitlines()[-1]
    untrained, trained = (float(word) for word in line.split() if word[0].isdigit())
    assert trained > untrained
    assert (tmp_path / "results" / "contrastive" / "0" / "train" / "stats.json").read_text().count("\n") == 2
