"""Test the perceptron against its modules one by one."""

import pytest
import torch

from graphcl.models.perceptron import Perceptron

torch.manual_seed(0)
ROWS = torch.randn(5, 4, dtype=torch.float64)


def one_by_one(mlp, x):
    """Return the output of the modules of `mlp`, one after the other."""
    for layer in mlp:
        x = layer(x)
    return x.relu() if mlp.rectified else x


@pytest.mark.parametrize("rectified", [False, True])
def test_outputs_gradients_and_second_derivatives(rectified):
    mlp = Perceptron(4, 6, 3, rectified).double()
    x = ROWS.clone().requires_grad_()
    torch.testing.assert_close(mlp(x), one_by_one(mlp, x), rtol=1e-14, atol=1e-14)
    inputs = [x, *mlp.parameters()]
    found, expected = (torch.autograd.grad(f(x).square().sum(), inputs) for f in (mlp, lambda x: one_by_one(mlp, x)))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    def function(x, *weights):
        return torch.func.functional_call(mlp, dict(zip(dict(mlp.named_parameters()), weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_only_wanted_gradients():
    mlp = Perceptron(4, 6, 3).double()
    mlp[0].requires_grad_(False)
    mlp(ROWS).sum().backward()
    assert mlp[0].weight.grad is None
    assert torch.equal(mlp[2].bias.grad, torch.full((3,), 5.0, dtype=torch.float64))


def test_hooks_autocast_transforms_and_one_row_use_the_modules():
    mlp, calls = Perceptron(4, 6, 3).double(), []
    handle = mlp[0].register_forward_hook(lambda *_: calls.append(1))
    mlp(ROWS)
    handle.remove()
    assert calls == [1]
    torch.testing.assert_close(torch.vmap(mlp)(ROWS), mlp(ROWS))
    torch.testing.assert_close(mlp(ROWS[0]), mlp(ROWS)[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert mlp.float()(ROWS.float()).dtype == torch.bfloat16
