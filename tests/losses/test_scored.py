"""Test losses of a given matrix of similarities."""

import pytest
import torch
from torch.nn.functional import normalize

from graphcl.errors import InputError
from graphcl.losses import scored
from graphcl.registry import losses


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", ["infonce", "adnce", "dcl", "hcl"])
def test_equals_the_loss_of_rows_with_these_cosines(name, symmetric):
    z1, z2 = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    loss = losses[name]
    cosines = normalize(z1, dim=1) @ normalize(z2, dim=1).T
    expected = loss(z1, z2, symmetric=symmetric, reduction="none")
    found = loss.terms(scored(cosines, symmetric))
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(each.sum(), z1, retain_graph=True)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_other_shapes_are_refused():
    for wrong in (torch.zeros(2, 3), torch.zeros(1, 1), torch.zeros(2, 2).long()):
        with pytest.raises(InputError, match=r"^`scores` must be \[N, N\] of floating point, N >= 2, got \["):
            scored(wrong)
