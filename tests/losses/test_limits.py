"""Test provable limits and identities of single losses; the contract with all losses is in `test_contract.py`."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from graphcl.errors import InputError
from graphcl.losses import (
    adnce,
    alpha_cl,
    barlow_twins,
    cl_dro,
    contrastive,
    dcl,
    dclw,
    debiased,
    hcl,
    infonce,
    jsd,
    mean_variance,
    reweight,
    rince,
    siglip,
    sigreg,
    vicreg,
)
from graphcl.losses.formulas.sigreg import epps_pulley
from graphcl.registry import losses
from tests.losses import loops, table
from tests.losses.loops import SWITCHES
from tests.strategies import seeded

COMMON = [{"negatives": negatives, "symmetric": symmetric} for negatives, symmetric in SWITCHES]
ENGINES = [{"engine": "dense"}, {"engine": "tiled"}]


# -- identities --------------------------------------------------------------------------------------------------------


FLAT = {"sigma": math.inf}
IDENTITIES = [
    (partial(adnce, mu=-0.3, **FLAT), dcl),
    (partial(adnce, positive_in_denominator=True, **FLAT), infonce),
    (partial(dclw, detach_weight=False, **FLAT), dcl),
    (partial(reweight, **FLAT), partial(mean_variance, curvature=1e15)),
    (partial(debiased, tau_plus=0.0), infonce),
    (partial(hcl, beta=0.0, tau_plus=0.0), infonce),
    (partial(cl_dro, divergence="chi2", temperature=2.0), partial(mean_variance, temperature=2.0)),  # nothing clipped
]


def test_identities(views, gradients):
    for (got, want), common in product(IDENTITIES, COMMON):
        terms = (loss(*views(6, 4), reduction="none", **common) for loss in (got, want))
        torch.testing.assert_close(*terms, rtol=1e-11, atol=1e-12)
        found = [gradients(partial(loss, **common), *views(6, 4)) for loss in (got, want)]
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("symmetric", "engine"), [*product((True, False), ("dense", "tiled"))])
def test_siglip_is_the_cross_entropy_of_all_pairs(views, gradients, symmetric, engine):
    """N times its mean over the matrix of logits t c + b, whose diagonal has the label 1, in either direction."""

    def matrix(z1, z2):
        logits = 5 * normalize(z1) @ normalize(z2).T - 3
        return len(z1) * binary_cross_entropy_with_logits(logits, torch.eye(len(z1)).to(logits))

    def loss(z1, z2):
        return siglip(z1, z2, temperature=0.2, bias=-3.0, symmetric=symmetric, engine=engine)

    assert loss(*views(6, 4)).item() == pytest.approx(matrix(*views(6, 4)).item(), rel=1e-12)
    np.testing.assert_allclose(*(gradients(each, *views(6, 4)) for each in (loss, matrix)), rtol=1e-9, atol=1e-12)


# -- a Gaussian of the rows --------------------------------------------------------------------------------------------


def test_the_statistic_is_the_integral():
    """Of samples near the normal distribution, where 17 points suffice, by adaptive quadrature."""

    def integrand(t, x):
        return abs(np.exp(1j * t * x).mean() - math.exp(-t * t / 2)) ** 2 * math.exp(-t * t / 2)

    for x in (torch.randn(20, generator=seeded(0)), torch.tensor([-1.5, 0.3, 2.0]), torch.zeros(4), torch.ones(2)):
        expected = len(x) * quad(integrand, -5, 5, args=(x.double().numpy(),))[0]
        assert epps_pulley(x.double()).item() == pytest.approx(expected, rel=1e-4)


def test_the_statistic_of_a_gaussian_and_of_a_collapse():
    """1.06 in the mean for N(0, 1), with any number of rows; for equal rows and other variances it grows with N."""
    root = math.sqrt(2 * math.pi)
    for count in (3, 100):
        normal = torch.randn(count, 20000, generator=seeded(count), dtype=torch.float64)
        assert epps_pulley(normal).mean().item() == pytest.approx(root * (1 - 3**-0.5), abs=0.03)
        zero = count * (root * (1 + 3**-0.5) - 2 * math.sqrt(math.pi))
        assert epps_pulley(0 * normal[:, 0]).item() == pytest.approx(zero, rel=1e-4)
    for other in (0 * normal, normal[:1].expand(100, -1), 3 * normal, 0.2 * normal, normal + 2):
        assert epps_pulley(other).mean() > 20


def test_sigreg_has_exact_derivatives_and_needs_isotropy(views):
    """A direction in which all rows are equal scores high: rows of lower rank are not enough."""
    loss = partial(sigreg, num_directions=3)
    leaves = [z.requires_grad_() for z in views(4, 2)]
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda *given: loss(*given, generator=seeded(0)), leaves)
    full = torch.randn(500, 8, generator=seeded(0))
    flat = full * (torch.arange(8) < 4)
    assert sigreg(flat, flat, generator=seeded(1)) > 5 * sigreg(full, full, generator=seeded(1))
    apart = sigreg(full, full + 1, trade_off=0.0)
    assert apart.item() == pytest.approx(0.25, rel=1e-4)  # each view is 1/2 off their mean, in each column


# -- weights -----------------------------------------------------------------------------------------------------------


def test_debiasing(at_cosines, slopes):
    """Negatives as near as the positive need no correction. At the lower bound, the negatives have no gradient."""
    for tau_plus in (0.0, 0.3, 0.9):
        got = debiased(*at_cosines(0.4, [0.4] * 4), tau_plus=tau_plus, temperature=0.3, reduction="none")
        assert got[0].item() == pytest.approx(math.log(5), abs=1e-12)
    rest = 3 * math.exp(-2 - 1.8)
    for loss, engine in ((debiased, "dense"), (debiased, "tiled"), (hcl, "dense")):
        got = slopes(loss, 0.9, [-0.5, 0.2, 0.1], temperature=0.5, tau_plus=0.5, engine=engine)
        assert got[0] == pytest.approx(-rest / (1 + rest) / 0.5, rel=1e-12)
        assert got[1:] == [0, 0, 0]


def test_a_steep_tilt_leaves_the_hardest_negative(at_cosines):
    """As beta grows, R rises to M e^{max s}."""
    own = {"temperature": 0.2, "tau_plus": 0.1, "reduction": "none"}
    got = hcl(*at_cosines(0.3, [-0.5, 0.1, 0.4, 0.2]), beta=1e5, **own)[0].item()
    assert got == pytest.approx(math.log1p((4 * math.exp(0.5) - 0.1 * 4) / 0.9), rel=1e-8)


@pytest.mark.parametrize(("own", "dtype"), [*product(ENGINES, (torch.float32, torch.float64))], ids=str)
def test_weights_that_all_underflow(at_cosines, dtype, own):
    """Before normalisation all weights are 0. The nearest negative is left; with an epsilon, none is."""
    own = own | {"reduction": "none"}
    views = at_cosines(0.5, [0.1, -0.4, -0.9], dtype=dtype)
    assert reweight(*views, mu=0.9, sigma=1e-3, **own)[0].item() == pytest.approx(-0.4 / 0.2, rel=1e-6)
    z1, z2 = at_cosines(0.5, [-0.5, -0.6, -0.9], dtype=dtype)
    z2.requires_grad_()
    for epsilon, expected in ((0.0, -1.0), (0.1, 0.0)):
        value = alpha_cl(z1, z2, temperature=0.001, epsilon=epsilon, **own)[0]
        assert value.item() == pytest.approx(expected, abs=1e-6)
        (slope,) = torch.autograd.grad(value, z2)
        assert torch.isfinite(slope).all()
        assert slope[0, 0].item() == pytest.approx(-0.75 if expected else 0, abs=1e-6)


# -- distances, mining, columns ----------------------------------------------------------------------------------------


def test_coincident_points_and_lengths(views):
    """Coincident rows are pushed by the whole margin and have a gradient; only the raw form sees the length."""
    z = torch.zeros(4, 3, dtype=torch.float64)
    z[:, 1] = 1.0
    for unit in (True, False):
        loss = partial(contrastive, margin=2.0, normalize=unit, negatives="all")
        assert loss(z, z).item() == pytest.approx(2.0, abs=1e-7)
        loops.finite(loss, z, z)
        loops.finite(loss, 0 * z, 0 * z)
    z1, z2 = views(4, 3)
    assert contrastive(3 * z1, z2).item() == pytest.approx(contrastive(z1, z2).item(), rel=1e-12)
    far = contrastive(100 * z1, z2, normalize=False)
    assert far.item() == pytest.approx(((100 * z1 - z2) ** 2).sum(dim=1).mean().item() / 2, rel=1e-12)


@pytest.mark.parametrize(("value", "dtype"), [(0.0, torch.float64), (0.1, torch.float32), (12345.678, torch.float32)])
def test_constant_columns(value, dtype):
    """They correlate with nothing, and are pushed apart by the whole target; the mean may be inexact."""
    for count in (3, 100):
        z1, z2 = torch.randn(2, count, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        z1[:, 1] = value
        for views in ((z1, z2), (z2, z1)):
            expected = table.barlow_twins(*(z.tolist() for z in views), off_diagonal=1.0)
            assert barlow_twins(*views, off_diagonal=1.0).item() == pytest.approx(expected, rel=1e-5)
            loops.finite(barlow_twins, *views)
        same = torch.full_like(z1, value)
        assert barlow_twins(same, same).item() == pytest.approx(3, rel=1e-6)
        for form, share in (("paper", 1.0), ("released", 0.5)):
            loss = partial(vicreg, form=form)
            assert loss(same, same).item() == pytest.approx(share * 50 * (1 - 0.01), rel=1e-3 if value > 1 else 1e-6)
            loops.finite(loss, same, same)


def test_large_dot_products_are_exact(views):
    """e^x overflows float32 for x > 88; for large |x|, softplus(x) is x or e^x."""
    z1, z2 = (60 * z for z in views(5, 3))
    for name in ("jsd", "n_pair", "tuplet"):
        slow = table.TABLE[name].reference
        rows = z1.tolist(), z2.tolist()
        exact = np.mean(slow(*rows) if name == "tuplet" else loops.terms(slow, *rows))
        for own in ENGINES:
            loss = partial(losses[name], **own)
            loops.finite(loss, z1, z2)
            loops.finite(loss, 0 * z1, z2)
            assert loss(z1.float(), z2.float()).item() == pytest.approx(exact, rel=1e-5)
    z = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    np.testing.assert_allclose(jsd(z, 40 * z, reduction="none"), [2 * math.exp(-40)] * 4, rtol=1e-9)


@pytest.mark.parametrize(("q", "temperature"), [(0.5, 0.5 / 61), (1.0, 0.01), (0.1, 0.001)])
def test_powers_that_would_overflow_are_refused(q, temperature):
    with pytest.raises(InputError, match=r"^`q` must be at most 60 times `temperature`, .*got .* at ") as caught:
        losses["rince"](*torch.ones(2, 3, 2), q=q, temperature=temperature)
    assert losses.problems("rince", {"q": q, "temperature": temperature}) == [str(caught.value)]
    ones = torch.ones(2000, 4)
    assert torch.isfinite(rince(ones, ones, q=1.0, lam=1.0, temperature=1 / 60))


# -- precision ---------------------------------------------------------------------------------------------------------


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def close_negative(distance):
    """Return two views in which each row of the second is at `distance` from another graph's row of the first."""
    z1 = normalize(noise(6, 16))
    return z1, z1.roll(1, 0) + distance * normalize(noise(6, 16).flip(1))


