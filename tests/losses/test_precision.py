"""Test rounding errors of gradients in float32, and every loss on half-precision input.

FlatNCE claims that the textbook form of InfoNCE loses its gradient to rounding. The losses of this library must not.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

from graphcl.errors import InputError
from graphcl.losses import explicit, flatnce, infonce
from graphcl.registry import losses
from tests.losses.loops import needed

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "precision.py"


@pytest.fixture(scope="module")
def figure():
    spec = importlib.util.spec_from_file_location("figure_precision", FIGURE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_float32(figure):
    """The relative error of textbook InfoNCE is about 2e-5 at a gap of 10, 7e-3 at 16, and above 1 at 20."""
    near, far, beyond = (figure.errors(gap, torch.float32) for gap in (10, 16, 20))
    assert 1e-6 < near["InfoNCE, textbook"] < 1e-4
    assert 1e-3 < far["InfoNCE, textbook"] < 5e-2
    assert beyond["InfoNCE, textbook"] > 1
    for found in (near, far, beyond):
        assert found["FlatNCE"] < 1e-6
        assert found["InfoNCE, softplus form"] < 1e-6


def test_bfloat16(figure):
    at_ten = figure.errors(10, torch.bfloat16)
    assert at_ten["InfoNCE, textbook"] > 1
    assert figure.errors(20, torch.bfloat16)["FlatNCE"] < 1e-2
    assert at_ten["InfoNCE, softplus form"] < 1e-2


@pytest.mark.parametrize("loss", [infonce, flatnce], ids=["infonce", "flatnce"])
def test_the_registered_losses_keep_their_gradient_at_a_confident_anchor(loss):
    """Test float32 projections at temperature 0.04, with gaps of up to 50 between the positive and the negatives."""
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(50, 8, generator=generator, dtype=torch.float64)
    positives = anchors + 0.05 * torch.randn(50, 8, generator=generator, dtype=torch.float64)
    negatives = torch.randn(15, 8, generator=generator, dtype=torch.float64)

    def direction(dtype):
        rows = anchors.to(dtype, copy=True).requires_grad_()
        # Compare directions, as the gradient of InfoNCE is smaller than that of FlatNCE by a factor e^-20.
        loss.terms(explicit(rows, positives.to(dtype), negatives.to(dtype)), temperature=0.04).sum().backward()
        return torch.nn.functional.normalize(rows.grad.double(), dim=1, eps=1e-300)

    assert (direction(torch.float32) - direction(torch.float64)).norm(dim=1).median() < 1e-5


# -- where float32 used to lose the gradient ---------------------------------------------------------------------------


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def confident(count=8):
    """Return two views with positive cosines near 1 and negative cosines near 0."""
    return torch.eye(count) + 0.01 * noise(count, count), torch.eye(count)


def close_negative(distance):
    """Return two views in which each row of the second is at `distance` from another graph's row of the first."""
    z1 = torch.nn.functional.normalize(noise(6, 16))
    return z1, z1.roll(1, 0) + distance * torch.nn.functional.normalize(noise(6, 16).flip(1))


def at(*cosines):
    """Return two views in which the first anchor has positive cosine 0.4 and the given negative cosines."""
    wanted = torch.tensor([0.4, *cosines])
    z2 = torch.cat([wanted[:, None], torch.diag((1 - wanted.square()).sqrt())], dim=1)
    return torch.eye(len(wanted) + 1)[:1].repeat(len(wanted), 1), z2


def opposite():
    """Return two views with positive cosines near -1 and one negative cosine near 1 per anchor."""
    z = noise(3, 5)
    return torch.cat([z, -z]), torch.cat([-z, z]) + 0.1 * noise(6, 5)


LOST = [
    *[("rince", {"q": 1.0, "temperature": 1 / rate}, opposite(), 1e-5) for rate in (45, 60)],
    *[("rince", {"lam": 1.0, "temperature": t}, confident(), 1e-5) for t in (0.05, 0.02)],
    *[("supcon", {"labels": torch.arange(8), "temperature": t}, confident(), 1e-5) for t in (0.05, 0.03)],
    *[("contrastive", {"normalize": normalize}, close_negative(distance), 1e-6 + 1e-7 / distance * normalize)
      for distance in (1e-2, 1e-3, 1e-4) for normalize in (False, True)],
    ("mean_variance", {"temperature": 0.002}, noise(2, 2, 4), 1e-6),
    *[("adnce_auto", {"rule": rule, "share": 0.66, "symmetric": False}, at(0.5, 0.5 - gap, -0.3), 1e-3)
      for rule in ("tilt", "radius") for gap in (1e-1, 1e-2, 1e-3)],
]  # fmt: skip


@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(("name", "own", "views", "tolerance"), LOST, ids=lambda value: str(value)[:40])
def test_float32_keeps_value_and_gradient(name, own, views, tolerance, engine):
    found = []
    for dtype in (torch.float32, torch.float64):
        z1, z2 = (z.to(dtype, copy=True).requires_grad_() for z in views)
        value = losses[name](z1, z2, engine=engine, **own)
        value.backward()
        found.append([value.detach().double(), z1.grad.double(), z2.grad.double()])
    for got, want in zip(*found, strict=True):
        assert (got - want).norm() <= tolerance * want.norm()


