"""Test the diagnostics against hand-computed values and known identities."""

import json
import math

import pytest
import torch

from graphcl.losses import dcl, infonce
from graphcl.run import main
from graphcl.training.diagnostics import (
    alignment,
    coupling,
    diagnose,
    effective_rank,
    information,
    max_variance_ratio,
    uniformity,
)
from tests.losses.loops import compared, cosines, log_sum_exp, softplus

AXES = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
ON_A_CIRCLE = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 5.0]])
SHARED = torch.tensor([[1.0, 5.0, 0.0], [-1.0, 5.0, 0.0], [1.0, 5.0, 6.0], [-1.0, 5.0, 6.0]])
THREE_TO_ONE = torch.diag(torch.tensor([3.0, 1.0, 0.0]))


@pytest.mark.parametrize(("found", "expected"), [
    (alignment(AXES, 3 * AXES), 0),
    (alignment(AXES, -AXES), 4),
    (alignment(AXES, AXES.flip(1)), 2),
    (uniformity(ON_A_CIRCLE), math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)),
    (uniformity(torch.ones(4, 3)), 0),
    (max_variance_ratio(SHARED), 0.9),  # variances 1, 0 and 9
    (max_variance_ratio(SHARED[:, :1]), 1),
    (max_variance_ratio(SHARED[:, 1:2]), 0),
    (max_variance_ratio(1e30 * SHARED), 0.9),
    (effective_rank(torch.eye(6)), 6),
    (effective_rank(torch.ones(6, 4)), 1),
    (effective_rank(torch.zeros(6, 4)), 0),
    (effective_rank(THREE_TO_ONE), 4 / 3**0.75),  # entropy of (3/4, 1/4)
    (effective_rank(1e-3 * THREE_TO_ONE), 4 / 3**0.75),
    (effective_rank(torch.full((6, 4), math.nan)), math.nan),  # refused by the SVD; training names the epoch
    (effective_rank(torch.full((6, 4), math.inf)), math.nan),
])  # fmt: skip
def test_by_hand(found, expected):
    assert found.item() == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)


def test_even_is_lower_than_clustered():
    generator = torch.Generator().manual_seed(0)
    even = torch.randn(200, 64, generator=generator)
    assert uniformity(even) < -3.5 < uniformity(even + 5)


def views(count=9, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, count, columns, generator=generator, dtype=torch.float64).unbind()


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_the_gradient_of_infonce_is_q_times_that_of_dcl(temperature):
    """The identity of the DCL paper holds for each anchor to 1e-12."""
    leaves = [z.requires_grad_() for z in views()]
    options = {"temperature": temperature, "symmetric": False, "reduction": "none"}
    q = coupling(*leaves, temperature).detach()
    for i in range(9):
        coupled = torch.autograd.grad(infonce(*leaves, **options)[i], leaves)
        decoupled = torch.autograd.grad(dcl(*leaves, **options)[i], leaves)
        for a, b in zip(coupled, decoupled, strict=True):
            torch.testing.assert_close(a, q[i] * b, rtol=1e-12, atol=1e-12)


def test_coupling_grows_with_the_batch():
    """More negatives increase q for every anchor."""
    z1, z2 = views(40)
    few, many = coupling(z1[:8], z2[:8], 0.2), coupling(z1, z2, 0.2)
    assert (many[:8] > few).all()
    assert ((many > 0) & (many < 1)).all()


