"""Test provable limits and identities of single losses; the contract with all losses is in `test_contract.py`."""

import importlib.util
import math
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

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
    explicit,
    flatnce,
    hcl,
    infonce,
    jsd,
    mean_variance,
    moco,
    n_pair,
    nt_xent,
    reweight,
    rince,
    supcon,
    triplet,
    tuplet,
    vicreg,
)
from graphcl.registry import losses
from tests.conftest import restored
from tests.losses import loops, table
from tests.losses.loops import SWITCHES

COMMON = [{"negatives": negatives, "symmetric": symmetric} for negatives, symmetric in SWITCHES]
ENGINES = [{"engine": "dense"}, {"engine": "tiled"}]


def equal(got, want, gradients, views, rtol=1e-11, **shared):
    """Assert that two losses have equal terms and gradients."""
    for some in (got, want):
        assert some(*views, reduction="none", **shared).dim() == 1
    torch.testing.assert_close(
        got(*views, reduction="none", **shared), want(*views, reduction="none", **shared), rtol=rtol, atol=1e-12
    )
    found = [gradients(partial(some, **shared), *views) for some in (got, want)]
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


# -- identities --------------------------------------------------------------------------------------------------------

IDENTITIES = {
    "a flat Gaussian gives DCL": (partial(adnce, sigma=math.inf, mu=-0.3), dcl),
    "and InfoNCE": (partial(adnce, sigma=math.inf, positive_in_denominator=True), infonce),
    "one flat Gaussian is another": (partial(reweight, sigma=math.inf, mu=-0.3), partial(reweight, sigma=math.inf)),
    "flat weights leave the mean": (partial(reweight, sigma=math.inf), partial(mean_variance, curvature=1e15)),
    "FlatNCE is DCL": (flatnce, dcl),
    "without false negatives, debiased is InfoNCE": (partial(debiased, tau_plus=0.0), infonce),
    "without tilt, HCL is debiased": (partial(hcl, beta=0.0, tau_plus=0.3), partial(debiased, tau_plus=0.3)),
    "without both, HCL is InfoNCE": (partial(hcl, beta=0.0, tau_plus=0.0), infonce),
    "DCLW with flat weights is DCL": (partial(dclw, sigma=math.inf, detach_weight=False), dcl),
    "squared distances weigh like a Gaussian at one": (
        partial(alpha_cl, temperature=0.1, power=2),
        partial(reweight, temperature=1.0, mu=1.0, sigma=math.sqrt(0.05)),
    ),
    "without clipping, chi-square is mean and variance": (
        partial(cl_dro, divergence="chi2", temperature=2.0),
        partial(mean_variance, temperature=2.0),
    ),
}


KEPT = torch.arange(12.0, dtype=torch.float64).view(3, 4).sin()
ONE_SIDED = partial(infonce, symmetric=False, temperature=0.07)
WEIGHT = {"weight": torch.arange(6.0).double()}
FIXED = {
    "NT-Xent is InfoNCE": (nt_xent, partial(infonce, negatives="all"), WEIGHT),
    "distinct labels": (partial(supcon, labels=torch.tensor([3, 1, 4, 15, 9, 2])), nt_xent, WEIGHT),
    "an empty queue": (partial(moco, queue=KEPT[:0]), ONE_SIDED, {}),
    "a queue": (partial(moco, queue=KEPT), partial(ONE_SIDED, negatives="queue", queue=KEPT), {}),
    "all pairs": (tuplet, partial(n_pair, l2_weight=0.0), WEIGHT),
}


def test_identities(views, gradients):
    for got, want in IDENTITIES.values():
        for common in COMMON:
            equal(got, want, gradients, views(6, 4), **common)
    for got, want, shared in FIXED.values():
        equal(got, want, gradients, views(6, 4), **shared)


