"""Slow float64 references of the losses, written from the equations: plain loops, `math` only, no torch.

A row is a list of floats. Every anchor is reduced to the cosine with its positive and the cosines with its negatives;
a loss then is a function of these, the temperature and its own arguments, and returns

    (value, d value / d positive cosine, [d value / d negative cosine, ...]).

`evaluate` sums the chain rule through the cosine, by hand, so that gradients with respect to the projections have a
reference that does not rest on autograd.
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
    """-s+ + log(e^{s+} + sum_j e^{s_j})."""
    logits = [positive / temperature, *(c / temperature for c in negatives)]
    p = softmax(logits)
    # p+ - 1 = -(the negatives' share), summed rather than subtracted.
    slope = -math.fsum(p[1:]) / temperature
    return log_sum_exp(logits) - logits[0], slope, [share / temperature for share in p[1:]]


def dcl(positive, negatives, temperature):
    """-s+ + log sum_j e^{s_j}: InfoNCE without the positive in the denominator."""
    logits = [c / temperature for c in negatives]
    return log_sum_exp(logits) - positive / temperature, -1 / temperature, [w / temperature for w in softmax(logits)]


def flatnce(positive, negatives, temperature, form="log"):
    """The gradient of log xi = log sum_j e^{s_j - s+}; what is printed depends on the form."""
    logits = [c / temperature for c in negatives]
    value, slope, slopes = dcl(positive, negatives, temperature)
    printed = {
        "log": value,
        # xi / sg(xi); the equation itself is `flatnce_ratio` below.
        "ratio": 1.0,
        "released": infonce(positive, negatives, temperature)[0],
    }[form]
    assert len(slopes) == len(logits)
    return printed, slope, slopes


def flatnce_ratio(positive, negatives, frozen_positive, frozen_negatives, temperature):
    """xi / sg(xi) with the denominator's cosines passed apart, so that a finite difference can freeze them."""
    xi = math.fsum(math.exp((c - positive) / temperature) for c in negatives)
    return xi / math.fsum(math.exp((c - frozen_positive) / temperature) for c in frozen_negatives)


def gaussian_weights(negatives, mu, sigma):
    """w_j = exp(-(c_j - mu)^2 / (2 sigma^2)) over its mean over the anchor's negatives."""
    # The largest exponent is taken out first: it cancels in the ratio, and keeps narrow Gaussians from vanishing.
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
    """-log( e^{s+} / ([e^{s+}] + reduce_j w_j e^{s_j}) ), the weights frozen or not."""
    weights = gaussian_weights(negatives, mu, sigma)
    scale = {"sum": 1, "mean": len(negatives)}[negative_reduction]
    # The largest logit is taken out of every exponential, and added again after the logarithm.
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
    """Zero where one of the two vectors is zero."""
    lengths = norm(u) * norm(v)
    return math.fsum(a * b for a, b in zip(u, v, strict=True)) / lengths if lengths else 0.0


def anchors(count, negatives="cross", symmetric=True):
    """Every (anchor, positive, [negatives]); each is a (view, graph) pair. View 0's anchors come first."""
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
    """For each anchor its positive cosine and its negatives' cosines."""
    views = (z1, z2)

    def between(a, b):
        return cosine(views[a[0]][a[1]], views[b[0]][b[1]])

    return [
        (between(anchor, positive), [between(anchor, key) for key in keys])
        for anchor, positive, keys in anchors(len(z1), negatives, symmetric)
    ]


def terms(loss, z1, z2, *, temperature=0.2, negatives="cross", symmetric=True, **arguments):
    """Per-anchor values."""
    z1, z2 = np.asarray(z1, dtype=float).tolist(), np.asarray(z2, dtype=float).tolist()
    return np.array([loss(p, n, temperature, **arguments)[0] for p, n in cosines(z1, z2, negatives, symmetric)])


def gradient(loss, z1, z2, *, temperature=0.2, negatives="cross", symmetric=True, only=None, **arguments):
    """Gradient of the mean (or of the one anchor number `only`) with respect to both views: `[2, N, D]`."""
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
    """Two views `[N, D]`, N from 2, as float64 arrays; whole rows of zeros and equal rows are legal."""
    shape = draw(st.integers(2, most_graphs)), draw(st.integers(1, most_columns))
    # Small integers and plain fractions: no vector is shorter than 1 / 64 unless it is zero.
    elements = st.integers(-192, 192).map(lambda number: number / 64)
    return tuple(draw(hnp.arrays(np.float64, shape, elements=elements)) for _ in range(2))


@st.composite
def settings_common(draw):
    """The keyword arguments that all losses of the family share, reduction excepted."""
    return {
        "temperature": draw(st.floats(0.02, 2.0)),
        "negatives": draw(st.sampled_from(NEGATIVES)),
        "symmetric": draw(st.booleans()),
    }
