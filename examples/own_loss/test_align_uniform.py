"""The test file of a new loss: its equation in plain loops, a limit, and its gradient."""

import math

import pytest
import torch
from align_uniform import align_uniform
from torch.autograd import gradcheck


def by_hand(z1, z2, t, uniformity_weight):
    """Return the terms of the first view's anchors, from the equation in plain loops."""

    def squared_distance(u, v):
        u, v = ([x / math.hypot(*row) for x in row] for row in (u, v))
        return sum((a - b) ** 2 for a, b in zip(u, v, strict=True))

    found = []
    for i, anchor in enumerate(z1):
        kernel = [math.exp(-t * squared_distance(anchor, key)) for j, key in enumerate(z2) if j != i]
        mean = sum(kernel) / len(kernel)
        found.append(squared_distance(anchor, z2[i]) + uniformity_weight * math.log(mean))
    return found


@pytest.fixture
def views():
    z = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return z.unbind()


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(("t", "uniformity_weight"), [(2.0, 1.0), (0.5, 3.0)])
def test_equals_the_equation(views, engine, t, uniformity_weight):
    own = {"t": t, "uniformity_weight": uniformity_weight}
    got = align_uniform(*views, symmetric=False, reduction="none", engine=engine, **own)
    expected = by_hand(*(view.tolist() for view in views), **own)
    assert got.tolist() == pytest.approx(expected, rel=1e-12)


def test_is_zero_for_equal_rows():
    z = torch.ones(5, 3, dtype=torch.float64)
    assert align_uniform(z, z).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_gradient(views, engine):
    assert gradcheck(lambda a, b: align_uniform(a, b, engine=engine), [view.requires_grad_() for view in views])
