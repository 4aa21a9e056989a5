"""Snapshots: histograms and weights equal their formulas, and training is unchanged."""

import copy

import numpy as np
import pytest
import torch

from graphcl import Identity, Loss, ResidentLoader, TwoViews, load_dataset
from graphcl.config import make_config
from graphcl.evaluate.pca import plot_indices, principal_plane
from graphcl.experiment.build import make_method, make_model
from graphcl.experiment.record.snapshot import EDGES, pushes, report_arrays, snapshot
from graphcl.losses import infonce
from graphcl.registry import losses
from tests.conftest import small_graphs
from tests.methods.small import OF_GRAPHS, seeded, spec
from tests.training.helpers import equal


def two_sides():
    z1, z2 = torch.randn(2, 20, 6, generator=seeded(0))
    return z1, z1 + z2


@pytest.mark.parametrize("name", losses)
def test_the_mean_push_of_an_anchor_is_one(name):
    found = pushes(Loss(name), *two_sides())
    if found is None:
        assert not hasattr(losses[name], "terms") or name in ("contrastive", "jsd", "n_pair", "supcon", "tuplet")
        return
    cosine, push, weight = found
    ones = torch.ones(len(push), dtype=push.dtype)
    assert cosine.shape == push.shape
    torch.testing.assert_close(push.mean(dim=1), ones)
    assert weight is None or torch.allclose(weight.mean(dim=1), ones)
    if name in ("infonce", "dcl", "flatnce", "nt_xent", "debiased", "dclw"):  # which weight all negatives equally
        _, push, weight = pushes(Loss(name, temperature=0.5), *two_sides())
        torch.testing.assert_close(weight, torch.ones_like(weight))
        assert push.max() > 2


def test_the_weights_of_adnce_are_those_of_its_paper():
    for sigma in (0.2, 1.0):
        cosine, push, weight = pushes(Loss("adnce", mu=0.3, sigma=sigma, temperature=0.1), *two_sides())
        gaussian = torch.exp(-((cosine - 0.3) ** 2) / (2 * sigma**2))
        torch.testing.assert_close(weight, gaussian / gaussian.mean(dim=1, keepdim=True))
        pull = gaussian * torch.exp(cosine / 0.1)
        torch.testing.assert_close(push, pull / pull.mean(dim=1, keepdim=True))
    # at a small temperature, the weights underflow
    _, push, weight = pushes(Loss("adnce", temperature=1e-3), *two_sides())
    assert push.isfinite().all()
    assert weight is None


@pytest.fixture(scope="module")
def dataset():
    return load_dataset(small_graphs())


def test_two_equal_views_have_the_cosine_one(dataset):
    config, n = make_config({}), len(dataset)
    method = make_method(config, dataset, make_model(config, dataset))
    loader = ResidentLoader(dataset, n)
    found = snapshot(method, loader, Identity(), Identity(), seeded(0))
    assert found["positive"].tolist() == [0] * (len(EDGES) - 2) + [n]
    assert found["negative"].sum() + found["same_class"].sum() == n * (n - 1)
    assert found["same_class"].sum() == (dataset.y[:, None] == dataset.y).sum() - n
    # Both views are anchors, hence the factor 2; InfoNCE gives every negative the weight 1.
    assert found["weight"][0].sum() == 2 * n * (n - 1)
    assert np.allclose(found["weight"][0], found["weight"][1])
    unregistered = TwoViews(method.model, lambda z1, z2: infonce(z1, z2))
    found = snapshot(unregistered, loader, Identity(), Identity(), seeded(0))
    assert set(found) == {"positive", "negative", "same_class"}


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_a_snapshot_changes_neither_the_method_nor_the_draws(name, dataset):
    config = make_config({"method": spec(name, len(dataset)), "encoder": {"name": "gin", "hidden_channels": 8}})
    method = make_method(config, dataset, make_model(config, dataset))
    before, draws = copy.deepcopy(method), torch.get_rng_state()
    h, whole = torch.rand(len(dataset), 5, generator=seeded(0)), ResidentLoader(dataset, 64)
    found, alone = (report_arrays(config, dataset, method, h, like=like) for like in (whole, None))
    assert all(np.array_equal(found[key], alone[key]) for key in alone)
    assert torch.equal(draws, torch.get_rng_state())
    assert equal(before, method)


def test_the_plane_equals_the_singular_vectors():
    h = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([5, 3, 1, 1, 1, 0.1])
    h = np.column_stack([h, h[:, 0] + h[:, 1], np.full(50, 7.0)])  # a constant column changes nothing
    points, shares = principal_plane(h)
    columns = h[:, :-1] - h[:, :-1].mean(axis=0)
    u, s, _ = np.linalg.svd(columns / columns.std(axis=0), full_matrices=False)
    assert np.allclose(np.abs(points), np.abs(u[:, :2] * s[:2]))
    assert np.allclose(shares, s[:2] ** 2 / (s**2).sum())
    assert ((points**3).sum(axis=0) >= 0).all()
    for h in (np.ones((4, 3)), np.zeros((1, 2))):  # without variance
        assert [each.tolist() for each in principal_plane(h)] == [[[0, 0]] * len(h), [0, 0]]


def test_a_map_shows_at_most_2000_graphs_evenly():
    assert plot_indices(5).tolist() == [0, 1, 2, 3, 4]
    shown = plot_indices(10_001)
    assert (len(np.unique(shown)), shown[0], shown[-1]) == (2000, 0, 10_000)
