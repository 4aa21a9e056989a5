"""Test `rince` against float64 reference loops, and in the limits q -> 0 (InfoNCE) and q = 1."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.losses import infonce, rince
from tests.losses import loops


def term(positive, negatives, temperature=0.2, q=0.5, lam=0.01):
    """Return -e^{q s+} / q + (lam (e^{s+} + sum_j e^{s_j}))^q / q."""
    total = math.fsum(math.exp(c / temperature) for c in [positive, *negatives])
    return ((lam * total) ** q - math.exp(q * positive / temperature)) / q


batch = loops.of_cosines(term)
SETTINGS = [
    {},
    {"temperature": 0.5, "q": 1.0, "lam": 0.3},
    {"temperature": 0.1, "q": 0.1, "lam": 1.0},
    {"temperature": 0.3, "q": 0.6, "lam": 0.05},
]
RANDOM = {"q": st.floats(0.01, 1), "lam": st.floats(0.001, 1), "temperature": st.floats(0.08, 2)}
SMOOTH = [{"q": 0.4, "lam": 0.2}]
RANGES = {"q": "(0, 1]", "lam": "(0, 1]"}


def tolerance(q, temperature, **_):
    """Return an absolute tolerance relative to e^{q / temperature} / q, as two large terms can cancel."""
    return 1e-11 * math.exp(q / temperature) / q


def test_by_hand(at_cosines):
    """e^s is 4 for the positive, and 4 and 1 for the negatives. With q = 1/2, L = -2 * 2 + 2 * sqrt(9 lam)."""
    t = 0.5
    cosines = [math.log(4) * t, math.log(4) * t, 0.0]
    for lam, expected in ((0.25, -4 + 2 * 1.5), (1.0, -4 + 2 * 3), (1 / 9, -2.0)):
        assert term(cosines[0], cosines[1:], t, lam=lam) == pytest.approx(expected, rel=1e-14)
        got = rince(*at_cosines(cosines[0], cosines[1:]), temperature=t, lam=lam, reduction="none")
        assert got[0].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
@pytest.mark.parametrize("lam", [0.01, 1.0])
def test_a_small_q_tends_to_infonce(views, gradients, negatives, symmetric, lam):
    """The loss is InfoNCE + log lam + O(q), since (x^q - 1) / q = log x + O(q)."""
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric}
    limit, slope = (
        infonce(z1, z2, reduction="none", **common) + math.log(lam),
        gradients(lambda a, b: infonce(a, b, **common), z1, z2),
    )
    errors = []
    for q in (1e-3, 1e-4, 1e-5):
        own = {"q": q, "lam": lam, **common}
        difference = gradients(lambda a, b: rince(a, b, **own), z1, z2) - slope  # noqa: B023 (called at once)
        errors.append([(rince(z1, z2, reduction="none", **own) - limit).norm().item(), np.linalg.norm(difference)])
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.05)
    assert errors[-1][0] < 0.01


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_single_precision_up_to_the_limit(at_cosines, engine):
    """At q / t = 59, e^{1 / t} overflows float32, but its power q does not."""
    z1, z2 = at_cosines(0.95, [1.0, 0.2, -0.5], dtype=torch.float32)
    z2.requires_grad_()
    value = rince(z1, z2, temperature=0.5 / 59, engine=engine, reduction="none")[0]
    value.backward()
    assert value.item() == pytest.approx(term(0.95, [1.0, 0.2, -0.5], 0.5 / 59), rel=1e-3)
    assert torch.isfinite(z2.grad).all()


@pytest.mark.parametrize(("q", "temperature"), [(0.5, 0.5 / 61), (1.0, 0.01), (0.1, 0.001)])
def test_powers_that_would_overflow_are_refused(views, q, temperature):
    with pytest.raises(InputError, match="`q`") as caught:
        rince(*views(3, 2), q=q, temperature=temperature)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("q", [1e-8, 1e-6, 1.0])
def test_single_precision_at_the_ends(views, q):
    """A small q causes no cancellation, and the largest allowed q / temperature no overflow."""
    z1, z2 = views(6, 3)
    exact, single = rince(z1, z2, q=q), rince(z1.float(), z2.float(), q=q)
    assert single.item() == pytest.approx(exact.item(), rel=1e-4)
    ones = torch.ones(2000, 4)
    assert torch.isfinite(rince(ones, ones, q=1.0, lam=1.0, temperature=1 / 60))
