"""Test `simsiam` against float64 reference loops; targets have no gradient."""

import math

import pytest

from tests.losses import loops


def term(anchor, target, _):
    """Return -cos(anchor, target)."""
    return -loops.cosine(anchor, target)


batch = loops.of_rows(term)
STOPPED = True
SMOOTH = [{}]


def slow(z1, z2):
    return [term(*rows, None) for rows in zip(z1, z2, strict=True)]


def test_the_loops_by_hand():
    """The rows are orthogonal, opposite, and at 45 degrees."""
    z1, z2 = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0.0, 3.0], [0.0, -5.0], [4.0, 4.0]]
    assert slow(z1, z2) == pytest.approx([0.0, 1.0, -math.sqrt(0.5)])
