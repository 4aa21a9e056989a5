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


ON_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CASES = [("cpu", loss) for loss in ("infonce", "barlow_twins")]
CASES += [pytest.param("cuda", loss, marks=ON_CUDA) for loss in ("infonce", "adnce", "barlow_twins", "triplet")]


@pytest.mark.parametrize(("device", "loss"), CASES)
def test_two_runs_are_equal(device, loss):
    first, second = (weights(loss=loss, deterministic=True, device=device) for _ in range(2))
    assert all(torch.equal(each, second[key]) for key, each in first.items())
    if device == "cpu":
        plain = weights(loss=loss, device=device)
        assert not torch.are_deterministic_algorithms_enabled()
        assert all(torch.equal(each, plain[key]) for key, each in first.items())


def test_a_nondeterministic_operation_is_named(monkeypatch):
    def train(*arguments, **options):
        raise RuntimeError("kthvalue CUDA does not have a deterministic implementation, but you set '...'. You can")

    monkeypatch.setattr(experiment, "train", train)
    with pytest.raises(InputError, match=r"^kthvalue CUDA does not have .*; choose another loss or method, "):
        weights(deterministic=True)
    with pytest.raises(RuntimeError, match="kthvalue"):
        weights()
