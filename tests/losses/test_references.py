"""Test the references with analytic gradients by hand and by numerical gradients, and compare the losses with them."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.registry import losses
from tests.losses.loops import SWITCHES

H = 1e-6
FORMS = ["log", "ratio", "released"]
SHAPES = {
    "positive_in_denominator": st.booleans(),
    "negative_reduction": st.sampled_from(["sum", "mean"]),
    "detach_weight": st.booleans(),
}
RANDOM = {
    "infonce": {},
    "dcl": {},
    "flatnce": {"form": st.sampled_from(FORMS)},
    "adnce": {"mu": st.floats(-1, 1.5), "sigma": st.one_of(st.floats(0.02, 3), st.just(math.inf)), **SHAPES},
}
GAUSSIANS = [(0.2, 0.7, 1.0), (0.1, 0.2, 0.15), (1.0, -0.5, 0.4), (0.05, 1.5, math.inf)]
SETTINGS = [(name, {"temperature": t}) for name in ("infonce", "dcl") for t in (0.05, 0.2, 1.0)]
SETTINGS += [("flatnce", {"form": form, "temperature": t}) for form in FORMS for t in (0.05, 1.0)]
SETTINGS += [
    ("adnce", dict(zip(["temperature", "mu", "sigma", *SHAPES], [*gaussian, *shape], strict=True)))
    for gaussian in GAUSSIANS
    for shape in product([False, True], ["sum", "mean"], [True, False])
]


def test_anchors_by_hand(reference):
    assert reference.anchors(2, "cross", symmetric=False) == [
        ((0, 0), (1, 0), [(1, 1)]),
        ((0, 1), (1, 1), [(1, 0)]),
    ]
    assert reference.anchors(2, "all", symmetric=True) == [
        ((0, 0), (1, 0), [(1, 1), (0, 1)]),
        ((0, 1), (1, 1), [(1, 0), (0, 0)]),
        ((1, 0), (0, 0), [(0, 1), (1, 1)]),
        ((1, 1), (0, 1), [(0, 0), (1, 0)]),
    ]


def test_values_by_hand(reference):
    e = math.exp
    assert reference.infonce(0.5, [0.1, -0.2], 0.5)[0] == pytest.approx(-math.log(e(1) / (e(1) + e(0.2) + e(-0.4))))
    assert reference.dcl(0.5, [0.1, -0.2], 0.5)[0] == pytest.approx(-math.log(e(1) / (e(0.2) + e(-0.4))))
    assert reference.flatnce(0.5, [0.1, -0.2], 0.5)[0] == pytest.approx(math.log(e(0.2 - 1) + e(-0.4 - 1)))
    near, far = e(-0.18), e(-0.405)  # exp(-(c - 0.7)^2 / 2) at c = 0.1 and c = -0.2
    weighed = (near * e(0.2) + far * e(-0.4)) / ((near + far) / 2)
    assert reference.adnce(0.5, [0.1, -0.2], 0.5)[0] == pytest.approx(-math.log(e(1) / weighed))
    assert reference.adnce(0.5, [0.1, -0.2], 0.5, negative_reduction="mean")[0] == pytest.approx(
        -math.log(e(1) / (weighed / 2))
    )
    assert reference.adnce(0.5, [0.1, -0.2], 0.5, positive_in_denominator=True)[0] == pytest.approx(
        -math.log(e(1) / (e(1) + weighed))
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("infonce", {}),
        ("dcl", {}),
        ("flatnce", {}),
        ("adnce", {"sigma": 0.4, "detach_weight": False}),
        ("adnce", {"sigma": math.inf}),
        (
            "adnce",
            {
                "sigma": 0.4,
                "detach_weight": False,
                "positive_in_denominator": True,
                "negative_reduction": "mean",
            },
        ),
    ],
)
@pytest.mark.parametrize("negatives", ["cross", "all"])
def test_slopes_agree_with_finite_differences(reference, name, arguments, negatives):
    loss = getattr(reference, name)
    z = np.random.default_rng(0).normal(size=(2, 3, 2))
    common = {"temperature": 0.4, "negatives": negatives, **arguments}
    analytic = reference.gradient(loss, *z, **common)
    for index in np.ndindex(*z.shape):
        step = np.zeros_like(z)
        step[index] = H
        up, down = (reference.terms(loss, *(z + sign * step), **common).mean() for sign in (1, -1))
        assert analytic[index] == pytest.approx((up - down) / (2 * H), rel=1e-6, abs=1e-7)


def test_the_ratio_form_has_value_one_and_flatnces_slopes(reference):
    """Finite differences of xi / sg(xi), with sg(xi) constant, give the derivatives of the form `log`."""
    positive, negatives, temperature = 0.3, [0.1, -0.6, 0.5], 0.2
    frozen = (positive, negatives)
    assert reference.flatnce_ratio(positive, negatives, *frozen, temperature) == 1
    _, slope, slopes = reference.flatnce(positive, negatives, temperature)
    for index, expected in enumerate([slope, *slopes]):
        moved = [
            reference.flatnce_ratio(
                positive + sign * H * (index == 0),
                [c + sign * H * (index == j + 1) for j, c in enumerate(negatives)],
                *frozen,
                temperature,
            )
            for sign in (1, -1)
        ]
        assert (moved[0] - moved[1]) / (2 * H) == pytest.approx(expected, rel=1e-6)


def test_frozen_weights_slopes_agree_with_differences_of_the_frozen_formula(reference):
    positive, negatives, temperature, mu, sigma = 0.3, [0.1, -0.6, 0.5], 0.2, 0.4, 0.3
    weights = reference.gaussian_weights(negatives, mu, sigma)
    assert math.fsum(weights) / len(weights) == pytest.approx(1)
    _, _, slopes = reference.adnce(positive, negatives, temperature, mu=mu, sigma=sigma)

    def value(cosines):
        return math.log(
            math.fsum(w * math.exp((c - positive) / temperature) for w, c in zip(weights, cosines, strict=True))
        )

    for index, expected in enumerate(slopes):
        up, down = (value([c + sign * H * (j == index) for j, c in enumerate(negatives)]) for sign in (1, -1))
        assert (up - down) / (2 * H) == pytest.approx(expected, rel=1e-6)


# -- the losses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANDOM)
def test_defaults(reference, views, name):
    z1, z2 = views(5, 3)
    common = {"temperature": 0.2, "negatives": "cross", "symmetric": True}
    common |= {"mu": 0.7, "sigma": 1.0} if name == "adnce" else {}
    expected = reference.terms(getattr(reference, name), z1, z2, **common).mean()
    assert losses[name](z1, z2).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", RANDOM)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_values_at_random(reference, name, data):
    z1, z2 = data.draw(reference.projections())
    own = data.draw(reference.settings_common()) | {key: data.draw(each) for key, each in RANDOM[name].items()}
    expected = reference.terms(getattr(reference, name), z1, z2, **own)
    z1, z2 = torch.tensor(z1), torch.tensor(z2)
    close = {"rtol": 1e-10, "atol": 1e-10} if name == "adnce" else {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(losses[name](z1, z2, reduction="none", **own), expected, **close)
    np.testing.assert_allclose(losses[name](z1, z2, **own), expected.mean(), **close)


@pytest.mark.parametrize(("name", "own"), SETTINGS, ids=str)
@pytest.mark.parametrize(("count", "columns"), [(2, 1), (3, 2), (7, 5)])
def test_value_and_gradient(reference, views, gradients, name, own, count, columns):
    z1, z2 = views(count, columns, seed=count + columns)
    slow, close = getattr(reference, name), 1e-10 if name == "adnce" else 1e-11
    for negatives, symmetric in SWITCHES:
        common = {"negatives": negatives, "symmetric": symmetric, **own}
        expected = reference.terms(slow, z1, z2, **common)
        np.testing.assert_allclose(losses[name](z1, z2, reduction="none", **common), expected, rtol=close, atol=close)
        got = gradients(lambda a, b: losses[name](a, b, **common), z1, z2)  # noqa: B023 (called at once)
        np.testing.assert_allclose(got, reference.gradient(slow, z1, z2, **common), rtol=1e-10, atol=1e-10)
