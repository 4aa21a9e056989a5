"""Test `infonce` against float64 reference loops, and in limiting cases."""

import math

import numpy as np
import pytest
import torch

from graphcl.losses import infonce
from tests.losses import loops
from tests.losses.loops import SWITCHES


def term(positive, negatives, temperature=0.2):
    """Return -s+ + log(e^{s+} + sum_j e^{s_j})."""
    logits = [c / temperature for c in (positive, *negatives)]
    return loops.log_sum_exp(logits) - logits[0]


batch = loops.of_cosines(term)
SETTINGS = [{"temperature": t} for t in (0.05, 0.2, 1.0)]
SMOOTH = [{}]


def test_by_hand():
    e = math.exp
    assert term(0.5, [0.1, -0.2], 0.5) == pytest.approx(-math.log(e(1) / (e(1) + e(0.2) + e(-0.4))))


def test_cross_view_is_cross_entropy_of_the_similarities_against_their_diagonal(views):
    """The textbook form is the row-wise cross-entropy, averaged over the two directions."""
    z1, z2 = views(7, 4)
    logits = torch.nn.functional.normalize(z1) @ torch.nn.functional.normalize(z2).T / 0.3
    target = torch.arange(7)
    entropy = torch.nn.functional.cross_entropy
    one_way = entropy(logits, target)
    both = (one_way + entropy(logits.T, target)) / 2
    assert infonce(z1, z2, temperature=0.3, symmetric=False).item() == pytest.approx(one_way.item(), rel=1e-12)
    assert infonce(z1, z2, temperature=0.3).item() == pytest.approx(both.item(), rel=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_log_of_one_more_than_the_negatives(negatives, symmetric, same):
    """If all cosines are 0 (zero rows) or 1 (equal rows), the loss is log(1 + M)."""
    z = torch.full((6, 3), same, dtype=torch.float64)
    count = {"cross": 5, "all": 10}[negatives]
    value = infonce(z, z, negatives=negatives, symmetric=symmetric)
    assert value.item() == pytest.approx(math.log(1 + count), abs=1e-12)


@pytest.mark.parametrize("temperature", [0.09, 0.08, 0.065])
def test_exact_where_the_positive_has_lost(at_cosines, slopes, temperature):
    """The negatives exceed the positive by 20 to 30, where log(1 + e^gap) and gap still differ in float64."""
    cosines = [-0.95, 0.9, 0.1]
    got = infonce(*at_cosines(cosines[0], cosines[1:]), temperature=temperature, reduction="none")[0].item()
    assert got == pytest.approx(term(cosines[0], cosines[1:], temperature), rel=1e-13)
    p = [math.exp(c / temperature) for c in cosines]
    expected = [-sum(p[1:]) / sum(p) / temperature, *(each / sum(p) / temperature for each in p[1:])]
    np.testing.assert_allclose(slopes(infonce, cosines[0], cosines[1:], temperature=temperature), expected, rtol=1e-11)


@pytest.mark.parametrize("temperature", [0.1, 0.05, 0.03])
def test_float32_keeps_the_direction_where_the_positive_has_won(gradients, at_cosines, temperature):
    """At gaps s+ - max s_j of 12 to 40, the derivative computed as p+ - 1 would be rounding noise or 0."""
    views = [z.float() for z in at_cosines(0.9, np.linspace(-0.95, -0.3, 15))]
    got, expected = (
        gradients(lambda a, b: infonce(a, b, temperature=temperature, reduction="none")[0], *some)
        for some in (views, [z.double() for z in views])
    )
    assert np.linalg.norm(got - expected) < 1e-4 * np.linalg.norm(expected)


def test_float32_values_far_from_zero_on_either_side(at_cosines):
    for positive, temperature in [(0.9, 0.05), (0.9, 0.02), (-0.95, 0.05), (-0.95, 0.02)]:
        negatives = [-0.3, -0.6, 0.0]
        views = at_cosines(positive, negatives, dtype=torch.float32)
        got = infonce(*views, temperature=temperature, reduction="none")[0].item()
        assert got == pytest.approx(term(positive, negatives, temperature), rel=1e-4)
