"""One entry per registered loss: its equation as float64 loops, and the arguments to test. `test_contract.py` uses it.

A term takes one anchor's cosines, `(positive, [negatives])`, or its rows, `(anchor, positive, [negatives])`. Detached
parts of a loss are computed from `frozen`, a constant copy. Limits of single losses are in `test_limits.py`.
"""

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from hypothesis import strategies as st

from tests.losses import loops
from tests.losses.loops import log_sum_exp, of_cosines, of_rows


@dataclass(frozen=True)
class Entry:
    """Entry of a loss in the contract.

    Args:
        reference: slow loss, see `loops`; with `whole`, a function `(z1, z2, **arguments)` of the terms or the value.
        settings: arguments to test; the first are also tested on pairs of every kind.
        random: hypothesis strategies for further arguments; strategies of `temperature` default to [0.02, 2].
        ranges: intervals of the arguments; values outside raise an error that names the interval.
        low: lowest temperature to test in float32.
        error: absolute error allowed at random arguments, a number or a function of the arguments.
        similarity: similarity of explicit pairs.
        stopped: whether the second view is detached.
        whole: whether `reference` takes two views instead of rows.
        switches: values of `negatives` and `symmetric` that the loss fixes.
    """

    reference: Callable
    settings: list = field(default_factory=lambda: [{}])
    random: dict = field(default_factory=dict)
    ranges: dict = field(default_factory=dict)
    low: float = 0.005
    error: Callable | float = 1e-11
    similarity: str = "cosine"
    stopped: bool = False
    whole: bool = False
    switches: dict | None = None


WIDTHS = st.one_of(st.floats(0.02, 3), st.just(math.inf))


# -- the family of InfoNCE ---------------------------------------------------------------------------------------------


def infonce(positive, negatives, temperature=0.2):
    """Return -s+ + log(e^{s+} + sum_j e^{s_j})."""
    logits = [c / temperature for c in (positive, *negatives)]
    return log_sum_exp(logits) - logits[0]


def dcl(positive, negatives, temperature=0.2):
    """Return -s+ + log sum_j e^{s_j}."""
    return log_sum_exp([c / temperature for c in negatives]) - positive / temperature


def flatnce(rows, frozen, temperature=0.2, form="log"):
    """Return v (form `log`), e^{v - sg(v)} or e^{v - sg(v)} - 1 + sg(InfoNCE); v is DCL, sg(...) is of `frozen`."""
    gaps = of_cosines(dcl)(rows, rows, temperature=temperature)
    if form == "log":
        return gaps
    constants = of_cosines(dcl)(frozen, frozen, temperature=temperature)
    values = [1.0] * len(rows)
    if form == "released":
        values = of_cosines(infonce)(frozen, frozen, temperature=temperature)
    terms = zip(rows, gaps, constants, values, strict=True)
    return [math.exp(gap - kept) - 1 + value if row[2] else 0.0 for row, gap, kept, value in terms]


def dclw(rows, frozen, temperature=0.2, sigma=0.5, detach_weight=True):
    """Return -w s+ + log sum_j e^{s_j} with w_i = 2 - e^{c+_i / sigma} / mean_k e^{c+_k / sigma}."""
    kept = [positive for positive, _ in loops.cosines(frozen if detach_weight else rows)]
    heights = [math.exp((positive - max(kept)) / sigma) for positive in kept]
    weights = [2 - height * len(heights) / math.fsum(heights) for height in heights]
    return [
        log_sum_exp([c / temperature for c in negatives]) - weight * positive / temperature if negatives else 0.0
        for (positive, negatives), weight in zip(loops.cosines(rows), weights, strict=True)
    ]


def adnce(
    positive,
    negatives,
    frozen,
    temperature=0.2,
    mu=0.7,
    sigma=1.0,
    detach_weight=True,
    positive_in_denominator=False,
    negative_reduction="sum",
):
    """Return -log(e^{s+} / sum_j w_j e^{s_j}) with Gaussian weights w_j of mean 1."""
    exponents = [-((c - mu) ** 2) / (2 * sigma**2) for c in (frozen if detach_weight else negatives)]
    share = log_sum_exp(exponents) - math.log({"sum": len(negatives), "mean": 1}[negative_reduction])
    weighed = [x - share + c / temperature for x, c in zip(exponents, negatives, strict=True)]
    own = [positive / temperature] if positive_in_denominator else []
    return log_sum_exp(weighed + own) - positive / temperature


