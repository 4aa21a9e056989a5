"""The references are themselves under test: hand-made values, and analytic against numerical gradients."""

import math

import numpy as np
import pytest

H = 1e-6


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
    """Differences of xi / sg(xi) with the denominator frozen give back the slopes of the log form."""
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