def test_equal_cosines_give_the_logarithm_of_a_count():
    for common, same in product(COMMON, (0.0, 1.0)):
        z, count = torch.full((6, 3), same, dtype=torch.float64), {"cross": 5, "all": 10}[common["negatives"]]
        for loss, value in ((infonce, math.log(1 + count)), (dcl, math.log(count)), (cl_dro, 0), (reweight, 0)):
            assert loss(z, z, **common).item() == pytest.approx(value, abs=1e-12)
        assert supcon(z, z, labels=torch.tensor([0, 1, 0, 2, 2, 2])).item() == pytest.approx(math.log(11))
        assert triplet(z, z, margin=0.3, **common).item() == pytest.approx(0.3, abs=1e-12)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("divergence", "temperature"), [("kl", 0.1), ("kl", 2.0), ("chi2", 0.1), ("chi2", 0.5)])
def test_no_distribution_is_worse_and_the_gradient_is_the_worst(at_cosines, slopes, divergence, temperature):
    """The gradient is the maximising Q (Danskin's theorem). No random distribution exceeds its value."""
    cosines = [0.5, 0.8, -0.2, 0.9]
    own = {"temperature": temperature, "divergence": divergence}
    best = cl_dro(*at_cosines(0.3, cosines), reduction="none", **own)[0].item() + 0.3 / temperature
    positive, *q = np.array(slopes(cl_dro, 0.3, cosines, **own)) * temperature
    assert positive == pytest.approx(-1, rel=1e-11)
    assert sum(q) == pytest.approx(1, rel=1e-10)

    def objective(weights):
        u = 4 * np.clip(weights, 0, None)
        penalty = (
            np.where(u > 0, u * np.log(np.maximum(u, 1e-300)), 0) - u + 1 if divergence == "kl" else (u - 1) ** 2 / 2
        )
        return np.dot(weights, cosines) / temperature - penalty.mean()

    assert objective(np.array(q)) == pytest.approx(best, rel=1e-9)
    random = np.random.default_rng(0)
    assert all(objective(w) <= best + 1e-10 for a in (0.05, 0.5, 20.0) for w in random.dirichlet([a] * 4, size=200))


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("temperature", "mu", "sigma"), [(0.3, 0.2, 0.3), (0.5, -0.5, 0.5), (0.2, 0.7, 1.0)])
def test_adnces_gradient_peaks_at_mu_plus_sigma_squared_over_temperature(slopes, temperature, mu, sigma):
    """With sigma 1 the peak lies beyond cosine 1, and the hardest negative dominates."""
    peak, grid = mu + sigma**2 / temperature, np.linspace(-0.98, 0.98, 99)
    got = np.array(slopes(adnce, 0.2, grid, temperature=temperature, mu=mu, sigma=sigma)[1:])
    assert abs(grid[got.argmax()] - min(peak, 0.98)) <= 0.02
    expected = np.exp(-((grid - peak) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(got / got.sum(), expected / expected.sum(), rtol=1e-9, atol=1e-12)


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
    """As beta grows, R rises monotonically to M e^{max s}; equal negatives cannot be tilted."""
    views, own = at_cosines(0.3, [-0.5, 0.1, 0.4, 0.2]), {"temperature": 0.2, "tau_plus": 0.1, "reduction": "none"}
    got = [hcl(*views, beta=beta, **own)[0].item() for beta in (0, 0.5, 1, 4, 100, 1e5)]
    assert (np.diff(got[:5]) > 0).all()
    assert got[-1] == pytest.approx(math.log1p((4 * math.exp(0.5) - 0.1 * 4) / 0.9), rel=1e-8)
    views = at_cosines(0.5, [0.1] * 4)
    assert hcl(*views, beta=30.0, **own)[0].item() == pytest.approx(debiased(*views, **own)[0].item(), rel=1e-11)


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


@pytest.mark.parametrize("loss", [infonce, flatnce], ids=["infonce", "flatnce"])
def test_confident_anchors_keep_their_gradient(loss, gradients, at_cosines):
    """At gaps s+ - max s_j of 12 to 60, the derivative computed as p+ - 1 would be rounding noise or 0."""
    rows = torch.randn(115, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near = rows[:50] + 0.05 * rows[50:100]

    def direction(dtype):
        anchors = rows[:50].to(dtype, copy=True).requires_grad_()
        loss.terms(explicit(anchors, near.to(dtype), rows[100:].to(dtype)), temperature=0.04).sum().backward()
        return normalize(anchors.grad.double(), dim=1, eps=1e-300)

    assert (direction(torch.float32) - direction(torch.float64)).norm(dim=1).median() < 1e-5
    for dtype, temperature, error in ((torch.float32, 0.03, 1e-4), (torch.bfloat16, 0.05, 5e-3)):
        if dtype is torch.float32 or loss is flatnce:
            views = at_cosines(0.9, np.linspace(-0.95, -0.3, 15), dtype=dtype)

            def first(a, b, temperature=temperature):
                return loss(a, b, temperature=temperature, reduction="none")[0]

            got, want = (gradients(first, *some) for some in (views, [z.double() for z in views]))
            assert np.linalg.norm(got - want) < error * np.linalg.norm(want)


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def close_negative(distance):
    """Return two views in which each row of the second is at `distance` from another graph's row of the first."""
    z1 = normalize(noise(6, 16))
    return z1, z1.roll(1, 0) + distance * normalize(noise(6, 16).flip(1))


CONFIDENT = torch.eye(8) + 0.01 * noise(8, 8), torch.eye(8)
OPPOSITE = torch.cat([noise(3, 5), -noise(3, 5)]), torch.cat([-noise(3, 5), noise(3, 5)]) + 0.1 * noise(6, 5)
LOST = [
    *[("rince", {"q": 1.0, "temperature": 1 / rate}, OPPOSITE, 1e-5) for rate in (45, 60)],
    ("rince", {"q": 1e-8}, OPPOSITE, 1e-4),
    *[("rince", {"lam": 1.0, "temperature": t}, CONFIDENT, 1e-5) for t in (0.05, 0.02)],
    ("supcon", {"labels": torch.arange(8), "temperature": 0.03}, CONFIDENT, 1e-5),
    *[("contrastive", {"normalize": unit}, close_negative(distance), 1e-6 + 1e-7 / distance * unit)
      for distance in (1e-2, 1e-4) for unit in (False, True)],
    ("mean_variance", {"temperature": 0.002}, noise(2, 2, 4), 1e-6),
    ("dclw", {"temperature": 0.01, "sigma": 0.005}, noise(2, 6, 4), 1e-4),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_float32_keeps_value_and_gradient(engine):
    for name, own, views, tolerance in LOST:
        found = []
        for dtype in (torch.float32, torch.float64):
            z1, z2 = (z.to(dtype, copy=True).requires_grad_() for z in views)
            value = losses[name](z1, z2, engine=engine, **own)
            value.backward()
            found.append([value.detach().double(), z1.grad.double(), z2.grad.double()])
        for got, want in zip(*found, strict=True):
            assert (got - want).norm() <= tolerance * want.norm(), (name, own)


def test_the_study_loss_adnce_auto():
    """The loss of benchmarks/studies trains, and equal cosines give DCL."""
    path = Path(__file__).parents[2] / "benchmarks" / "studies" / "adnce_auto.py"
    spec = importlib.util.spec_from_file_location("adnce_auto", path)
    module = importlib.util.module_from_spec(spec)
    with restored(losses):
        spec.loader.exec_module(module)
    z = torch.ones(5, 3)
    for rule in ("quantile", "radius", "tilt"):
        torch.testing.assert_close(module.adnce_auto(z, z, rule=rule), dcl(z, z))
        loops.finite(partial(module.adnce_auto, rule=rule), *torch.randn(2, 8, 4))
