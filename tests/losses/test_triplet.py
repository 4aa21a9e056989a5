"""Test `triplet` and its mining of negatives against float64 reference loops."""

import math
from functools import partial

import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import triplet
from tests.losses import loops

MINING = ["all", "semi_hard", "hard"]


def term(anchor, positive, negatives, margin=0.2, mining="all"):
    """Return the mean of max(0, D+^2 - D_j^2 + margin) over the mined negatives j, with D^2 = 2 - 2c."""
    near = 2 - 2 * loops.cosine(anchor, positive)
    far = [2 - 2 * loops.cosine(anchor, key) for key in negatives]
    if mining == "hard":
        far = [min(far)]
    if mining == "semi_hard":
        farther = [distance for distance in far if distance > near]
        far = [min(farther) if farther else max(far)]
    return math.fsum(max(0.0, near - distance + margin) for distance in far) / len(far)


slow = loops.every(term)
batch = loops.of_rows(term)
SETTINGS = [{"margin": margin, "mining": mining} for margin in (0.2, 0.9, 3.0) for mining in MINING]
RANDOM = {"margin": st.floats(0.01, 3), "mining": st.sampled_from(["all", "hard"])}
SMOOTH = [{"margin": 5.0, "mining": mining} for mining in MINING]  # the margin exceeds every difference
RANGES = {"margin": "(0, inf)"}


def test_three_negatives_by_hand(at_cosines):
    """The squared distance to the positive is 1.6. Those to the negatives are 1, 1.8 and 3.2, or all below 1.6."""
    mixed = {"all": (1.1 + 0.3 + 0) / 3, "hard": 1.1, "semi_hard": 0.3}
    nearer = {"all": (1.9 + 1.1 + 0.7) / 3, "hard": 1.9, "semi_hard": 0.7}
    for negatives, expected in [([0.5, 0.1, -0.6], mixed), ([0.9, 0.5, 0.3], nearer)]:
        for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
            z1, z2 = at_cosines(0.2, [negatives[j] for j in order])
            for mining, value in expected.items():
                assert slow(z1.tolist(), z2.tolist(), margin=0.5, mining=mining)[0] == pytest.approx(value)
                for engine in ("dense", "tiled"):
                    got = triplet(z1, z2, margin=0.5, mining=mining, reduction="none", engine=engine)[0]
                    assert got.item() == pytest.approx(value, rel=1e-10)


def test_semi_hard_means_strictly_farther():
    """A negative as far as the positive is not semi-hard. It is chosen only if no negative is farther."""
    axes = torch.eye(4, dtype=torch.float64)
    z1 = axes[[0, 0, 0]]
    for last, expected in [(-axes[0], 0.0), (axes[0], 0.2)]:
        z2 = torch.stack([axes[1], axes[2], last])
        for engine in ("dense", "tiled"):
            got = triplet(z1, z2, mining="semi_hard", symmetric=False, reduction="none", engine=engine)[0]
            assert got.item() == pytest.approx(expected, abs=1e-12)


def test_hard_is_the_largest_of_the_three_anchor_by_anchor(views):
    z1, z2 = views(12, 3)
    every, semi, hard = (triplet(z1, z2, margin=1.0, mining=mining, reduction="none") for mining in MINING)
    assert (hard >= every - 1e-12).all()
    assert (hard >= semi - 1e-12).all()
    assert (hard - every).max() > 0.1
    assert (hard - semi).max() > 0.1


@pytest.mark.parametrize("mining", MINING)
def test_coincident_points_and_zero_rows(mining):
    """All distances are equal, so the loss is the margin."""
    for z in (torch.ones(4, 3), torch.zeros(4, 3)):
        loss = partial(triplet, mining=mining, margin=0.3, negatives="all")
        assert loss(z.double(), z.double()).item() == pytest.approx(0.3, abs=1e-12)
        loops.finite(loss, z, z)
    z[0] = 1.0
    loops.finite(loss, z, z.flip(0))