CONFIDENT = torch.eye(8) + 0.01 * noise(8, 8), torch.eye(8)
OPPOSITE = torch.cat([noise(3, 5), -noise(3, 5)]), torch.cat([-noise(3, 5), noise(3, 5)]) + 0.1 * noise(6, 5)
LOST = [
    *[(name, {"temperature": t}, CONFIDENT, 1e-5) for name in ("infonce", "flatnce") for t in (0.04, 0.02)],
    *[("rince", {"q": 1.0, "temperature": 1 / rate}, OPPOSITE, 1e-5) for rate in (45, 60)],
    ("rince", {"q": 1e-8}, OPPOSITE, 1e-4),
    *[("rince", {"lam": 1.0, "temperature": t}, CONFIDENT, 1e-5) for t in (0.05, 0.02)],
    ("supcon", {"labels": torch.arange(8), "temperature": 0.03}, CONFIDENT, 1e-5),
    *[("contrastive", {"normalize": unit}, close_negative(distance), 1e-6 + 1e-7 / distance * unit)
      for distance in (1e-2, 1e-4) for unit in (False, True)],
    ("siglip", {"temperature": 0.02}, CONFIDENT, 1e-5),
    ("mean_variance", {"temperature": 0.002}, noise(2, 2, 4), 1e-6),
    ("dclw", {"temperature": 0.01, "sigma": 0.005}, noise(2, 6, 4), 1e-4),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_float32_keeps_value_and_gradient(engine):
    """Confident anchors too: at gaps s+ - max s_j of 25 and 50, the derivative p+ - 1 would be rounding noise or 0."""
    for name, own, views, tolerance in LOST:
        found = []
        for dtype in (torch.float32, torch.float64):
            z1, z2 = (z.to(dtype, copy=True).requires_grad_() for z in views)
            value = losses[name](z1, z2, engine=engine, **own)
            value.backward()
            found.append([value.detach().double(), z1.grad.double(), z2.grad.double()])
        for got, want in zip(*found, strict=True):
            assert (got - want).norm() <= tolerance * want.norm(), (name, own)
