"""Test the estimates of mutual information against their equations, and on Gaussians whose information is known."""

import math
from statistics import fmean

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from graphcl import GIN, ContrastiveModel, TwoViews
from graphcl.losses import Loss, infonce
from graphcl.methods import Outcome
from graphcl.training.epoch import measure
from graphcl.training.mutual_information import (
    chi_square,
    donsker_varadhan,
    estimates,
    infonce_bound,
    jensen_shannon,
    nwj,
)
from tests.losses.loops import log_sum_exp, softplus

ALL = (infonce_bound, donsker_varadhan, nwj, jensen_shannon, chi_square)
PLAIN_KL, SQUARE = (lambda t: math.exp(t - 1)), (lambda t: t + t**2 / 4)
"""Conjugates of phi(u) = u log u and of (u - 1)^2."""


def random_scores(count, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, count, generator=generator, dtype=torch.float64)


def split(scores):
    """Return the scores of the diagonal and the others, as lists."""
    rows = scores.tolist()
    joint = [row[i] for i, row in enumerate(rows)]
    return joint, [value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j]


def first_form(scores, conjugate):
    joint, product = split(scores)
    return fmean(joint) - fmean(map(conjugate, product))


def tighter_form(scores, conjugate):
    """Return the tighter form of a divergence, with its minimum over lambda searched numerically."""
    joint, product = split(scores)
    found = minimize_scalar(lambda shift: shift + fmean(conjugate(value - shift) for value in product), tol=1e-12)
    return fmean(joint) - found.fun


@pytest.mark.parametrize(("count", "scale"), [(2, 1.0), (7, 0.1), (7, 4.0)])
def test_each_estimate_equals_its_equation(count, scale):
    scores = random_scores(count, scale)
    joint, product = split(scores)
    rows = scores.tolist()
    expected = {
        "mi_infonce": fmean(row[i] - log_sum_exp(row) + math.log(count) for i, row in enumerate(rows)),
        "mi_limit": math.log(count),
        "mi_donsker_varadhan": tighter_form(scores, PLAIN_KL),
        "mi_nwj": first_form(scores, PLAIN_KL),
        "jensen_shannon": math.log(2) - fmean(softplus(-f) for f in joint) / 2 - fmean(map(softplus, product)) / 2,
        "chi_square": tighter_form(scores, SQUARE),
    }
    assert {name: value.item() for name, value in estimates(scores).items()} == pytest.approx(expected, rel=1e-9)
    assert donsker_varadhan(scores).item() == pytest.approx(
        fmean(joint) - math.log(fmean(map(math.exp, product))), rel=1e-12
    )


def test_the_infonce_bound_is_the_log_of_the_rows_minus_the_loss():
    z1, z2 = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cosine = torch.nn.functional.normalize(z1) @ torch.nn.functional.normalize(z2).T
    loss = infonce(z1, z2, temperature=0.3, symmetric=False)
    torch.testing.assert_close(infonce_bound(cosine / 0.3), math.log(9) - loss)


def test_the_tighter_form_is_above_the_first_and_ignores_constants():
    for seed in range(20):
        scores = random_scores(6, 2.0, seed)
        assert nwj(scores) <= donsker_varadhan(scores)
        assert first_form(scores, SQUARE) <= chi_square(scores)
        for of_tighter_form in (infonce_bound, donsker_varadhan, chi_square):
            torch.testing.assert_close(of_tighter_form(scores + 3), of_tighter_form(scores))
        of_anchors = torch.linspace(-5, 5, 6, dtype=torch.float64)[:, None]
        torch.testing.assert_close(infonce_bound(scores + of_anchors), infonce_bound(scores))


@pytest.mark.parametrize("size", [1e2, 1e6])
def test_large_scores_stay_finite_and_within_the_limits(size):
    for scores in (size * torch.eye(5), torch.full((5, 5), size), -size * torch.eye(5)):
        found = estimates(scores)
        assert all(map(torch.isfinite, found.values()))
        assert found["mi_infonce"] <= found["mi_limit"]
        assert found["jensen_shannon"] <= math.log(2)
    assert infonce_bound(size * torch.eye(5)).item() == pytest.approx(math.log(5))
    assert jensen_shannon(size * (2 * torch.eye(5) - 1)).item() == pytest.approx(math.log(2))


# -- Gaussians ---------------------------------------------------------------------------------------------------------

ROWS, BATCHES, DIMENSIONS, RHO = 64, 1000, 2, 0.3
"""At this correlation the variance of each estimate is finite, also that of chi-square."""


