"""Test `--deterministic`: bitwise equal results, or an error."""

import pytest
import torch

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.experiment import seed as experiment
from graphcl.experiment.build import setup_runtime
from tests.conftest import small_graphs


@pytest.fixture(autouse=True)
def as_before():
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def weights(**settings):
    config = make_config({"encoder": {"name": "gin", "hidden_channels": 8}, "batch_size": 16, "epochs": 2, **settings})
    device = setup_runtime(config)
    dataset = load_dataset(small_graphs(40))
    model = experiment.run_seed(config, dataset, 0, device, rows=()).model
    return {key: each.cpu() for key, each in model.state_dict().items()}


@pytest.mark.parametrize("loss", ["infonce", "barlow_twins"])
def test_on_the_cpu(loss):
    first, second = (weights(loss=loss, deterministic=True, device="cpu") for _ in range(2))
    plain = weights(loss=loss, device="cpu")
    assert not torch.are_deterministic_algorithms_enabled()
    for key, each in first.items():
        assert torch.equal(each, second[key])
        assert torch.equal(each, plain[key])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", ["infonce", "adnce", "barlow_twins", "triplet"])
def test_on_cuda(loss):
    first, second = (weights(loss=loss, deterministic=True, device="cuda") for _ in range(2))
    assert all(torch.equal(each, second[key]) for key, each in first.items())


def test_a_nondeterministic_operation_is_named(monkeypatch):
    def train(*arguments, **options):
        raise RuntimeError(
            "kthvalue CUDA does not have a deterministic implementation, but you set 'torch.use_...'. You can"
        )

    monkeypatch.setattr(experiment, "train", train)
    with pytest.raises(
        InputError, match=r"^kthvalue CUDA does not have a deterministic .*; choose another loss or method, "
    ):
        weights(deterministic=True)
    with pytest.raises(RuntimeError, match="kthvalue"):
        weights()
