"""Estimates of mutual information against float64 loops, by hand, and against each other."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.losses import infonce
from graphcl.losses.information import estimate
from tests.losses import loops

SWITCHES = list(product(["cross", "all"], [True, False]))
NAMES = {"infonce", "dv", "nwj", "js", "kl", "chi2"}


def slow(z1, z2, temperature=0.2, negatives="cross", symmetric=True):
    """Every estimate from the list of positive and the list of negative critics, f = cosine / temperature."""
    rows = loops.compared(z1, z2, negatives=negatives, symmetric=symmetric)
    joint = [loops.cosine(anchor, positive) / temperature for anchor, positive, _ in rows]
    apart = [[loops.cosine(anchor, key) / temperature for key in keys] for anchor, _, keys in rows]
    marginal = [s for row in apart for s in row]

    def mean(values):
        return math.fsum(values) / len(values)

    def log_mean_exp(values):
        return loops.log_sum_exp(values) - math.log(len(values))

    nce = mean([loops.log_sum_exp([s, *row]) - s for s, row in zip(joint, apart, strict=True)])
    dv = mean(joint) - log_mean_exp(marginal)
    return {
        "infonce": math.log(1 + len(apart[0])) - nce,
        "dv": dv,
        "kl": dv,
        "nwj": 1 + mean([s - 1 for s in joint]) - math.exp(log_mean_exp([s - 1 for s in marginal])),
        "js": mean([-loops.softplus(-s) for s in joint])
        - mean([loops.softplus(s) for s in marginal])
        + 2 * math.log(2),
        "chi2": mean(joint) - mean(marginal) - mean([(s - mean(marginal)) ** 2 for s in marginal]) / 4,
    }


def draw(count, columns, seed=0, noise=0.5):
    generator = torch.Generator().manual_seed(seed)
    z1, noisy = torch.randn(2, count, columns, generator=generator, dtype=torch.float64)
    return z1, z1 + noise * noisy


def test_a_toy_case_by_hand():
    """Equal views, two orthogonal graphs, temperature 1/5: f is 5 on every pair, 0 on every negative."""
    z = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    expected = {
        "infonce": math.log(2) - math.log(1 + math.exp(-5)),
        "dv": 5.0,
        "kl": 5.0,
        "nwj": 5 - math.exp(-1),
        "js": -math.log(1 + math.exp(-5)) + math.log(2),
        "chi2": 5.0,
    }
    got = {name: value.item() for name, value in estimate(z, z).items()}
    assert got == pytest.approx(expected, rel=1e-12)
    assert slow(z.tolist(), z.tolist()) == pytest.approx(expected)


def test_a_toy_case_with_unequal_negatives_by_hand():
    """Critics across the views: pairs 1 and 0, negatives 0 and -1; one variance over both, not one per anchor."""
    z1 = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    z2 = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    got = estimate(z1, z2, temperature=1.0, symmetric=False)
    e = math.exp
    assert got["dv"].item() == pytest.approx(0.5 - math.log((1 + e(-1)) / 2), rel=1e-12)
    assert got["nwj"].item() == pytest.approx(0.5 - (e(-1) + e(-2)) / 2, rel=1e-12)
    assert got["chi2"].item() == pytest.approx(0.5 + 0.5 - 0.25 / 4, rel=1e-12)
    # Either anchor's pair beats its one negative by 1.
    assert got["infonce"].item() == pytest.approx(math.log(2) - math.log(1 + e(-1)), rel=1e-12)
    kept, lost = math.log(1 + e(-1)) + math.log(2), math.log(2) + math.log(1 + e(-1))
    assert got["js"].item() == pytest.approx(2 * math.log(2) - (kept + lost) / 2, rel=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize("engine", ["auto", "dense", "tiled"])
@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_equals_the_loops(negatives, symmetric, engine, temperature):
    for count, columns in ((2, 3), (3, 1), (7, 4)):
        z1, z2 = draw(count, columns, seed=count)
        own = {"temperature": temperature, "negatives": negatives, "symmetric": symmetric}
        got = estimate(z1, z2, engine=engine, **own)
        assert set(got) == NAMES
        assert all(value.dim() == 0 for value in got.values())
        expected = slow(z1.tolist(), z2.tolist(), **own)
        assert {name: value.item() for name, value in got.items()} == pytest.approx(expected, rel=1e-10, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), temperature=st.floats(0.05, 2), switches=st.sampled_from(SWITCHES))
def test_equals_the_loops_and_keeps_the_order_everywhere(data, temperature, switches):
    """Zero rows, equal rows, opposite rows; InfoNCE is capped, and dv = kl bounds nwj on any pairs."""
    count, columns = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 3))
    row = st.lists(st.integers(-8, 8), min_size=columns, max_size=columns)
    z1, z2 = (data.draw(st.lists(row, min_size=count, max_size=count)) for _ in range(2))
    own = {"temperature": temperature, "negatives": switches[0], "symmetric": switches[1]}
    got = estimate(torch.tensor(z1).double(), torch.tensor(z2).double(), **own)
    got = {name: value.item() for name, value in got.items()}
    assert got == pytest.approx(slow(z1, z2, **own), rel=1e-10, abs=1e-10)
    assert got["infonce"] <= math.log(1 + {"cross": count - 1, "all": 2 * count - 2}[switches[0]])
    assert got["dv"] == pytest.approx(got["kl"], rel=1e-10, abs=1e-10)
    assert got["dv"] >= got["nwj"] - 1e-9 * max(1, abs(got["nwj"]))


def test_nwj_touches_dv_where_the_mean_exponential_is_e():
    """log x <= x / e with equality at x = e: every negative has critic 1."""
    angles = torch.tensor([[0.0, 90.0], [30.0, 60.0]], dtype=torch.float64).deg2rad()
    z1, z2 = torch.stack([angles.cos(), angles.sin()], dim=2)
    got = estimate(z1, z2, temperature=0.5)
    assert got["nwj"].item() == pytest.approx(2 * math.cos(math.pi / 6) - 1, rel=1e-12)
    assert got["dv"].item() == pytest.approx(got["nwj"].item(), rel=1e-12)
    assert estimate(z1, z2, temperature=0.4)["dv"].item() > estimate(z1, z2, temperature=0.4)["nwj"].item() + 1e-3


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_infonce_is_the_cap_less_the_loss(negatives, symmetric):
    z1, z2 = draw(9, 4)
    own = {"temperature": 0.3, "negatives": negatives, "symmetric": symmetric}
    cap = math.log(1 + {"cross": 8, "all": 16}[negatives])
    got = estimate(z1, z2, **own)["infonce"].item()
    assert got == pytest.approx(cap - infonce(z1, z2, **own).item(), rel=1e-12)


def test_equal_cosines_carry_no_information():
    """The critic is one constant, k: every estimate is 0 but those that are off where k is not their optimum."""
    for fill, k in ((0.0, 0.0), (1.0, 2.0)):
        z = torch.full((5, 3), fill, dtype=torch.float64)
        got = {name: value.item() for name, value in estimate(z, z, temperature=0.5).items()}
        js = -loops.softplus(-k) - loops.softplus(k) + 2 * math.log(2)
        expected = {"infonce": 0, "dv": 0, "kl": 0, "nwj": k - math.exp(k - 1), "js": js, "chi2": 0}
        assert got == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_many_rows_in_tiles_and_low_temperatures():
    z1, z2 = draw(1100, 4)
    dense, tiled = (estimate(z1, z2, negatives="all", engine=engine) for engine in ("dense", "tiled"))
    for name in NAMES:
        torch.testing.assert_close(tiled[name], dense[name], rtol=1e-10, atol=1e-12)
    z1, z2 = draw(20, 3)
    expected = slow(z1.tolist(), z2.tolist(), temperature=0.005)
    for engine in ("dense", "tiled"):
        got = estimate(z1.float(), z2.float(), temperature=0.005, engine=engine)
        for name in NAMES - {"nwj"}:  # e^199 is no float32
            np.testing.assert_allclose(got[name].item(), expected[name], rtol=1e-4, atol=1e-4, err_msg=name)
