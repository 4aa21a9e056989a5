"""Slow float64 references of the losses with analytic gradients: plain loops over lists, without torch.

The cosine of an anchor with its positive and the cosines with its negatives are the arguments of a reference. It
returns

    (value, d value / d positive cosine, [d value / d negative cosine, ...]).

`gradient` applies the chain rule of the cosine, so gradients with respect to projections do not rely on autograd.
"""

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NEGATIVES = ("cross", "all")


# -- the losses, for one anchor ----------------------------------------------------------------------------------------


def log_sum_exp(values):
    highest = max(values)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in values))


def softmax(values):
    total = log_sum_exp(values)
    return [math.exp(value - total) for value in values]


def infonce(positive, negatives, temperature):
    """Return value and derivatives of -s+ + log(e^{s+} + sum_j e^{s_j})."""
    logits = [positive / temperature, *(c / temperature for c in negatives)]
    p = softmax(logits)
    # p+ - 1 is the negative sum of the other probabilities; the sum avoids cancellation.
    slope = -math.fsum(p[1:]) / temperature
    return log_sum_exp(logits) - logits[0], slope, [share / temperature for share in p[1:]]


def dcl(positive, negatives, temperature):
    """Return value and derivatives of -s+ + log sum_j e^{s_j}, InfoNCE without the positive in the denominator."""
    logits = [c / temperature for c in negatives]
    return log_sum_exp(logits) - positive / temperature, -1 / temperature, [w / temperature for w in softmax(logits)]


def flatnce(positive, negatives, temperature, form="log"):
    """Return the value of a form of FlatNCE and the derivatives of DCL, which all forms share."""
    logits = [c / temperature for c in negatives]
    value, slope, slopes = dcl(positive, negatives, temperature)
    printed = {
        "log": value,
        # xi / sg(xi); `flatnce_ratio` has the equation.
        "ratio": 1.0,
        "released": infonce(positive, negatives, temperature)[0],
    }[form]
    assert len(slopes) == len(logits)
    return printed, slope, slopes


def flatnce_ratio(positive, negatives, frozen_positive, frozen_negatives, temperature):
    """Return xi / sg(xi), xi = sum_j e^{s_j - s+}. The constant sg(xi) uses the arguments `frozen_...`."""
    xi = math.fsum(math.exp((c - positive) / temperature) for c in negatives)
    return xi / math.fsum(math.exp((c - frozen_positive) / temperature) for c in frozen_negatives)


def gaussian_weights(negatives, mu, sigma):
    """Return w_j = g(c_j) divided by the mean of g over the negatives, with g(c) = e^{-(c - mu)^2 / 2 sigma^2}."""
    # Factor out the largest exponent, so that narrow Gaussians do not underflow. It cancels in the ratio.
    exponents = [-((c - mu) ** 2) / (2 * sigma**2) for c in negatives]
    highest = max(exponents)
    densities = [math.exp(exponent - highest) for exponent in exponents]
    mean = math.fsum(densities) / len(densities)
    return [density / mean for density in densities]


def adnce(
    positive,
    negatives,
    temperature,
    mu=0.7,
    sigma=1.0,
    detach_weight=True,
    positive_in_denominator=False,
    negative_reduction="sum",
):
    """Return the value of ADNCE for one anchor and its derivatives with respect to the cosines."""
    weights = gaussian_weights(negatives, mu, sigma)
    scale = {"sum": 1, "mean": len(negatives)}[negative_reduction]
    # Factor out the largest logit, so that no exponential overflows.
    highest = max(positive, *negatives) / temperature
    terms = [w * math.exp(c / temperature - highest) / scale for w, c in zip(weights, negatives, strict=True)]
    own = math.exp(positive / temperature - highest) if positive_in_denominator else 0.0
    denominator = own + math.fsum(terms)
    share = [term / denominator for term in terms]

    value = math.log(denominator) + highest - positive / temperature
    slope = (own / denominator - 1) / temperature
    slopes = [part / temperature for part in share]
    if not detach_weight:
        # d log w_k / d c_j = g_j ([k = j] - w_j / M), with g_j = d (log of the Gaussian) / d c_j.
        for j, c in enumerate(negatives):
            g = -(c - mu) / sigma**2
            slopes[j] += g * (share[j] - math.fsum(share) * weights[j] / len(negatives))
    return value, slope, slopes


