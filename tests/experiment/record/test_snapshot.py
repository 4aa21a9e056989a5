"""Snapshots: histograms count the cosines, and training is unchanged."""

import copy

import numpy as np
import pytest
import torch

from graphcl import Identity, ResidentLoader, load_dataset
from graphcl.config import make_config
from graphcl.experiment.record.snapshot import EDGES, report_arrays, snapshot
from graphcl.experiment.trial import Trial
from graphcl.report.figures import plot_indices, principal_plane
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs
from tests.methods.small import OF_GRAPHS, seeded
from tests.training.helpers import equal
from tests.trials import make_method, make_model


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
    assert set(found) == {"positive", "negative", "same_class"}


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_a_snapshot_changes_neither_the_method_nor_the_draws(name, dataset):
    config = make_config({"method": name, "encoder": {"name": "gin", "hidden_channels": 8}})
    trial = Trial(make_task(config, dataset), 0, torch.device("cpu"))
    method = trial.method
    before, draws = copy.deepcopy(method), torch.get_rng_state()
    arrays = report_arrays(trial, torch.rand(len(dataset), 5, generator=seeded(0)))
    assert {"positive", "negative", "map", "shares"} <= {*arrays}
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
