"""Test that Lightning's trainer gives the same numbers as `graphcl.train`."""

import copy
import importlib
import sys
import warnings

import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from graphcl import GIN, ContrastiveModel, NodeDrop, ResidentLoader, TwoViews, embed, train
from graphcl.config import build_augmentation, make_config
from graphcl.errors import InputTypeError
from graphcl.experiment.build import make_method
from graphcl.loaders.order import EpochBatches
from graphcl.losses import infonce
from tests.conftest import small_graphs

pytest.importorskip("pytorch_lightning", reason="the extra `lightning` is not installed")
from graphcl.lightning import ContrastiveModule, pl

GRAPHS = small_graphs(20)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        warnings.filterwarnings("ignore", module="lightning_fabric")
        yield


def trainer(**options):
    off = ("logger", "enable_progress_bar", "enable_model_summary")
    return pl.Trainer(accelerator="cpu", **dict.fromkeys(off, False), **options)


class Watch(pl.callbacks.Checkpoint):
    """Callback that stores the metrics of each epoch; `Checkpoint` callbacks run after the module has logged."""

    def __init__(self):
        self.epochs = []

    def on_train_epoch_end(self, trainer, module):
        self.epochs.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def loader(seed=0):
    """Return a loader that shuffles each epoch, with a batch sampler that knows the indices of the graphs."""
    order = EpochBatches(len(GRAPHS), 7, True, torch.Generator().manual_seed(seed))
    return DataLoader(GRAPHS, batch_sampler=order)


def made(name):
    pool = {"views": {"second": "random3"}} if name == "joao" else {}
    config = make_config({"method": name, "encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}, **pool})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = make_method(config, GRAPHS, ContrastiveModel(GIN(3, 8, 2)))
    return method, build_augmentation(config.views.first), build_augmentation(config.views.second)


@pytest.mark.parametrize("name", ["two_views", "moco", "memory_bank", "joao"])
def test_the_same_numbers_as_train(name):
    """Logged metrics and final states equal those of `graphcl.train`, also for methods with a state."""
    method, *views = made(name)
    other, *same = copy.deepcopy((method, *views)) if name != "joao" else made(name)
    options = {"lr": 0.02, "weight_decay": 0.001}
    history = train(method, loader(), *views, epochs=3, **options, generator=torch.Generator().manual_seed(1))
    module = ContrastiveModule(other, *same, **options, generator=torch.Generator().manual_seed(1))
    watch = Watch()
    trainer(max_epochs=3, callbacks=[watch]).fit(module, loader())
    for epoch, logged in zip(history, watch.epochs, strict=True):
        expected = {"loss": epoch.loss, "alignment": epoch.alignment, "uniformity": epoch.uniformity}
        assert logged == pytest.approx(expected | epoch.diagnostics, rel=1e-5)
    assert history[0].loss != history[1].loss
    for one, two in zip(method.state_dict().values(), other.state_dict().values(), strict=True):
        assert not isinstance(one, torch.Tensor) or torch.equal(one, two)


def test_embeddings_with_a_resident_loader_and_a_checkpoint(tmp_path):
    method, *views = made("moco")
    run = trainer(max_epochs=1, enable_checkpointing=False)
    run.fit(module := ContrastiveModule(method, *views), ResidentLoader(GRAPHS, 7, shuffle=True))
    assert run.global_step == 3
    found = torch.cat(run.predict(module, ResidentLoader(GRAPHS, 7)))
    torch.testing.assert_close(found, embed(method.model, ResidentLoader(GRAPHS, 7))[0])
    run.save_checkpoint(tmp_path / "module.ckpt")
    other, first, second = made("moco")
    load = ContrastiveModule.load_from_checkpoint
    again = load(tmp_path / "module.ckpt", weights_only=False, method=other, first=first, second=second)
    batch = Batch.from_data_list(GRAPHS)
    assert torch.equal(again.eval()(batch), method.model.eval().encode(batch))


def test_other_batches_are_rejected():
    module = ContrastiveModule(TwoViews(ContrastiveModel(GIN(3, 8, 2)), infonce), NodeDrop(0.2), NodeDrop(0.2))
    run = trainer(max_epochs=1, enable_checkpointing=False)
    with pytest.raises(InputTypeError, match=r"^expected a .*Batch of whole graphs, got Data; use"):
        run.fit(module, torch.utils.data.DataLoader(GRAPHS, batch_size=None))


def test_the_error_without_the_extra(monkeypatch):
    for missing in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "graphcl.lightning", raising=False)
    with pytest.raises(ImportError, match=r'^graphcl\.lightning needs Lightning: pip install "graphcl\[lightning\]"$'):
        importlib.import_module("graphcl.lightning")