def debiased(positive, negatives, temperature=0.2, tau_plus=0.1, beta=0.0):
    """Return -log(e^{s+} / (e^{s+} + G)), G = max((R - tau_plus M e^{s+}) / (1 - tau_plus), M e^{-1/temperature}).

    Here R = M sum_j e^{(1 + beta) s_j} / sum_j e^{beta s_j}; with beta = 0 it is the sum of e^{s_j}.
    """
    count, hardest = len(negatives), max(negatives)
    tilts = [math.exp(beta * (c - hardest) / temperature) for c in negatives]
    ratios = [math.exp((c - positive) / temperature) for c in negatives]
    tilted = count * math.fsum(a * b for a, b in zip(tilts, ratios, strict=True)) / math.fsum(tilts)
    floor = count * math.exp((-1 - positive) / temperature)
    return math.log1p(max((tilted - tau_plus * count) / (1 - tau_plus), floor))


def hcl(positive, negatives, temperature=0.2, beta=1.0, tau_plus=0.1):
    return debiased(positive, negatives, temperature, tau_plus, beta)


def rince(positive, negatives, temperature=0.2, q=0.5, lam=0.01):
    """Return -e^{q s+} / q + (lam (e^{s+} + sum_j e^{s_j}))^q / q."""
    total = math.fsum(math.exp(c / temperature) for c in [positive, *negatives])
    return ((lam * total) ** q - math.exp(q * positive / temperature)) / q


# -- weights and worst cases -------------------------------------------------------------------------------------------


def cl_dro(positive, negatives, temperature=0.2, divergence="kl"):
    """Return -s+ + max_Q {sum_j Q_j s_j - (1 / M) sum_j phi(M Q_j)}; bisection finds the maximising Q by its dual."""
    scores, count = [c / temperature for c in negatives], len(negatives)

    def density(x):
        return math.exp(x) if divergence == "kl" else max(0.0, 1 + x)

    def penalty(u):
        return (u * math.log(u) if u else 0.0) - u + 1 if divergence == "kl" else (u - 1) ** 2 / 2

    low, high = min(scores), max(scores)
    for _ in range(60):
        level = (low + high) / 2
        above = math.fsum(density(s - level) for s in scores) > count
        low, high = (level, high) if above else (low, level)
    weights = [density(s - level) for s in scores]
    weights = [w / math.fsum(weights) for w in weights]
    gain = math.fsum(q * s for q, s in zip(weights, scores, strict=True))
    return gain - math.fsum(penalty(count * q) for q in weights) / count - positive / temperature


def mean_variance(positive, negatives, temperature=0.2, curvature=1.0):
    """Return -s+ + mean_j s_j + var_j(s_j) / (2 curvature), with the population variance."""
    average = math.fsum(negatives) / len(negatives)
    variance = math.fsum((c - average) ** 2 for c in negatives) / len(negatives)
    return (average - positive) / temperature + variance / temperature**2 / (2 * curvature)


def reweight(positive, negatives, frozen, temperature=0.2, mu=0.7, sigma=1.0):
    """Return -s+ + mean_j w_j s_j with detached Gaussian weights of mean 1."""
    exponents = [-((c - mu) ** 2) / (2 * sigma**2) for c in frozen]
    weights = [math.exp(x - max(exponents)) for x in exponents]
    weighed = math.fsum(w * c for w, c in zip(weights, negatives, strict=True)) / math.fsum(weights)
    return (weighed - positive) / temperature


