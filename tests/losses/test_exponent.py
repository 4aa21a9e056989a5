"""Test exponents against numpy's polynomials: value, derivative and sum."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

from graphcl.errors import InputError
from graphcl.losses.engine.exponent import Exponent, gaussian, linear

C = np.linspace(-1.02, 1.02, 41)
SMALLEST = float(np.finfo(np.float32).tiny)

coefficients = st.lists(st.floats(-10, 10), max_size=5).map(tuple)
exponents = st.builds(Exponent, coefficients, coefficients, st.floats(-2, 2))


def polynomial(part, center):
    """Return the polynomial in (c - `center`) with coefficients `part` as a numpy polynomial in c."""
    return Polynomial(part or (0.0,))(Polynomial([-center, 1.0]))


def value_of(exponent):
    return polynomial(exponent.free, exponent.center) + polynomial(exponent.frozen, exponent.center)


def evaluate(exponent, at=C):
    """Return the values of `exponent` at the similarities `at`, and its derivatives."""
    c = torch.tensor(at, requires_grad=True)
    value = exponent(c)
    if not value.requires_grad:
        return value.numpy(), np.zeros_like(at)
    return value.detach().numpy(), torch.autograd.grad(value.sum(), c)[0].numpy()


def check(exponent, value, slope, scale):
    got, gradient = evaluate(exponent)
    np.testing.assert_allclose(got, value(C), rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(gradient, slope(C), rtol=0, atol=1e-12 * scale)


def size(*those):
    """Return the largest coefficient times power in the exponents, which sets the scale of rounding errors."""
    every = [abs(x) * 5.1**k for each in those for part in (each.free, each.frozen) for k, x in enumerate(part)]
    return 10 * max(1.0, *every) if every else 1.0


# -- value and slope ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(exponent=exponents)
def test_value_and_slope(exponent):
    slope = polynomial(exponent.free, exponent.center).deriv()
    check(exponent, value_of(exponent), slope, size(exponent))
    # `slope` uses the same center.
    np.testing.assert_allclose(
        polynomial(exponent.slope, exponent.center)(C), slope(C), rtol=0, atol=1e-12 * size(exponent)
    )
    np.testing.assert_allclose(
        polynomial(exponent.total, exponent.center)(C), value_of(exponent)(C), rtol=0, atol=1e-12 * size(exponent)
    )
    assert exponent.degree == max(len(exponent.free), len(exponent.frozen)) - 1


def test_dtype_and_shape_stay():
    c = torch.linspace(-1, 1, 12).view(3, 4)
    for exponent in (linear(5.0), gaussian(0.7, 0.5), gaussian(0.7, 0.5, frozen=False), Exponent(()), Exponent((1.0,))):
        assert exponent(c).dtype == c.dtype
        assert exponent(c).shape == (3, 4)


# -- linear and Gaussian exponents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "sigma"), [(-0.5, 1e-3), (0.7, 0.1), (1.5, 30.0)])
def test_gaussian(mu, sigma):
    expected = -((C - mu) ** 2) / (2 * sigma**2)
    for frozen in (True, False):
        value, slope = evaluate(gaussian(mu, sigma, frozen=frozen))
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(slope, 0 if frozen else (mu - C) / sigma**2, rtol=1e-13, atol=1e-14)
    assert torch.equal(gaussian(mu, sigma)(torch.tensor(C)), gaussian(mu, sigma, frozen=True)(torch.tensor(C)))


def test_gaussians_of_extreme_width():
    c = torch.tensor(C)
    assert (gaussian(0.7, math.inf)(c) == 0).all()
    assert gaussian(0.7, math.inf).is_small
    for sigma in (1e-20, 1e-160, 1e-300):
        narrow = gaussian(0.7, sigma)
        assert torch.isfinite(narrow(c)).all()
        assert torch.isfinite(narrow(c.float())).all()
        assert not narrow.is_small


def test_a_narrow_gaussian_does_not_cancel():
    """In powers of c itself, the value at 0.7001 would be a difference of numbers near 2.5e7."""
    both = linear(5.0) + gaussian(0.7, 1e-4)
    got = both(torch.tensor([0.7001], dtype=torch.float64)).item()
    assert got == pytest.approx(5 * 0.7001 - 0.5, abs=1e-11)
    single = both(torch.tensor([0.7001], dtype=torch.float32)).item()
    assert single == pytest.approx(5 * 0.7001 - 0.5, abs=3e-3)  # float32 rounds 0.7001


# -- sums --------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(a=exponents, b=exponents)
def test_the_sum_is_that_of_values_and_slopes(a, b):
    both = a + b
    value = value_of(a) + value_of(b)
    slope = polynomial(a.free, a.center).deriv() + polynomial(b.free, b.center).deriv()
    check(both, value, slope, size(a, b))
    check(b + a, value, slope, size(a, b))
    assert both.degree == max(a.degree, b.degree)
    assert both.center == (b if b.degree > a.degree else a).center


# -- small exponents ---------------------------------------------------------------------------------------------------


def on_the_grid(exponent):
    """Return the largest |P| on multiples of 1/64, up to 1/64 beyond the range of a cosine."""
    at = np.arange(-65, 66) / 64 - exponent.center
    return max(abs(math.fsum(x * c**k for k, x in enumerate(exponent.total))) for c in at)


@settings(max_examples=60, deadline=None)
@given(exponent=exponents)
def test_small_is_below_60_everywhere(exponent):
    largest = on_the_grid(exponent)
    if not math.isclose(largest, 60, rel_tol=1e-9):
        assert exponent.is_small == (largest < 60)
    # Check a finer grid, and that the float32 sum is finite.
    fine = np.abs(value_of(exponent)(np.linspace(-1, 1, 4001))).max()
    if exponent.is_small:
        assert fine < 61
        with np.errstate(over="raise"):
            heights = np.exp(np.float32([fine, -fine]))
            assert np.isfinite(np.float32(1e6) * heights[0])
            assert heights[1] / 1e6 > SMALLEST
    elif fine < 58:
        # Rounding can give a cosine slightly above 1.
        assert on_the_grid(exponent) > 60 - 1e-9


def test_usual_temperatures_are_small_and_cold_ones_are_not():
    assert linear(1 / 0.05).is_small
    assert not linear(1 / 0.005).is_small
    assert (linear(1 / 0.2) + gaussian(0.7, 1.0)).is_small
    assert not gaussian(0.7, 0.01).is_small
    assert not Exponent((0.0, math.inf)).is_small
    assert not Exponent((math.nan,)).is_small


# -- messages and identity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [((0.0,) * 6,), ((), (1.0,) * 6), ((1.0,), (0.0,) * 7)])
def test_powers_above_the_fourth(parts):
    with pytest.raises(InputError, match="must have degree 4 or less, got ") as caught:
        Exponent(*parts)
    assert "\n" not in str(caught.value)
    assert str(parts[-1]) in str(caught.value)
