"""FlatNCE's claim as a test: the textbook InfoNCE loses its gradient to rounding, FlatNCE and this library's do not."""

import importlib.util
from pathlib import Path

import pytest
import torch

from graphcl.losses import explicit, flatnce, infonce

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