def alpha_cl(positive, negatives, frozen, temperature=0.5, power=4, epsilon=0.0):
    """Return sum_j w_j (c_j - c+) / (sum_j w_j + epsilon M) with detached w_j = e^{-(1 - c_j)^power / temperature}."""
    exponents = [-((1 - c) ** power) / temperature for c in frozen]
    # Without epsilon, the largest weight cancels. With epsilon, weights that underflow are negligible.
    highest = 0.0 if epsilon else max(exponents)
    weights = [math.exp(x - highest) for x in exponents]
    above = math.fsum(w * (c - positive) for w, c in zip(weights, negatives, strict=True))
    return above / (math.fsum(weights) + epsilon * len(negatives))


# -- distances and dot products ----------------------------------------------------------------------------------------


def contrastive(anchor, positive, negatives, margin=1.0, normalize=True, negative_reduction="mean"):
    """Return D+^2 / 2 plus the mean or sum over j of max(margin - D_j, 0)^2 / 2."""
    if normalize:
        anchor, positive, *negatives = (loops.unit(row) for row in (anchor, positive, *negatives))
    pushed = [max(margin - math.dist(anchor, key), 0) ** 2 / 2 for key in negatives]
    count = {"mean": len(negatives), "sum": 1}[negative_reduction]
    return math.dist(anchor, positive) ** 2 / 2 + math.fsum(pushed) / count


def triplet(positive, negatives, margin=0.2, mining="all"):
    """Return the mean of max(0, D+^2 - D_j^2 + margin) over the mined negatives j, with D^2 = 2 - 2c."""
    near, far = 2 - 2 * positive, [2 - 2 * c for c in negatives]
    if mining == "hard":
        far = [min(far)]
    if mining == "semi_hard":
        farther = [distance for distance in far if distance > near]
        far = [min(farther) if farther else max(far)]
    return math.fsum(max(0.0, near - distance + margin) for distance in far) / len(far)


def n_pair(anchor, positive, negatives, l2_weight=0.002):
    """Return -f.f+ + log(e^{f.f+} + sum_j e^{f.f_j}) + l2_weight (|f|^2 + |f+|^2) / 2."""
    products = [loops.dot(anchor, key) for key in (positive, *negatives)]
    lengths = loops.dot(anchor, anchor) + loops.dot(positive, positive)
    return -products[0] + log_sum_exp(products) + l2_weight * lengths / 2


def tuplet(z1, z2, num_negatives=None, symmetric=True):
    """Return log(1 + sum_j e^{f.f_j - f.f+}) per anchor, over rows j = i+1 .. i+K modulo N of the other view."""
    count = len(z1)
    taken = count - 1 if num_negatives is None else min(num_negatives, count - 1)
    values = []
    for own, other in [(z1, z2), (z2, z1)] if symmetric else [(z1, z2)]:
        for i, row in enumerate(own):
            positive = loops.dot(row, other[i])
            gaps = [loops.dot(row, other[(i + k) % count]) - positive for k in range(1, taken + 1)]
            values.append(log_sum_exp([0.0, *gaps]))
    return values


def jsd(anchor, positive, negatives):
    """Return softplus(-x+) + mean_j softplus(x_j), with x the dot products."""
    pushed = [loops.softplus(loops.dot(anchor, key)) for key in negatives]
    return loops.softplus(-loops.dot(anchor, positive)) + math.fsum(pushed) / len(pushed)


def siglip(positive, negatives, temperature=0.1, bias=-10.0):
    """Return the sum of -log sigmoid(y (c / temperature + bias)) over an anchor's pairs, y = 1 or -1."""
    labelled = [(1, positive), *((-1, c) for c in negatives)]
    return math.fsum(loops.softplus(-y * (c / temperature + bias)) for y, c in labelled)


# -- memory bank, labels, no negatives ---------------------------------------------------------------------------------


def instance_nce(rows, frozen, temperature=0.07, log_z=None, proximal=0.0):
    """Return -log h(s+) - sum_k log(1 - h(s_k)) + proximal (2 - 2 c+), with h(s) = 1 / (1 + K e^{log_z - s}).

    By default, log_z is the logarithm of the mean of e^s over all pairs of an anchor and a negative, a constant.
    """
    if log_z is None:
        logits = [c / temperature for _, negatives in loops.cosines(frozen) for c in negatives]
        log_z = log_sum_exp(logits) - math.log(len(logits))
    values = []
    for positive, negatives in loops.cosines(rows):
        shift = log_z + math.log(max(1, len(negatives)))
        value = loops.softplus(shift - positive / temperature) + proximal * (2 - 2 * positive)
        value += math.fsum(loops.softplus(c / temperature - shift) for c in negatives)
        values.append(value if negatives else 0.0)
    return values


