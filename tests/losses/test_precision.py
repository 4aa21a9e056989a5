"""FlatNCE's claim as a test: the textbook InfoNCE loses its gradient to rounding, FlatNCE and this library's do not.

And every loss on half-precision rows at the ends of what these can hold.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

from graphcl.losses import explicit, flatnce, infonce
from graphcl.registry import losses

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "precision.py"


@pytest.fixture(scope="module")
def figure():
    spec = importlib.util.spec_from_file_location("figure_precision", FIGURE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_float32(figure):
    """The shape that NumPy gives: 2e-5 at a gap of 10, 7e-3 at 16, noise at 20; FlatNCE stays exact."""
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
    """Through the library's own functions, as float32 projections: temperature 0.04, so gaps of up to 50."""
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(50, 8, generator=generator, dtype=torch.float64)
    positives = anchors + 0.05 * torch.randn(50, 8, generator=generator, dtype=torch.float64)
    negatives = torch.randn(15, 8, generator=generator, dtype=torch.float64)

    def direction(dtype):
        rows = anchors.to(dtype, copy=True).requires_grad_()
        # Each anchor's gradient by itself, whatever its size: InfoNCE's is e^-20 of FlatNCE's, and as exact.
        loss.terms(explicit(rows, positives.to(dtype), negatives.to(dtype)), temperature=0.04).sum().backward()
        return torch.nn.functional.normalize(rows.grad.double(), dim=1, eps=1e-300)

    assert (direction(torch.float32) - direction(torch.float64)).norm(dim=1).median() < 1e-5


# -- every loss, at the ends of what half precision holds --------------------------------------------------------------


def rows(case):
    """Two views of six rows; float16 holds 6e4 but not 1e5, and 1e-7 only as the second smallest number there is."""
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


def value_and_gradients(name, z1, z2, autocast=None):
    z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
    labels = {"labels": torch.arange(6)} if "labels" in losses.arguments(name).tensors else {}
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        value = losses[name](z1, z2, **labels)
    value.backward()
    return value.detach(), *(torch.zeros_like(z) if z.grad is None else z.grad for z in (z1, z2))


def check_near(got, want):
    """The float32 value; the float32 gradient to the precision of the rows' type, infinite where that holds no more.

    A cosine of a row of norm 1e-7 moves 10^7 times as fast as the row, which float16 cannot say. Infinity, not the
    largest number, is what a gradient scaler looks for, so the gradient is not cut.
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
        for autocast in (None, torch.bfloat16, torch.float16):
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