def test_diagnose_by_hand():
    """Compare each metric with a plain loop over its definition."""
    z1, z2 = views()
    temperature = 0.3
    found = {name: value.item() for name, value in diagnose(z1, z1, z2, temperature).items()}
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    entropies, radii, variances, negatives = [], [], [], []
    for i in range(9):
        c = [float(a[i] @ b[j]) for j in range(9) if j != i]
        total = sum(math.exp(each / temperature) for each in c)
        weights = [math.exp(each / temperature) / total for each in c]
        entropies.append(-sum(w * math.log(w) for w in weights) / math.log(8))
        radii.append(sum(w * math.log(8 * w) for w in weights))
        mean = sum(c) / 8
        variances.append(sum((each - mean) ** 2 for each in c) / 8)
        negatives += c
    assert found["dro_entropy"] == pytest.approx(sum(entropies) / 9)
    assert found["dro_radius"] == pytest.approx(sum(radii) / 9)
    assert found["negative_variance"] == pytest.approx(sum(variances) / 9)
    assert found["negative_mean"] == pytest.approx(sum(negatives) / 72)
    assert found["temperature_estimate"] == pytest.approx(math.sqrt(sum(variances) / (2 * sum(radii))))
    assert found["npc_mean"] == pytest.approx(coupling(z1, z2, temperature).mean().item())
    assert found["rank_h"] == pytest.approx(effective_rank(z1).item())


def test_the_temperature_estimate_equals_a_high_temperature():
    z1, z2 = views(200, 64)
    for temperature in (0.5, 1.0, 2.0):
        estimated = diagnose(z1, z1, z2, temperature)["temperature_estimate"].item()
        assert estimated == pytest.approx(temperature, rel=0.05)


def test_degenerate_batches_have_finite_diagnostics():
    for z in (torch.ones(4, 3), torch.zeros(4, 3), torch.eye(2)):
        assert all(torch.isfinite(value) for value in diagnose(z, z, z, 0.2).values())


def test_diagnostics_are_logged(tmp_path, saved_graphs):
    arguments = ["--dataset", saved_graphs(), "--epochs", "1", "--seeds", "0", "--eval", "knn", "--report", "false"]
    assert main([*arguments, "--diagnostics", "true", "--out", str(tmp_path / "run")]) == 0
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert set(diagnose(torch.eye(3), torch.eye(3), torch.eye(3), 0.2)) <= set(json.loads(line))


def lowest(function, low=-100.0, high=100.0):
    """Return the minimum of a convex function by ternary search."""
    for _ in range(300):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if function(first) < function(second) else (first, high)
    return function(low)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("negatives", ["cross", "all"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_information_equals_its_equations(negatives, symmetric, temperature):
    """The reference of `kl` and `chi2` searches the best shift, of which the code uses the solution."""
    z1, z2 = views()
    rows = cosines(compared(z1.tolist(), z2.tolist(), negatives=negatives, symmetric=symmetric))
    rows = [(positive / temperature, [each / temperature for each in keys]) for positive, keys in rows]
    joint, product = [positive for positive, _ in rows], [each for _, keys in rows for each in keys]

    def mean(values):
        return math.fsum(values) / len(values)

    def tight(conjugate):
        return mean(joint) - lowest(lambda shift: shift + mean([conjugate(each - shift) for each in product]))

    found = information(z1, z2, temperature=temperature, negatives=negatives, symmetric=symmetric)
    expected = {
        "infonce": mean([p - log_sum_exp([p, *keys]) + math.log(1 + len(keys)) for p, keys in rows]),
        "dv": mean(joint) - math.log(mean([math.exp(each) for each in product])),
        "nwj": mean(joint) - mean([math.exp(each - 1) for each in product]),
        "js": -mean([softplus(-each) for each in joint]) - mean([softplus(each) for each in product]),
        "kl": tight(math.expm1),
        "chi2": tight(lambda t: t + t**2 / 4),
    }
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("negatives", ["cross", "all"])
def test_information_of_identical_and_independent_views(negatives):
    z, other = views(64, 256)
    most = math.log(64 if negatives == "cross" else 127)
    alike = information(z, z, temperature=0.05, negatives=negatives)
    assert most - 0.01 < alike["infonce"] <= most
    nothing = {"infonce": 0, "dv": 0, "nwj": -math.exp(-1), "js": -2 * math.log(2), "kl": 0, "chi2": 0}
    apart = {name: float(each) for name, each in information(z, other, temperature=1.0, negatives=negatives).items()}
    assert apart == pytest.approx(nothing, abs=0.03)
