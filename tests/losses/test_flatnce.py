"""Test `flatnce` against float64 reference loops: three forms with one gradient, and precision in float32."""

import numpy as np
import pytest
import torch

from graphcl.losses import dcl, flatnce, infonce
from tests.losses.loops import SWITCHES

SMOOTH = [{}]
FORMS = ["log", "ratio", "released"]


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_each_form_prints_its_own_value(views, negatives, symmetric):
    z1, z2 = views(6, 3)
    common = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
    torch.testing.assert_close(flatnce(z1, z2, **common), dcl(z1, z2, **common), rtol=1e-12, atol=1e-12)
    ratio = flatnce(z1, z2, form="ratio", **common)
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=1e-15)
    released = flatnce(z1, z2, form="released", **common)
    torch.testing.assert_close(released, infonce(z1, z2, **common), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_every_form_has_dcls_gradient_and_not_infonces(views, gradients, form, negatives, symmetric):
    """Masked similarities must not contribute e^0 to the sum, which would give the gradient of InfoNCE."""
    z1, z2 = views(5, 3)
    common = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
    for anchor in range(10 if symmetric else 5):
        flat = gradients(lambda a, b, i=anchor: flatnce(a, b, form=form, **common)[i], z1, z2)
        decoupled = gradients(lambda a, b, i=anchor: dcl(a, b, **common)[i], z1, z2)
        coupled = gradients(lambda a, b, i=anchor: infonce(a, b, **common)[i], z1, z2)
        np.testing.assert_allclose(flat, decoupled, rtol=1e-12, atol=1e-12)
        assert np.abs(flat - coupled).max() > 1e-6


def test_the_log_form_may_be_negative(at_cosines):
    z1, z2 = at_cosines(0.9, [-0.5, -0.4])
    assert flatnce(z1, z2, reduction="none")[0] < 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [0.1, 0.05, 0.02])
def test_float32_keeps_the_gradient_where_the_positive_has_won(reference, gradients, at_cosines, form, temperature):
    """At gaps s+ - max s_j of 12 to 60, InfoNCE's derivative p+ - 1 is lost to rounding; FlatNCE's is -1 / tau."""
    negatives = np.linspace(-0.95, -0.3, 15)
    z1, z2 = at_cosines(0.9, negatives)
    z1, z2 = z1.float(), z2.float()

    def only_first(a, b):
        return flatnce(a, b, temperature=temperature, form=form, reduction="none")[0]

    got = gradients(only_first, z1, z2)
    expected = reference.gradient(reference.flatnce, z1, z2, temperature=temperature, form=form, only=0)
    assert np.linalg.norm(got - expected) < 2e-5 * np.linalg.norm(expected)
    # The distribution over the negatives must be correct too.
    np.testing.assert_allclose(
        np.linalg.norm(got[1, 1:], axis=1), np.linalg.norm(expected[1, 1:], axis=1), rtol=1e-4, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_half_precision_inputs_keep_the_gradient_too(reference, gradients, at_cosines, dtype, form):
    z1, z2 = at_cosines(0.9, np.linspace(-0.95, -0.3, 15), dtype=dtype)
    got = gradients(lambda a, b: flatnce(a, b, temperature=0.05, form=form, reduction="none")[0], z1, z2)
    expected = reference.gradient(reference.flatnce, z1.double(), z2.double(), temperature=0.05, form=form, only=0)
    # The only error is the rounding of the gradient to the dtype of the input, 2^-9 or 2^-12.
    assert np.linalg.norm(got - expected) < 5e-3 * np.linalg.norm(expected)
