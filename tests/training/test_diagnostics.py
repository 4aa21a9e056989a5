"""Test the diagnostics against hand-computed values and known identities."""

import math

import pytest
import torch

from graphcl.losses import dcl, infonce
from graphcl.training.diagnostics import (
    alignment,
    coupling,
    diagnose,
    effective_rank,
    max_variance_ratio,
    uniformity,
)
from graphcl.training.mutual_information import estimates

AXES = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
ON_A_CIRCLE = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 5.0]])
SHARED = torch.tensor([[1.0, 5.0, 0.0], [-1.0, 5.0, 0.0], [1.0, 5.0, 6.0], [-1.0, 5.0, 6.0]])
THREE_TO_ONE = torch.diag(torch.tensor([3.0, 1.0, 0.0]))


BY_HAND = [
    (alignment(AXES, 3 * AXES), 0),
    (alignment(AXES, -AXES), 4),
    (uniformity(ON_A_CIRCLE), math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)),
    (uniformity(torch.ones(4, 3)), 0),
    (max_variance_ratio(SHARED), 0.9),  # variances 1, 0 and 9
    (max_variance_ratio(SHARED[:, 1:2]), 0),
    (max_variance_ratio(1e30 * SHARED), 0.9),
    (effective_rank(torch.ones(6, 4)), 1),
    (effective_rank(torch.zeros(6, 4)), 0),
    (effective_rank(THREE_TO_ONE), 4 / 3**0.75),  # entropy of (3/4, 1/4)
    (effective_rank(torch.full((6, 4), math.nan)), math.nan),  # refused by the SVD; training names the epoch
]  # fmt: skip


def test_by_hand():
    found, expected = ([float(each) for each in column] for column in zip(*BY_HAND, strict=True))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)


def views(count=9, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, count, columns, generator=generator, dtype=torch.float64).unbind()


def test_the_gradient_of_infonce_is_q_times_that_of_dcl():
    """The identity of the DCL paper holds for each anchor to 1e-12."""
    leaves = [z.requires_grad_() for z in views(4)]
    options = {"temperature": 0.2, "symmetric": False, "reduction": "none"}
    q = coupling(*leaves, 0.2).detach()
    for i in range(4):
        coupled = torch.autograd.grad(infonce(*leaves, **options)[i], leaves)
        decoupled = torch.autograd.grad(dcl(*leaves, **options)[i], leaves)
        for a, b in zip(coupled, decoupled, strict=True):
            torch.testing.assert_close(a, q[i] * b, rtol=1e-12, atol=1e-12)


def test_diagnose_by_hand():
    """Compare each metric with a plain loop over its definition."""
    z1, z2 = views()
    tau = 0.3
    found = {name: value.item() for name, value in diagnose(z1, z1, z2, tau).items()}
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    rows = [[float(a[i] @ b[j]) for j in range(9) if j != i] for i in range(9)]
    weights = [[math.exp(c / tau) / sum(math.exp(each / tau) for each in row) for c in row] for row in rows]
    entropy = sum(-sum(w * math.log(w) for w in row) for row in weights) / 9
    radius = sum(sum(w * math.log(8 * w) for w in row) for row in weights) / 9
    variance = sum(sum((c - sum(row) / 8) ** 2 for c in row) / 8 for row in rows) / 9
    q = coupling(z1, z2, tau)
    assert found == pytest.approx({
        "rank_h": effective_rank(z1).item(), "rank_z": effective_rank(z1).item(),
        "npc_mean": q.mean().item(), "npc_std": q.std(correction=0).item(),
        "negative_mean": sum(map(sum, rows)) / 72, "negative_variance": variance,
        "dro_entropy": entropy / math.log(8), "dro_radius": radius,
        "temperature_estimate": math.sqrt(variance / (2 * radius)),
        **{name: value.item() for name, value in estimates((a @ b.T) / tau).items()},
    })  # fmt: skip


def test_degenerate_batches_have_finite_diagnostics():
    for z in (torch.ones(4, 3), torch.zeros(4, 3), torch.eye(2)):
        assert all(torch.isfinite(value) for value in diagnose(z, z, z, 0.2).values())
