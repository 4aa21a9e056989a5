"""Test the evaluators of nodes: splits, the choice of C, clusters, and messages."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from graphcl.errors import InputError
from graphcl.evaluate.folds import unit_rows
from graphcl.extensions.nodes.evaluators import ari, nmi, public_split, random_splits
from tests.evaluate.data import blobs

H, Y = blobs(n=200, features=6, classes=3, noise=1.0)
SPLIT = {"train": np.arange(40), "valid": np.arange(40, 100), "test": np.arange(100, 200)}


def reference(h, y, train, valid, test, grid):
    """Return the test accuracy, C and the validation accuracy by a plain search."""
    h, found = unit_rows(h), []
    for c in grid:
        model = LogisticRegression(C=c, max_iter=10000).fit(h[train], y[train])
        found.append((model.score(h[valid], y[valid]), -c, model.score(h[test], y[test])))
    inner, c, accuracy = max(found)
    return 100 * accuracy, -c, 100 * inner


def test_random_splits_equal_a_plain_search():
    got = random_splits(H, Y, seed=3, splits=4, grid=(0.1, 10.0))
    rng, expected = np.random.default_rng(3), []
    for _ in range(4):
        order = rng.permutation(200)
        expected.append(reference(H, Y, order[:20], order[20:40], order[40:], (0.1, 10.0)))
    assert got.accuracy == pytest.approx([accuracy for accuracy, _, _ in expected], abs=1e-9)
    assert got.chosen == tuple(c for _, c, _ in expected)
    assert got.inner == pytest.approx([inner for _, _, inner in expected], abs=1e-9)
    assert (got.folds, got.test_ratio) == (4, 8.0)


def test_the_public_split_equals_a_plain_search():
    wide = np.random.default_rng(0).normal(size=(200, 60)) + 0.4 * np.eye(60)[20 * Y]  # more columns than training rows
    for h in (H, wide):
        got = public_split(torch.from_numpy(h), torch.from_numpy(Y), split=SPLIT, grid=(0.1, 10.0))
        expected = reference(h, Y, *SPLIT.values(), (0.1, 10.0))
        assert (got.accuracy[0], got.chosen[0], got.inner[0]) == pytest.approx(expected, abs=1e-9)


def test_few_nodes_and_a_training_part_of_one_class():
    y = np.zeros(40, dtype=int)
    y[0] = 1
    assert random_splits(np.ones((40, 2)), y, splits=8).mean == pytest.approx(97.5, abs=1.5)
    with pytest.raises(InputError, match=r"^`h` must have 20 rows or more, got 10\.$"):
        random_splits(H[:10], Y[:10])


def test_clusters_are_compared_by_scikit_learn():
    found = KMeans(3, n_init=10, random_state=5).fit(unit_rows(H))
    for metric, compare in [(nmi, normalized_mutual_info_score), (ari, adjusted_rand_score)]:
        assert metric(H, Y, seed=5).mean == pytest.approx(100 * compare(Y, found.labels_))
        assert metric(H, Y).metric == metric.__name__
        assert metric(np.zeros((30, 2)), np.arange(30) % 2).mean == 0  # equal rows have no clusters
    separate = nmi(np.eye(6)[Y] + 0.01 * H, (Y + 1) % 3)
    assert (separate.mean, separate.inner[0] > 90) == (pytest.approx(100), True)
