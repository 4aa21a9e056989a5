"""Test `flatnce` against float64 reference loops: three forms with one gradient, and precision in float32."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import flatnce
from tests.losses import test_dcl, test_infonce

FORMS = ["log", "ratio", "released"]


def batch(rows, frozen, temperature=0.2, form="log"):
    """Return v (form `log`), e^{v - sg(v)} or e^{v - sg(v)} - 1 + sg(InfoNCE); v is DCL, sg(...) is of `frozen`."""
    gaps = test_dcl.batch(rows, rows, temperature=temperature)
    if form == "log":
        return gaps
    constants = test_dcl.batch(frozen, frozen, temperature=temperature)
    values = test_infonce.batch(frozen, frozen, temperature=temperature) if form == "released" else [1.0] * len(rows)
    terms = zip(rows, gaps, constants, values, strict=True)
    return [math.exp(gap - kept) - 1 + value if row[2] else 0.0 for row, gap, kept, value in terms]


SETTINGS = [{"form": form, "temperature": t} for form in FORMS for t in (0.05, 1.0)]
RANDOM = {"form": st.sampled_from(FORMS)}
SMOOTH = [{}]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "temperature", "tolerance"),
    [
        *((torch.float32, temperature, 2e-5) for temperature in (0.1, 0.05, 0.02)),
        # The only error is the rounding of the gradient to the dtype of the input, 2^-9 or 2^-12.
        *((dtype, 0.05, 5e-3) for dtype in (torch.bfloat16, torch.float16)),
    ],
)
def test_low_precision_keeps_the_gradient_where_the_positive_has_won(
    gradients, at_cosines, form, dtype, temperature, tolerance
):
    """At gaps s+ - max s_j of 12 to 60, InfoNCE's derivative p+ - 1 is lost to rounding; FlatNCE's is -1 / tau."""
    views = at_cosines(0.9, np.linspace(-0.95, -0.3, 15), dtype=dtype)
    got, expected = (
        gradients(lambda a, b: flatnce(a, b, temperature=temperature, form=form, reduction="none")[0], *some)
        for some in (views, [z.double() for z in views])
    )
    assert np.linalg.norm(got - expected) < tolerance * np.linalg.norm(expected)
    # The distribution over the negatives must be correct too.
    if dtype is torch.float32:
        np.testing.assert_allclose(
            *(np.linalg.norm(each[1, 1:], axis=1) for each in (got, expected)), rtol=1e-4, atol=1e-12
        )
