"""The written-out GIN block against its modules one after the other, and against numerical derivatives."""

import pytest
import torch
from torch import nn

from graphcl.aggregate import Groups
from graphcl.block import _Block, block, plain_block


def make(width=5, hidden=4, dtype=torch.float64, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden)).to(dtype)
        norm = nn.BatchNorm1d(hidden).to(dtype)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return mlp, norm


def rows(n=12, width=5, dtype=torch.float64, seed=1):
    return torch.randn(n, width, dtype=dtype, generator=torch.Generator().manual_seed(seed))


GRAPHS = Groups.of(torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3]), 5)
SHUFFLED = Groups.of(torch.tensor([3, 0, 1, 1, 0, 3, 3, 1, 0, 3, 1, 3]), 5)


def outcome_of(way, training, parts, graphs, backward):
    """Everything that a block gives and leaves behind."""
    mlp, norm = make()
    norm.train(training)
    total = rows().requires_grad_()
    y, pool = way(total, mlp, norm, graphs, parts)
    weigh = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    value = {"y": (y * weigh).sum(), "pool": pool.square().sum(), "both": (y * weigh).sum() + pool.square().sum()}
    inputs = [total, *mlp.parameters(), *norm.parameters()]
    grads = torch.autograd.grad(value[backward], inputs)
    return [y, pool, *grads, *norm.buffers()]


@pytest.mark.parametrize("graphs", [GRAPHS, SHUFFLED], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("backward", ["y", "pool", "both"])
@pytest.mark.parametrize("parts", [[12], [7, 5], [2, 4, 6]], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_it_is_its_modules_one_after_the_other(training, parts, graphs, backward):
    ours = outcome_of(block, training, parts, graphs, backward)
    reference = outcome_of(plain_block, training, parts, graphs, backward)
    for got, expected in zip(ours, reference, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_and_theirs(training):
    mlp, norm = make()
    norm.train(training)

    inputs = [rows(), *(each.detach().clone() for each in [*mlp.parameters(), *norm.parameters()])]
    inputs = [each.requires_grad_() for each in inputs]
    # ReLU has kinks; with these seeds no pre-activation lies near enough to one for the numerical derivative.
    assert torch.autograd.gradcheck(lambda *given: _Block.apply(*given, norm, GRAPHS, [7, 5]), inputs)
    assert torch.autograd.gradgradcheck(lambda *given: _Block.apply(*given, norm, GRAPHS, [7, 5]), inputs)


def test_a_frozen_input_gets_no_gradient():
    mlp, norm = make()
    y, _ = block(rows(), mlp, norm, GRAPHS)
    y.square().sum().backward()
    assert all(each.grad is not None for each in mlp.parameters())


def test_whoever_listens_to_a_module_hears_it():
    """Written out, the modules themselves are not called; with a hook on one of them, they are."""
    for module in (0, 1, 2):
        mlp, norm = make()
        heard = []
        mlp[module].register_forward_hook(lambda *_, heard=heard: heard.append(1))
        block(rows(), mlp, norm, GRAPHS)
        assert heard


@pytest.mark.parametrize(
    "change",
    [
        lambda mlp, norm: (mlp, nn.Identity()),
        lambda mlp, norm: (mlp, nn.LayerNorm(4, dtype=torch.float64)),
        lambda mlp, norm: (nn.Sequential(mlp[0], nn.Tanh(), mlp[2]), norm),
        lambda mlp, norm: (nn.Sequential(*mlp, nn.Dropout(0.5)), norm),
        lambda mlp, norm: (mlp, nn.BatchNorm1d(4, momentum=None, dtype=torch.float64)),
        lambda mlp, norm: (mlp, nn.BatchNorm1d(4, track_running_stats=False, dtype=torch.float64)),
        lambda mlp, norm: (mlp, nn.BatchNorm1d(4, affine=False, dtype=torch.float64)),
        lambda mlp, norm: (nn.Sequential(nn.Linear(5, 4, bias=False, dtype=torch.float64), *list(mlp)[1:]), norm),
    ],
    ids=["identity", "layer norm", "tanh", "dropout", "cumulative", "no statistics", "not affine", "no bias"],
)
def test_other_modules_are_called_as_they_are(change):
    outcomes = []
    for way in (block, plain_block):
        mlp, norm = change(*make())
        torch.manual_seed(0)
        outcomes.append(way(rows(), mlp, norm, GRAPHS, [12])[0])
    assert torch.equal(*outcomes)


def test_a_single_row_is_refused_as_batch_norm_does():
    mlp, norm = make()
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        block(rows(1), mlp, norm, Groups.of(torch.tensor([0]), 1))


def test_autocast_computes_in_bfloat16():
    mlp, norm = make(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y, pool = block(rows(dtype=torch.float32), mlp, norm, GRAPHS)
        expected, _ = plain_block(rows(dtype=torch.float32), *make(dtype=torch.float32), GRAPHS, [12])
    assert y.dtype == expected.dtype
    assert torch.equal(y, expected)
    assert pool.isfinite().all()


def test_lower_precision_goes_through_the_modules():
    mlp, norm = make(dtype=torch.bfloat16)
    y, _ = block(rows(dtype=torch.bfloat16), mlp, norm, GRAPHS)
    expected, _ = plain_block(rows(dtype=torch.bfloat16), *make(dtype=torch.bfloat16), GRAPHS, [12])
    assert torch.equal(y, expected)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("parts", [[12], [7, 5]], ids=str)
def test_cuda_agrees_with_its_modules(parts):
    graphs = Groups.of(GRAPHS.ids.cuda(), 5)
    found = []
    for way in (block, plain_block):
        mlp, norm = (module.cuda() for module in make())
        total = rows().cuda().requires_grad_()
        y, pool = way(total, mlp, norm, graphs, parts)
        grads = torch.autograd.grad(y.square().sum() + pool.sin().sum(), [total, *mlp.parameters(), *norm.parameters()])
        found.append([y, pool, *grads, *norm.buffers()])
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
