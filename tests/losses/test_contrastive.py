"""Test `contrastive`, the loss with a margin on distances, against float64 reference loops."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphcl.losses import contrastive
from tests.losses import loops


def term(anchor, positive, negatives, margin=1.0, normalize=True, negative_reduction="mean"):
    """Return D+^2 / 2 plus the mean or sum over j of max(margin - D_j, 0)^2 / 2."""
    if normalize:
        anchor, positive, *negatives = (loops.unit(row) for row in (anchor, positive, *negatives))
    pushed = [max(margin - math.dist(anchor, key), 0) ** 2 / 2 for key in negatives]
    count = {"mean": len(negatives), "sum": 1}[negative_reduction]
    return math.dist(anchor, positive) ** 2 / 2 + math.fsum(pushed) / count


slow = loops.every(term)
batch = loops.of_rows(term)
EXPLICIT = False  # tested below, as the caller chooses `normalize`
# With these margins, some negatives are within the margin.
SETTINGS = [
    {"margin": 1.4},
    {"margin": 1.6, "negative_reduction": "sum"},
    {"margin": 4.0, "normalize": False},
    {"margin": 3.0, "normalize": False, "negative_reduction": "sum"},
]
# All negatives are within the margin, so there is no kink.
SMOOTH = [{"margin": 30.0, "normalize": normalize} for normalize in (True, False)]
RANGES = {"margin": "(0, inf)"}


def test_the_loops_by_hand():
    """The distance to the positive is sqrt(2). Those to the negatives are 1, 2, 5, and 1, 2, 1 after normalisation."""
    third = [math.cos(math.pi / 3), math.sin(math.pi / 3)]
    rows = [1.0, 0.0], [0.0, 1.0], [third, [-1.0, 0.0], [1.0, 0.0]]
    assert term(*rows, margin=1.5) == pytest.approx(1 + (0.125 + 0 + 1.125) / 3)
    assert term(*rows, margin=1.5, negative_reduction="sum") == pytest.approx(1 + 0.125 + 1.125)
    rows = [3.0, 0.0], [0.0, 0.0], [[0.0, 4.0], [3.0, 1.0]]
    assert term(*rows, margin=6.0, normalize=False) == pytest.approx(4.5 + (0.5 + 12.5) / 2)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), margin=st.floats(0.1, 5), normalize=st.booleans(), reduce=st.sampled_from(["mean", "sum"]))
def test_equals_the_loops_everywhere(data, margin, normalize, reduce):
    z1, z2 = data.draw(loops.projections())
    assume(np.abs(z1).max(axis=1).all() and np.abs(z2).max(axis=1).all())
    own = {"margin": margin, "normalize": normalize, "negative_reduction": reduce}
    own |= {"negatives": data.draw(st.sampled_from(["cross", "all"])), "symmetric": data.draw(st.booleans())}
    got = contrastive(torch.tensor(z1), torch.tensor(z2), reduction="none", **own)
    # A distance of 0 can be computed as the square root of a rounding error.
    np.testing.assert_allclose(got, slow(z1.tolist(), z2.tolist(), **own), rtol=1e-10, atol=1e-6)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_explicit_pairs(reduce):
    own = {"margin": 2.0, "negative_reduction": reduce}
    batch = loops.of_rows(partial(term, normalize=False))
    loops.agree_explicitly(contrastive, batch, "squared_distance", **own)


@pytest.mark.parametrize("normalize", [True, False])
def test_coincident_points_are_pushed_by_the_whole_margin_and_have_a_gradient(normalize):
    z = torch.zeros(4, 3, dtype=torch.float64)
    z[:, 1] = 1.0
    loss = partial(contrastive, margin=2.0, normalize=normalize, negatives="all")
    assert loss(z, z).item() == pytest.approx(2.0, abs=1e-7)
    loops.finite(loss, z, z)
    loops.finite(loss, 0 * z, z)
    loops.finite(loss, 0 * z, 0 * z)
    z[:, 1:] = torch.tensor([[3.0, 1.0], [3.0, 1.0], [0.1, 0.7], [0.1, 0.7]])
    loops.finite(loss, z, z.flip(0))


def test_only_the_raw_form_sees_the_length(views):
    z1, z2 = views(4, 3)
    assert contrastive(3 * z1, z2).item() == pytest.approx(contrastive(z1, z2).item(), rel=1e-12)
    far = contrastive(100 * z1, z2, normalize=False)
    assert far.item() == pytest.approx(((100 * z1 - z2) ** 2).sum(dim=1).mean().item() / 2, rel=1e-12)
