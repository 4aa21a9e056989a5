"""Test `vicreg` against float64 reference loops over columns, in both forms."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.losses import vicreg
from tests.losses import loops

RANGES = {"target": "(0, inf)", "epsilon": "(0, inf)"} | dict.fromkeys(
    ["invariance", "variance", "covariance"], "[0, inf)"
)


def statistics(z, target, epsilon):
    """Return v(Z) and c(Z), see `vicreg`."""
    count, columns = len(z), list(zip(*z, strict=True))
    centred = []
    for column in columns:
        middle = math.fsum(column) / count
        centred.append([value - middle for value in column])
    cov = [[loops.dot(p, q) / (count - 1) for q in centred] for p in centred]
    width = len(columns)
    spread = math.fsum(max(0.0, target - math.sqrt(cov[d][d] + epsilon)) for d in range(width)) / width
    return spread, math.fsum(cov[i][j] ** 2 for i in range(width) for j in range(width) if i != j) / width


def slow(z1, z2, invariance=25.0, variance=25.0, covariance=1.0, target=1.0, epsilon=1e-4, form="released"):
    near = math.fsum(math.dist(a, b) ** 2 for a, b in zip(z1, z2, strict=True)) / len(z1)
    (v1, c1), (v2, c2) = (statistics(z, target, epsilon) for z in (z1, z2))
    if form == "released":
        near, v1, v2 = near / len(z1[0]), v1 / 2, v2 / 2
    return invariance * near + variance * (v1 + v2) + covariance * (c1 + c2)


OWN = [
    {},
    {"form": "paper"},
    {"invariance": 0.0, "covariance": 0.0, "target": 2.0, "epsilon": 0.3, "form": "paper"},
    {"invariance": 0.0, "variance": 0.0},
    {"invariance": 0.7, "variance": 2.0, "covariance": 3.0, "target": 1.5},
]


def test_the_loops_by_hand():
    """Z1 has variances 2, 8 and covariance 4. Z2 has variances 0, 2 and covariance 0. Squared distances are 8 and 0."""
    z1, z2 = [[0.0, 0.0], [2.0, 4.0]], [[2.0, 2.0], [2.0, 4.0]]
    spread1, cov1 = statistics(z1, target=3.0, epsilon=1.0)
    assert spread1 == pytest.approx((3 - math.sqrt(3) + 0) / 2)
    assert cov1 == pytest.approx((16 + 16) / 2)
    spread2, cov2 = statistics(z2, target=3.0, epsilon=1.0)
    assert spread2 == pytest.approx((3 - 1 + 3 - math.sqrt(3)) / 2)
    assert cov2 == 0
    own = {"target": 3.0, "epsilon": 1.0}
    zero = {"invariance": 0.0, "variance": 0.0, "covariance": 0.0}
    assert slow(z1, z2, **own, **(zero | {"invariance": 1.0}), form="paper") == pytest.approx(8 / 2)
    assert slow(z1, z2, **own, **(zero | {"invariance": 1.0})) == pytest.approx(8 / 4)
    for form, share in (("paper", 1), ("released", 0.5)):
        got = slow(z1, z2, **own, **(zero | {"variance": 1.0}), form=form)
        assert got == pytest.approx(share * (spread1 + spread2))
        assert slow(z1, z2, **own, **(zero | {"covariance": 1.0}), form=form) == pytest.approx(16)


@pytest.mark.parametrize("own", OWN, ids=str)
@pytest.mark.parametrize(("count", "columns"), [(2, 1), (2, 3), (3, 2), (5, 4)])
def test_value_and_gradient_equal_the_loops(views, gradients, own, count, columns):
    z1, z2 = views(count, columns, seed=count)
    assert vicreg(z1, z2, **own).item() == pytest.approx(slow(z1.tolist(), z2.tolist(), **own), rel=1e-10)
    np.testing.assert_allclose(
        gradients(partial(vicreg, **own), z1, z2),
        loops.differences(partial(slow, **own), z1.tolist(), z2.tolist()),
        rtol=1e-6,
        atol=1e-6,
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data(), target=st.floats(0.1, 4), form=st.sampled_from(["paper", "released"]))
def test_equals_the_loops_everywhere(data, target, form):
    z1, z2 = data.draw(loops.projections())
    own = {name: data.draw(st.floats(0, 30)) for name in ("invariance", "variance", "covariance")}
    own |= {"target": target, "form": form}
    got = vicreg(torch.tensor(z1), torch.tensor(z2), **own)
    assert got.item() == pytest.approx(slow(z1.tolist(), z2.tolist(), **own), rel=1e-10, abs=1e-10)


def test_the_released_form_is_the_papers_with_other_weights(views, gradients):
    z1, z2 = views(6, 4)
    released = partial(vicreg, form="released", invariance=8.0, variance=6.0, covariance=5.0)
    paper = partial(vicreg, form="paper", invariance=8.0 / 4, variance=6.0 / 2, covariance=5.0)
    assert released(z1, z2).item() == pytest.approx(paper(z1, z2).item(), rel=1e-12)
    np.testing.assert_allclose(gradients(released, z1, z2), gradients(paper, z1, z2), rtol=1e-11, atol=1e-12)


def test_equal_views_of_wide_uncorrelated_columns_cost_nothing():
    z = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert vicreg(z, z).item() == pytest.approx(0, abs=1e-12)
    # Shifting one view changes only the invariance term.
    assert vicreg(z + 2.0, z).item() == pytest.approx(25 * 12 / 3, rel=1e-12)
    # Shifting both views changes nothing.
    assert vicreg(z + 1e4, z + 1e4).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("form", ["paper", "released"])
def test_constant_columns_are_pushed_apart_by_the_whole_target(form):
    """With variance 0, the penalty is target - sqrt(epsilon), and its gradient is finite."""
    share = {"paper": 1.0, "released": 0.5}[form]
    loss = partial(vicreg, form=form)
    for value in (0.0, 0.1, 3.0):
        z = torch.full((3, 4), value, dtype=torch.float64)
        assert loss(z, z).item() == pytest.approx(share * 50 * (1 - 0.01), rel=1e-10)
        loops.finite(loss, z, z)
    z[:, 0] = torch.arange(3)
    loops.finite(loss, z, 0 * z)