# -- who is compared ---------------------------------------------------------------------------------------------------


def norm(row):
    return math.sqrt(math.fsum(value * value for value in row))


def cosine(u, v):
    """Return the cosine of two rows; 0 if a row is zero."""
    lengths = norm(u) * norm(v)
    return math.fsum(a * b for a, b in zip(u, v, strict=True)) / lengths if lengths else 0.0


def anchors(count, negatives="cross", symmetric=True):
    """Return `(anchor, positive, [negatives])` per anchor, as (view, graph) indices. Anchors of view 0 come first."""
    result = []
    for view in (0, 1) if symmetric else (0,):
        other = 1 - view
        for i in range(count):
            keys = []
            for j in range(count):
                if j != i:
                    keys.append((other, j))
                    if negatives == "all":
                        keys.append((view, j))
            result.append(((view, i), (other, i), keys))
    return result


def cosines(z1, z2, negatives="cross", symmetric=True):
    """Return `(cosine with the positive, [cosines with the negatives])` for each anchor."""
    views = (z1, z2)

    def between(a, b):
        return cosine(views[a[0]][a[1]], views[b[0]][b[1]])

    return [
        (between(anchor, positive), [between(anchor, key) for key in keys])
        for anchor, positive, keys in anchors(len(z1), negatives, symmetric)
    ]


def terms(loss, z1, z2, *, temperature=0.2, negatives="cross", symmetric=True, **arguments):
    """Return the reference value of each anchor, `[A]`."""
    z1, z2 = np.asarray(z1, dtype=float).tolist(), np.asarray(z2, dtype=float).tolist()
    return np.array([loss(p, n, temperature, **arguments)[0] for p, n in cosines(z1, z2, negatives, symmetric)])


def gradient(loss, z1, z2, *, temperature=0.2, negatives="cross", symmetric=True, only=None, **arguments):
    """Return the gradient `[2, N, D]` of the mean over anchors, or of anchor `only`, with respect to both views."""
    views = np.stack([np.asarray(z1, dtype=float), np.asarray(z2, dtype=float)])
    total = np.zeros_like(views)
    every = anchors(views.shape[1], negatives, symmetric)
    for number, (anchor, positive, keys) in enumerate(every):
        if only not in (None, number):
            continue
        pairs = [positive, *keys]
        values = [cosine(views[anchor].tolist(), views[key].tolist()) for key in pairs]
        _, slope, slopes = loss(values[0], values[1:], temperature, **arguments)
        for key, value, weight in zip(pairs, values, [slope, *slopes], strict=True):
            u, v = views[anchor], views[key]
            # d cos(u, v) / d u = (v / |v| - cos u / |u|) / |u|
            total[anchor] += weight * (v / norm(v) - value * u / norm(u)) / norm(u)
            total[key] += weight * (u / norm(u) - value * v / norm(v)) / norm(v)
    return total / (len(every) if only is None else 1)


# -- inputs ------------------------------------------------------------------------------------------------------------


@st.composite
def projections(draw, most_graphs=5, most_columns=4):
    """Draw two float64 views `[N, D]`, N >= 2. Zero rows and equal rows can occur."""
    shape = draw(st.integers(2, most_graphs)), draw(st.integers(1, most_columns))
    # Multiples of 1 / 64, so that no nonzero row has a smaller norm than 1 / 64.
    elements = st.integers(-192, 192).map(lambda number: number / 64)
    return tuple(draw(hnp.arrays(np.float64, shape, elements=elements)) for _ in range(2))


@st.composite
def settings_common(draw):
    """Draw the arguments that all pairwise losses share, except `reduction`."""
    return {
        "temperature": draw(st.floats(0.02, 2.0)),
        "negatives": draw(st.sampled_from(NEGATIVES)),
        "symmetric": draw(st.booleans()),
    }