@pytest.mark.parametrize("name", [name for name in losses if "temperature" in losses.arguments(name).defaults])
def test_the_lowest_temperature(name):
    """`rince` has a higher limit, as its value overflows."""
    if name != "rince":
        found = value_and_gradients(name, *noise(2, 6, 5), temperature=1e-6)
        assert all(bool(each.isfinite().all()) for each in found)
    with pytest.raises(InputError, match=r"^`temperature` must be in \[1e-6, inf\), got 1e-40\.$"):
        losses[name](*noise(2, 6, 5), temperature=1e-40)


@pytest.mark.parametrize("size", [1e-13, 1e-41])
@pytest.mark.parametrize("name", losses)
def test_rows_of_almost_nothing_count_as_zero(name, size):
    """A gradient of 1 / size would overflow, or stop Adam from learning."""
    z1, z2 = noise(2, 6, 5)
    found, zero = ([each.clone() for each in (z1, z2)] for _ in range(2))
    for some, factor in ((found, size), (zero, 0.0)):
        some[0][2] *= factor
        some[1][4] *= factor
    for got, want in zip(value_and_gradients(name, *found), value_and_gradients(name, *zero), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


# -- every loss, at the ends of what half precision holds --------------------------------------------------------------


def rows(case):
    """Return two views of six rows. The extreme cases stay within float16, from about 1e-7 to 6e4."""
    z1, z2 = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    if case == "large":
        return 6e4 * z1.sign(), 6e4 * z2.sign()
    if case == "large-and-equal":
        return torch.full((6, 5), 6e4), torch.full((6, 5), 6e4)
    if case == "small":
        return 1e-7 * z1, 1e-7 * z2
    if case == "mixed":
        return z1 * torch.tensor([1.5e4, 1.0, 1e-7, 1.0, 100.0, 1e-3])[:, None], z2
    if case == "zeros":
        return torch.zeros(6, 5), torch.zeros(6, 5)
    if case == "a-zero-row":
        return z1.index_fill(0, torch.tensor([2]), 0.0), z2
    if case == "equal":
        return z1[:1].repeat(6, 1), z1[:1].repeat(6, 1)
    if case == "same-views":
        return z1, z1.clone()
    assert case == "opposite"
    return torch.cat([z1[:3], -z1[:3]]), -z1


def value_and_gradients(name, z1, z2, autocast=None, **own):
    z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
    others = needed(name, z1)
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        value = losses[name](z1, z2, **others, **own)
    value.backward()
    return value.detach(), *(torch.zeros_like(z) if z.grad is None else z.grad for z in (z1, z2))


def check_near(got, want):
    """Assert that a half-precision result is close to the float32 result.

    The value must equal the float32 value. The gradient is compared in the dtype of the rows. Where it overflows this
    dtype it must be infinite, so that a gradient scaler detects the overflow.
    """
    assert got[0].dtype == torch.float32
    torch.testing.assert_close(got[0], want[0], rtol=1e-4, atol=1e-5)
    assert bool(got[0].isfinite())
    for half, single in zip(got[1:], want[1:], strict=True):
        rounded, held = single.to(half.dtype), torch.finfo(half.dtype)
        assert torch.equal(half.isinf(), rounded.isinf())
        assert torch.equal(half[half.isinf()], rounded[half.isinf()])
        finite = half.isfinite()
        assert bool((finite | half.isinf()).all())
        error = (half.double() - single.double()).abs()[finite]
        assert bool((error <= (2 * held.eps + 1e-3) * single.abs().max() + 2 * held.smallest_normal).all())


CASES = ["large", "large-and-equal", "small", "mixed", "zeros", "a-zero-row", "equal", "same-views", "opposite"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", losses)
def test_half_precision(name, dtype):
    for case in CASES:
        z1, z2 = (z.to(dtype) for z in rows(case))
        want = value_and_gradients(name, z1.float(), z2.float())
        for autocast in (None, torch.float16 if dtype is torch.bfloat16 else torch.bfloat16):
            try:
                check_near(value_and_gradients(name, z1, z2, autocast), want)
            except AssertionError as error:
                raise AssertionError(f"{case}, autocast {autocast}: {error}") from None


def test_the_check_notices_a_loss_that_computes_in_half_precision():
    z1, z2 = (z.half() for z in rows("large"))
    want = value_and_gradients("infonce", z1.float(), z2.float())
    for wrong in (lambda each: each * 1.01, lambda each: each + float("nan"), lambda each: each + float("inf")):
        for place in range(3):
            got = list(value_and_gradients("infonce", z1, z2))
            got[place] = wrong(got[place] + 1e-3)
            with pytest.raises(AssertionError):
                check_near(got, want)
