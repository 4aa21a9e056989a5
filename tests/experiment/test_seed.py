"""A trial: rows of scores, scores during training, BatchNorm statistics after training."""

import pytest
import torch

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.evaluate import svm
from graphcl.experiment.trial import Trial
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs
from tests.trials import run_seed

SETTINGS = {
    "epochs": 4,
    "batch_size": 12,
    "encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2},
    "evaluation": {"folds": 3, "inner_folds": 2},
}
GRAPHS = load_dataset(small_graphs())


def run(rows=None, **settings):
    config = make_config({**SETTINGS, **settings})
    return run_seed(config, GRAPHS, 3, rows=rows)


@pytest.fixture(scope="module")
def plain():
    return run()


def test_every_row_is_scored_and_the_trained_one_is_that_of_the_embedding(plain):
    assert list(plain.scores["svm"]) == ["majority", "statistics", "untrained", "calibrated", "trained"]
    assert plain.scores["svm"]["trained"] == svm(plain.h, GRAPHS.y, seed=3, folds=3, inner_folds=2)
    assert [epoch.epoch for epoch in plain.history] == [1, 2, 3, 4]
    only_trained = run(rows=())
    assert only_trained.scores == {}
    assert torch.equal(only_trained.h, plain.h)


def test_scores_on_the_way_do_not_change_the_training(plain):
    scored = run(rows=("trained",), score_every=2)
    assert torch.equal(plain.h, scored.h)
    assert list(scored.epoch_scores) == [2, 4]
    assert scored.epoch_scores[4]["svm"] == scored.scores["svm"]["trained"] == plain.scores["svm"]["trained"]
    assert scored.epoch_scores[2]["svm"] == run(rows=("trained",), epochs=2).scores["svm"]["trained"]


class Stateful(torch.nn.Module):
    """An encoder with state outside its state dict, and a layer that its first call makes."""

    def __init__(self, columns):
        super().__init__()
        self.columns, self.calls, self.out_channels = columns, 0, 8
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, edge_index, batch=None, size=None):
        if not hasattr(self, "layer"):
            self.layer = torch.nn.Linear(self.columns, 8)
        self.calls += 1
        rows = self.scale * self.layer(x)
        return rows.new_zeros(size, 8).index_add(0, batch, rows)


def test_the_step_that_is_tried_leaves_no_trace():
    trial = Trial(make_task(make_config(SETTINGS), GRAPHS), 0, torch.device("cpu"), encoder=Stateful)
    before = {name: value.clone() for name, value in trial.method.state_dict().items()}
    trial.try_step()
    encoder = trial.model.encoder
    assert (encoder.calls, hasattr(encoder, "layer"), trial.model.micro_batch) == (0, False, None)
    assert before.keys() == trial.method.state_dict().keys()
    assert all(torch.equal(value, trial.method.state_dict()[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in trial.method.parameters())
    assert len(trial.run(rows=()).history) == 4


def test_precise_bn_replaces_the_moving_averages_and_nothing_else(plain):
    precise = run(rows=(), precise_bn=True)
    assert [vars(each)["loss"] for each in plain.history] == [vars(each)["loss"] for each in precise.history]
    for name, value in plain.model.named_parameters():
        assert torch.equal(value, dict(precise.model.named_parameters())[name])
    expected = make_task(make_config(SETTINGS), GRAPHS).calibrated(plain.model, 3)
    for name, value in expected.named_buffers():
        torch.testing.assert_close(value, dict(precise.model.named_buffers())[name])
    assert not torch.equal(plain.h, precise.h)
