"""Test `cl_dro` against float64 loops that solve the inner maximisation by bisection, and by primal and dual bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from graphcl.losses import cl_dro, dcl, mean_variance
from tests.losses import loops


def penalty(u, divergence, alpha):
    """Return phi(u), which is >= 0, and 0 at u = 1."""
    if divergence == "kl":
        return (u * math.log(u) if u else 0.0) - u + 1
    if divergence == "chi2":
        return (u - 1) ** 2 / 2
    return (u**alpha - alpha * u + alpha - 1) / (alpha * (alpha - 1))


def density(x, divergence, alpha):
    """Return the u >= 0 that maximises u x - phi(u): the solution of phi'(u) = x, or 0 if there is none."""
    if divergence == "kl":
        return math.exp(x)
    if divergence == "chi2":
        return max(0.0, 1 + x)
    return max(0.0, 1 + (alpha - 1) * x) ** (1 / (alpha - 1))


def objective(weights, scores, divergence, alpha):
    """Return sum_j Q_j s_j - (1 / M) sum_j phi(M Q_j) for Q = `weights` and s = `scores`."""
    count = len(scores)
    gain = math.fsum(q * s for q, s in zip(weights, scores, strict=True))
    return gain - math.fsum(penalty(count * q, divergence, alpha) for q in weights) / count


def term(positive, negatives, temperature=0.2, divergence="kl", alpha=1.5):
    """Return -s+ + max_Q objective(Q). Bisection finds the dual variable nu, which gives the maximising Q."""
    scores = [c / temperature for c in negatives]
    low, high = min(scores), max(scores)
    for _ in range(60):
        level = (low + high) / 2
        if math.fsum(density(s - level, divergence, alpha) for s in scores) > len(scores):
            low = level
        else:
            high = level
    weights = [density(s - level, divergence, alpha) for s in scores]
    total = math.fsum(weights)
    return objective([w / total for w in weights], scores, divergence, alpha) - positive / temperature


batch = loops.of_cosines(term)
KINDS = [{}, {"divergence": "chi2"}, {"divergence": "alpha"}, {"divergence": "alpha", "alpha": 3.0}]
SETTINGS = [{"temperature": (0.2, 0.7)[number % 2], **own} for number, own in enumerate(KINDS)]
RANDOM = {"divergence": st.sampled_from(["kl", "chi2", "alpha"]), "alpha": st.floats(1.05, 6)}
SMOOTH = [{"temperature": 0.5, **own} for own in KINDS]
FLOAT32 = [*KINDS, {"divergence": "alpha", "alpha": 1.01}]
RANGES = {"alpha": "(1, inf)"}
SCORES = [-1.0, 0.5, 0.8, -0.2, 0.9, 0.85]


def test_by_hand(at_cosines):
    """Logits 1, 0 give log((e + 1) / 2) for KL and 1/2 + 1/8 for chi2. Logits 3, 0 put all weight on the first."""
    for cosines, t, own, best in (
        ([1.0, 0.0], 1.0, {}, math.log((math.e + 1) / 2)),
        ([1.0, 0.0], 1.0, {"divergence": "chi2"}, 1 / 2 + 1 / 8),
        ([0.6, 0.0], 0.2, {"divergence": "chi2"}, 3 - 1 / 2),
        # phi(2) and phi(0) for alpha = 3: (8 - 6 + 2) / 6 and 2 / 6.
        ([0.6, 0.0], 0.2, {"divergence": "alpha", "alpha": 3.0}, 3 - (4 / 6 + 2 / 6) / 2),
    ):
        assert term(0.5, cosines, t, **own) == pytest.approx(best - 0.5 / t, rel=1e-13)
        got = cl_dro(*at_cosines(0.5, cosines), temperature=t, reduction="none", **own)
        assert got[0].item() == pytest.approx(best - 0.5 / t, rel=1e-12)


@pytest.mark.parametrize("own", KINDS, ids=str)
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_no_distribution_is_worse_and_the_gradient_is_the_worst(at_cosines, own, temperature):
    """The gradient is the maximising Q (Danskin's theorem). No random distribution exceeds its value."""
    z1, z2 = at_cosines(0.3, SCORES[1:5])
    z2.requires_grad_()
    value = cl_dro(z1, z2, temperature=temperature, reduction="none", **own)[0]
    value.backward()
    slopes = (z2.grad[:, 0] / (1 - z2[:, 0] ** 2) * temperature).detach().numpy()
    kind, alpha = own.get("divergence", "kl"), own.get("alpha", 1.5)
    scores, best = [c / temperature for c in SCORES[1:5]], value.item() + 0.3 / temperature
    assert slopes[0] == pytest.approx(-1, rel=1e-11)
    assert slopes[1:].sum() == pytest.approx(1, rel=1e-10)
    assert slopes[1:].min() > -1e-12
    assert objective(slopes[1:].clip(min=0), scores, kind, alpha) == pytest.approx(best, rel=1e-9)
    random = np.random.default_rng(0)
    for concentration in (0.05, 0.5, 1.0, 20.0):
        for weights in random.dirichlet([concentration] * 4, size=200):
            assert objective(weights, scores, kind, alpha) <= best + 1e-10


