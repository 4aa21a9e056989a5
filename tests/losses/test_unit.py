"""Test the scaling of rows to norm 1 and its derivatives."""

import torch

from graphcl.losses.rows import normalize

torch.manual_seed(0)
ROWS = torch.randn(4, 3, dtype=torch.float64)


def test_rows_and_derivatives():
    expected = [[each / sum(x * x for x in row) ** 0.5 for each in row] for row in ROWS.tolist()]
    torch.testing.assert_close(normalize(ROWS), torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    z = ROWS.clone().requires_grad_()
    assert torch.autograd.gradcheck(normalize, z)
    assert torch.autograd.gradgradcheck(normalize, z)
    rows = torch.stack([row for half in torch.vmap(normalize)(ROWS.view(2, 2, 3)) for row in half])
    torch.testing.assert_close(rows, normalize(ROWS))


def test_extreme_rows():
    z = torch.tensor([[3e30, 4e30], [3e-11, 4e-11], [3e-13, 4e-13], [0.0, 0.0]], requires_grad=True)
    unit = normalize(z)
    torch.testing.assert_close(unit[:2], torch.tensor([[0.6, 0.8]] * 2))
    assert torch.equal(unit[2:], z[2:])  # not scaled
    (grad,) = torch.autograd.grad(unit, z, torch.ones_like(z))
    torch.testing.assert_close(grad[2:], torch.ones(2, 2))
    assert grad.isfinite().all()


def test_sets_together_as_one_by_one():
    assert torch.equal(normalize(torch.cat([ROWS, ROWS[:2]])), torch.cat([normalize(ROWS), normalize(ROWS[:2])]))
    assert normalize(ROWS.half()).dtype == torch.float32