def supcon(z1, z2, labels, temperature=0.2):
    """Return, for each of the 2N rows i, the mean over p in P(i) of -s_ip + log sum_{a != i} e^{s_ia}."""
    rows, labels = z1 + z2, labels + labels
    values = []
    for i, row in enumerate(rows):
        logits = {a: loops.cosine(row, key) / temperature for a, key in enumerate(rows) if a != i}
        total = log_sum_exp(list(logits.values()))
        pulled = [total - s for a, s in logits.items() if labels[a] == labels[i]]
        values.append(math.fsum(pulled) / len(pulled))
    return values


def byol(z1, z2):
    """Return 2 - 2 cos(anchor, target)."""
    return [2 - 2 * loops.cosine(a, b) for a, b in zip(z1, z2, strict=True)]


def simsiam(z1, z2):
    """Return -cos(anchor, target)."""
    return [-loops.cosine(a, b) for a, b in zip(z1, z2, strict=True)]


def barlow_twins(z1, z2, off_diagonal=0.005):
    """Return sum_i (1 - C_ii)^2 + off_diagonal sum_{i != j} C_ij^2, with C the cross-correlation matrix."""

    def standardised(z):  # a constant column becomes 0
        result = []
        for column in zip(*z, strict=True):
            middle = math.fsum(column) / len(column)
            deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in column) / len(column))
            constant = max(column) == min(column)
            result.append([0.0 if constant else (value - middle) / deviation for value in column])
        return result

    a, b = standardised(z1), standardised(z2)
    c = [[loops.dot(p, q) / len(z1) for q in b] for p in a]
    own = math.fsum((1 - c[i][i]) ** 2 for i in range(len(c)))
    return own + off_diagonal * math.fsum(c[i][j] ** 2 for i in range(len(c)) for j in range(len(c)) if i != j)


def vicreg(z1, z2, invariance=25.0, variance=25.0, covariance=1.0, target=1.0, epsilon=1e-4, form="released"):
    """Return the three penalties, over columns; `released` divides by D and halves the variance terms."""

    def statistics(z):
        columns = [[value - math.fsum(column) / len(z) for value in column] for column in zip(*z, strict=True)]
        cov = [[loops.dot(p, q) / (len(z) - 1) for q in columns] for p in columns]
        width = len(columns)
        spread = math.fsum(max(0.0, target - math.sqrt(cov[d][d] + epsilon)) for d in range(width)) / width
        return spread, math.fsum(cov[i][j] ** 2 for i in range(width) for j in range(width) if i != j) / width

    near = math.fsum(math.dist(a, b) ** 2 for a, b in zip(z1, z2, strict=True)) / len(z1)
    (v1, c1), (v2, c2) = statistics(z1), statistics(z2)
    if form == "released":
        near, v1, v2 = near / len(z1[0]), v1 / 2, v2 / 2
    return invariance * near + variance * (v1 + v2) + covariance * (c1 + c2)


def sigreg(z1, z2, trade_off=0.05, num_directions=1024):
    """Return (1 - trade_off) times the views' squared distance plus trade_off times the mean statistic.

    The statistic is the full trapezoidal sum over 17 points on [-5, 5]. The directions are those of a generator of
    seed 0, as in `loops.needed`.
    """
    count, width = len(z1), len(z1[0])
    drawn = torch.randn(num_directions, width, generator=torch.Generator().manual_seed(0))
    points = [-5 + 0.625 * k for k in range(17)]

    def statistic(x):
        heights = []
        for t in points:
            normal = math.exp(-t * t / 2)
            heights.append(abs(sum(cmath.exp(1j * t * value) for value in x) / count - normal) ** 2 * normal)
        return count * 0.625 * (math.fsum(heights) - (heights[0] + heights[-1]) / 2)

    projected = [[loops.dot(loops.unit(a), row) for row in z] for a in drawn.tolist() for z in (z1, z2)]
    centres = [[(a + b) / 2 for a, b in zip(*rows, strict=True)] for rows in zip(z1, z2, strict=True)]
    far = [math.dist(row, centre) ** 2 for z in (z1, z2) for row, centre in zip(z, centres, strict=True)]
    test = math.fsum(statistic(x) for x in projected) / len(projected)
    return (1 - trade_off) * math.fsum(far) / (2 * count * width) + trade_off * test


