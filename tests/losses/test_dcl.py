"""Test `dcl` against float64 reference loops, and in limiting cases."""

import math

import pytest
import torch

from graphcl.losses import dcl, infonce
from tests.losses import loops
from tests.losses.loops import SWITCHES


def term(positive, negatives, temperature=0.2):
    """Return -s+ + log sum_j e^{s_j}."""
    return loops.log_sum_exp([c / temperature for c in negatives]) - positive / temperature


batch = loops.of_cosines(term)
SETTINGS = [{"temperature": t} for t in (0.05, 0.2, 1.0)]
SMOOTH = [{}]


def test_by_hand():
    e = math.exp
    assert term(0.5, [0.1, -0.2], 0.5) == pytest.approx(-math.log(e(1) / (e(0.2) + e(-0.4))))


def test_one_way_cross_view_is_the_official_graphcl_form(views):
    """The released GraphCL code computes -log(pos / (sum of the row - pos))."""
    z1, z2 = views(6, 4)
    e = torch.exp(torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1) / 0.2)
    expected = -torch.log(e.diagonal() / (e.sum(dim=1) - e.diagonal())).mean()
    assert dcl(z1, z2, temperature=0.2, symmetric=False).item() == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_log_of_the_number_of_negatives(negatives, symmetric, same):
    z = torch.full((6, 3), same, dtype=torch.float64)
    count = {"cross": 5, "all": 10}[negatives]
    value = dcl(z, z, negatives=negatives, symmetric=symmetric)
    assert value.item() == pytest.approx(math.log(count), abs=1e-12)


def test_infonce_is_the_softplus_of_dcl(views):
    """log(e^{s+} + e^A) - s+ = softplus(A - s+), with A the logsumexp of the negatives."""
    z1, z2 = views(6, 4)
    zero = torch.zeros((), dtype=torch.float64)
    for negatives, symmetric in SWITCHES:
        common = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
        torch.testing.assert_close(
            torch.logaddexp(dcl(z1, z2, **common), zero), infonce(z1, z2, **common), rtol=1e-12, atol=1e-12
        )
