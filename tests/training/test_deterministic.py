"""Test `--deterministic`: bitwise equal results."""

import pytest
import torch

from graphcl import load_dataset, make_config
from graphcl.experiment.runtime import setup_runtime
from tests.conftest import small_graphs
from tests.training.helpers import equal
from tests.trials import run_seed


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)


def model_of(**settings):
    config = make_config({"encoder": {"name": "gin", "hidden_channels": 8}, "batch_size": 16, "epochs": 1, **settings})
    return run_seed(config, load_dataset(small_graphs(40)), rows=(), device=setup_runtime(config)).model


ON_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_CUDA)])
def test_two_runs_are_equal(device):
    for loss in ("infonce", "barlow_twins", "triplet"):
        first, second = (model_of(loss=loss, deterministic=True, device=device) for _ in range(2))
        assert equal(first, second), loss
    assert device != "cpu" or equal(first, model_of(loss=loss, device=device))