def temperatures(*values):
    return [{"temperature": value} for value in values]


TABLE = {
    "infonce": Entry(of_cosines(infonce), temperatures(0.2, 0.05)),
    "nt_xent": Entry(of_cosines(infonce), temperatures(0.1, 2.0),
                     switches={"negatives": "all", "symmetric": True}),
    "moco": Entry(of_cosines(partial(infonce, temperature=0.07)), [{}, {"temperature": 0.5}]),
    "dcl": Entry(of_cosines(dcl), temperatures(0.2, 0.05)),
    "flatnce": Entry(flatnce, [{"form": form, "temperature": t} for form, t in
                               (("log", 0.2), ("ratio", 0.05), ("released", 1.0), ("released", 0.05))],
                     {"form": st.sampled_from(["log", "ratio", "released"])}),
    "dclw": Entry(dclw, [{}, {"detach_weight": False}, {"temperature": 0.1, "sigma": 0.2, "detach_weight": False}],
                  {"sigma": st.floats(0.02, 3), "detach_weight": st.booleans()}, {"sigma": "(0, inf]"}),
    "adnce": Entry(of_cosines(adnce, freeze=True), [
        {}, {"temperature": 0.1, "mu": 0.2, "sigma": 0.15, "detach_weight": False, "negative_reduction": "mean"},
        {"temperature": 1.0, "mu": -0.5, "sigma": 0.4, "positive_in_denominator": True},
        {"mu": 1.5, "sigma": math.inf, "detach_weight": False, "positive_in_denominator": True,
         "negative_reduction": "mean"}],
        {"mu": st.floats(-1, 1.5), "sigma": WIDTHS, "detach_weight": st.booleans(),
         "positive_in_denominator": st.booleans(), "negative_reduction": st.sampled_from(["sum", "mean"])},
        {"mu": "(-inf, inf)", "sigma": "(0, inf]"}, error=1e-10),
    "debiased": Entry(of_cosines(debiased), [{}, {"temperature": 0.5, "tau_plus": 0.0},
                                             {"temperature": 0.3, "tau_plus": 0.5}],
                      {"tau_plus": st.floats(0, 0.95)}, {"tau_plus": "[0, 1)"}),
    "hcl": Entry(of_cosines(hcl), [{}, {"temperature": 0.3, "beta": 2.0, "tau_plus": 0.4},
                                   {"temperature": 0.5, "beta": 1.5, "tau_plus": 0.5}, {"beta": 0.0, "tau_plus": 0.0}],
                 {"beta": st.floats(0, 20), "tau_plus": st.floats(0, 0.95)},
                 {"tau_plus": "[0, 1)", "beta": "[0, inf)"}),
    "rince": Entry(of_cosines(rince), [{}, {"temperature": 0.5, "q": 1.0, "lam": 0.3},
                                       {"temperature": 0.1, "q": 0.1, "lam": 1.0}],
                   {"q": st.floats(0.01, 1), "lam": st.floats(0.001, 1), "temperature": st.floats(0.08, 2)},
                   {"q": "(0, 1]", "lam": "(0, 1]"}, 0.02,
                   lambda q, temperature, **_: 1e-11 * math.exp(q / temperature) / q),  # two large terms can cancel
    "cl_dro": Entry(of_cosines(cl_dro), [{}, {"divergence": "chi2"}, {"divergence": "chi2", "temperature": 0.7}],
                    {"divergence": st.sampled_from(["kl", "chi2"])}),
    "mean_variance": Entry(of_cosines(mean_variance), [{}, {"temperature": 0.05, "curvature": 0.3}],
                           {"curvature": st.floats(0.05, 50)}, {"curvature": "(0, inf)"}),
    "reweight": Entry(of_cosines(reweight, freeze=True), [{}, {"temperature": 0.5, "mu": 0.2, "sigma": 0.15}],
                      {"mu": st.floats(-1, 1.5), "sigma": WIDTHS},
                      ranges={"mu": "(-inf, inf)", "sigma": "(0, inf]"}),
    "alpha_cl": Entry(of_cosines(alpha_cl, freeze=True), [{}, {"power": 2}, {"temperature": 0.1, "epsilon": 0.1},
                                                          {"temperature": 2.0, "power": 2, "epsilon": 0.5}],
                      {"power": st.sampled_from([2, 4]), "epsilon": st.one_of(st.just(0.0), st.floats(1e-3, 2))},
                      ranges={"epsilon": "[0, inf)"}),
    # With these margins, some negatives are within the margin.
    "contrastive": Entry(of_rows(contrastive), [
        {"margin": 1.4}, {"margin": 1.6, "negative_reduction": "sum"}, {"margin": 4.0, "normalize": False}],
        ranges={"margin": "(0, inf)"}, similarity="squared_distance"),
    "triplet": Entry(of_cosines(triplet),
                     [{"margin": 0.9, "mining": mining} for mining in ("all", "semi_hard", "hard")],
                     {"margin": st.floats(0.01, 3), "mining": st.sampled_from(["all", "hard"])},
                     {"margin": "(0, inf)"}),
    "n_pair": Entry(of_rows(n_pair), [{"l2_weight": 0.3}, {"l2_weight": 0.0}], {"l2_weight": st.floats(0, 2)},
                    {"l2_weight": "[0, inf)"}, similarity="dot"),
    "tuplet": Entry(tuplet, [{}, {"num_negatives": 1}, {"num_negatives": 2, "symmetric": False},
                             {"num_negatives": 100}],
                    {"num_negatives": st.one_of(st.none(), st.integers(1, 5)), "symmetric": st.booleans()},
                    similarity="dot", whole=True, error=1e-10),
    "jsd": Entry(of_rows(jsd), similarity="dot"),
    "siglip": Entry(of_cosines(siglip), [{}, {"temperature": 0.3, "bias": -1.5}, {"temperature": 1.0, "bias": 2.0}],
                    {"bias": st.floats(-15, 5)}, {"bias": "(-inf, inf)"}),
    "instance_nce": Entry(instance_nce, [{}, {"temperature": 0.4, "proximal": 0.6}, {"log_z": 1.5, "temperature": 0.2}],
                          {"log_z": st.one_of(st.none(), st.floats(-5, 5)), "proximal": st.floats(0, 3)},
                          {"proximal": "[0, inf)"}),
    "supcon": Entry(supcon, temperatures(0.2, 1.0), whole=True, error=1e-10),
    "byol": Entry(byol, stopped=True, whole=True),
    "simsiam": Entry(simsiam, stopped=True, whole=True),
    "barlow_twins": Entry(barlow_twins, [{}, {"off_diagonal": 2.0}], {"off_diagonal": st.floats(0, 3)},
                          {"off_diagonal": "[0, inf)"}, error=1e-9, whole=True),
    "vicreg": Entry(vicreg, [{}, {"form": "paper"}, {"invariance": 0.7, "variance": 2.0, "covariance": 3.0,
                                                     "target": 1.5, "epsilon": 0.3}],
                    {"invariance": st.floats(0, 30), "variance": st.floats(0, 30), "covariance": st.floats(0, 30),
                     "target": st.floats(0.1, 4), "form": st.sampled_from(["paper", "released"])},
                    {"target": "(0, inf)", "epsilon": "(0, inf)"}
                    | dict.fromkeys(["invariance", "variance", "covariance"], "[0, inf)"), error=1e-9, whole=True),
    "sigreg": Entry(sigreg, [{"num_directions": 3}, {"num_directions": 5, "trade_off": 0.7}],
                    {"num_directions": st.integers(1, 4), "trade_off": st.floats(0, 1)}, {"trade_off": "[0, 1]"},
                    whole=True),
}  # fmt: skip