@pytest.fixture(scope="module")
def ratios():
    """Return the log density ratios `[BATCHES, ROWS, ROWS]` of pairs whose columns have the correlation RHO."""
    generator = torch.Generator().manual_seed(2)
    x, noise = torch.randn(2, DIMENSIONS, BATCHES, ROWS, generator=generator, dtype=torch.float64)
    y = RHO * x + math.sqrt(1 - RHO**2) * noise
    given_x = torch.distributions.Normal(RHO * x[..., None], math.sqrt(1 - RHO**2))
    alone = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    return (given_x.log_prob(y[:, :, None]) - alone.log_prob(y)[:, :, None]).sum(dim=0)


def moments(estimate, scores):
    """Return the mean of an estimate over batches, its standard error, and its variance."""
    values = np.array([estimate(batch).item() for batch in scores])
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values)), values.var(ddof=1)


def expected_jensen_shannon():
    """Return the divergence by Gauss-Hermite quadrature over the pairs of one column, added up for two."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    x, noise = np.meshgrid(nodes, nodes, indexing="ij")
    weight = np.outer(weights, weights).ravel()

    def log_ratio(y):
        square = (RHO * x) ** 2 + (RHO * y) ** 2 - 2 * RHO * x * y
        return (-math.log(1 - RHO**2) / 2 - square / (2 * (1 - RHO**2))).ravel()

    def mean(ratio, sign):
        both = (ratio[:, None] + ratio).ravel()
        return np.outer(weight, weight).ravel() @ np.logaddexp(0, sign * both)

    joint, product = log_ratio(RHO * x + math.sqrt(1 - RHO**2) * noise), log_ratio(noise)
    return math.log(2) - (mean(joint, -1) + mean(product, 1)) / 2


INFORMATION = -DIMENSIONS / 2 * math.log(1 - RHO**2)
CHI_SQUARE = (1 - RHO**2) ** -DIMENSIONS - 1
VARIANCE = (CHI_SQUARE + (1 - RHO**4) ** -DIMENSIONS - 1) / (ROWS * (ROWS - 1))
"""Variance of the mean density ratio over a batch's pairs of different rows."""


def test_nwj_of_the_best_critic_has_the_mean_and_the_variance_of_theory(ratios):
    mean, error, variance = moments(nwj, ratios + 1)
    assert mean == pytest.approx(INFORMATION, abs=4 * error)
    assert variance == pytest.approx(DIMENSIONS * RHO**2 / ROWS + VARIANCE, rel=0.15)
    shifted, _, _ = moments(nwj, ratios + 1.5)
    assert mean - shifted == pytest.approx(math.exp(0.5) - 1.5, abs=0.01)


def test_donsker_varadhan_is_too_large_by_half_the_variance(ratios):
    mean, error, _ = moments(donsker_varadhan, ratios)
    assert mean == pytest.approx(INFORMATION + VARIANCE / 2, abs=4 * error)
    difference, error, _ = moments(lambda batch: donsker_varadhan(batch) - nwj(batch + 1), ratios)
    assert difference == pytest.approx(VARIANCE / 2, abs=4 * error + VARIANCE / 4)
    assert difference > 4 * error


def test_infonce_is_below_the_information_by_the_negatives_it_lacks(ratios):
    mean, error, _ = moments(infonce_bound, ratios)
    assert mean < INFORMATION
    assert mean == pytest.approx(INFORMATION - CHI_SQUARE / (2 * ROWS), abs=4 * error)
    few, error, _ = moments(infonce_bound, ratios[:, :4, :4])
    assert few < INFORMATION - 2 * error


def test_jensen_shannon_is_that_of_the_distributions(ratios):
    mean, error, _ = moments(jensen_shannon, ratios)
    assert mean == pytest.approx(expected_jensen_shannon(), abs=4 * error)


def test_chi_square_needs_its_own_critic(ratios):
    mean, error, _ = moments(chi_square, 2 * ratios.exp())
    assert mean == pytest.approx(CHI_SQUARE + VARIANCE, abs=4 * error)
    loose, error, _ = moments(chi_square, ratios)
    assert loose < CHI_SQUARE - 4 * error


# -- diagnostics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "temperature"), [(Loss("dcl", temperature=0.5), 0.5), ("vicreg", 0.2)])
def test_the_critic_of_the_diagnostics_is_the_cosine_over_the_temperature(loss, temperature):
    z1, z2 = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(3))
    method = TwoViews(ContrastiveModel(GIN(3, hidden_channels=4)), loss)
    found = measure(Outcome(torch.zeros(()), z1, z1, z2), True, method)
    cosine = torch.cosine_similarity(z1[:, None], z2[None], dim=2)
    for name, value in estimates(cosine / temperature).items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    assert not {*estimates(cosine)} & {*measure(Outcome(torch.zeros(()), z1, z1, z2), False, method)}