@pytest.mark.parametrize(("negatives", "symmetric"), loops.SWITCHES)
def test_kl_is_dcl_less_the_log_of_the_number_of_negatives(views, gradients, negatives, symmetric):
    z1, z2 = views(6, 4)
    common = {"negatives": negatives, "symmetric": symmetric}
    expected = dcl(z1, z2, reduction="none", **common) - math.log({"cross": 5, "all": 10}[negatives])
    torch.testing.assert_close(cl_dro(z1, z2, reduction="none", **common), expected, rtol=1e-12, atol=1e-12)
    got = gradients(lambda a, b: cl_dro(a, b, **common), z1, z2)
    np.testing.assert_allclose(got, gradients(lambda a, b: dcl(a, b, **common), z1, z2), rtol=1e-10, atol=1e-12)


def test_chi2_is_mean_variance_until_a_weight_would_be_negative(views, gradients):
    """`mean_variance` is an upper bound of chi2, with equality if and only if no weight is clipped at 0."""
    clipped = []
    for seed in range(5):
        z1, z2 = views(6, 4, seed)
        cosine = torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1)
        negative = cosine[~torch.eye(6, dtype=torch.bool)].view(6, 5)
        least = (1 + (negative - negative.mean(dim=1, keepdim=True)) / 0.5).min(dim=1).values
        common = {"temperature": 0.5, "symmetric": False, "reduction": "none"}
        gap = mean_variance(z1, z2, **common) - cl_dro(z1, z2, divergence="chi2", **common)
        assert (gap[least >= 0].abs() < 1e-12).all()
        assert (gap[least < -0.01] > 1e-7).all()
        clipped += (least < -0.01).tolist()
        # At temperature 2 no weight is clipped, as the mean exceeds the minimum by at most 2 / t.
        np.testing.assert_allclose(
            gradients(lambda a, b: cl_dro(a, b, temperature=2.0, divergence="chi2"), z1, z2),
            gradients(lambda a, b: mean_variance(a, b, temperature=2.0), z1, z2),
            rtol=1e-9,
            atol=1e-12,
        )
    assert 5 < sum(clipped) < 25


def test_alpha_near_one_tends_to_kl(views, gradients):
    """The difference to KL, of values and gradients, is proportional to alpha - 1."""
    z1, z2 = views(6, 4)
    errors = []
    for alpha in (1 + 1e-3, 1 + 1e-4, 1 + 1e-5):
        own = {"divergence": "alpha", "alpha": alpha}
        value = cl_dro(z1, z2, reduction="none", **own) - cl_dro(z1, z2, reduction="none")
        slope = gradients(lambda a, b: cl_dro(a, b, **own), z1, z2) - gradients(cl_dro, z1, z2)  # noqa: B023
        errors.append([value.norm().item(), np.linalg.norm(slope)])
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.05)


@pytest.mark.parametrize(("own", "order"), [(KINDS[0], 1.0), (KINDS[1], 2.0), (KINDS[2], 1.5), (KINDS[3], 3.0)])
def test_all_agree_to_second_order_at_a_high_temperature(views, own, order):
    """phi''(1) = 1 and phi'''(1) = alpha - 2, so L = mean + variance / 2 + (2 - alpha) / 6 * third moment + ..."""
    z1, z2 = views(6, 4)
    t, common = 200.0, {"symmetric": False, "reduction": "none", "temperature": 200.0}
    cosine = torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=-1)
    negative = cosine[~torch.eye(6, dtype=torch.bool)].view(6, 5)
    third = ((negative - negative.mean(dim=1, keepdim=True)) ** 3).mean(dim=1)
    difference = t**3 * (cl_dro(z1, z2, **common, **own) - mean_variance(z1, z2, **common))
    torch.testing.assert_close(difference, (2 - order) / 6 * third, rtol=0, atol=0.02 * third.norm().item())


@pytest.mark.parametrize("own", KINDS, ids=str)
def test_one_or_equal_negatives_leave_nothing_to_choose(at_cosines, own):
    for negatives in ([-0.4], [-0.4] * 5):
        got = cl_dro(*at_cosines(0.3, negatives), reduction="none", **own)[0].item()
        assert got == pytest.approx((-0.4 - 0.3) / 0.2, rel=1e-12)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_what_is_left_out_does_not_overflow(engine):
    """The masked similarity of an anchor with itself exceeds the other similarities by a factor e^100."""
    z = torch.eye(40, 50).requires_grad_()
    value = cl_dro(z, torch.eye(40, 50), divergence="alpha", alpha=1.001, temperature=0.01, engine=engine)
    value.backward()
    assert value.item() == pytest.approx(-100, rel=1e-5)
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("alpha", [1 + 1e-7, 1 + 1e-5, 1.05])
def test_single_precision_near_kl(views, alpha):
    z1, z2 = views(12, 5)
    exact = cl_dro(z1, z2, divergence="alpha", alpha=alpha)
    single = cl_dro(z1.float(), z2.float(), divergence="alpha", alpha=alpha)
    assert single.item() == pytest.approx(exact.item(), rel=2e-5)
