"""Test the rows without training of graphs and vectors against scikit-learn and a search by hand."""

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from graphcl import load_dataset, make_config
from graphcl.datasets.load import load_targets
from graphcl.datasets.pair_file import with_pairs
from graphcl.extensions.vectors import references
from graphcl.extensions.vectors.references import PENALTIES, _wl_counts, nearest_wl, ridge_wl
from graphcl.references.rows import Inputs
from graphcl.tasks.task import make_task
from tests.extensions.vectors.test_task import GRAPHS, PAIRS, VECTORS, N

IDS = [f"v{i}" for i in range(N)]


def inputs(vectors=None):
    """Return the inputs of rows, with vectors of other scales, of a task on standardised vectors."""
    rows = np.nan_to_num(VECTORS if vectors is None else vectors) * np.array([1, 5, 1, 0.2, 1])
    dataset = with_pairs(load_dataset(GRAPHS), [*PAIRS, ("g0", "v1")], load_targets({"h": rows, "id": IDS}))
    task = make_task(make_config({"eval": ["retrieval"], "positives": "pairs", "towers": "separate"}), dataset)
    task = task.standardised(task.make_model())
    return Inputs(task.dataset, (), None, None, parts=task.parts, facts=task.facts), rows


def sides(given, rows):
    """Return counts and vectors, the training pairs, and the held-out graphs and vectors."""
    counts = np.asarray(_wl_counts(given.dataset).todense(), float)
    trained = set(given.parts["train"].tolist())
    pairs = [(int(q), int(t)) for q, t in given.dataset.relation.nodes.T if {int(q), int(t)} <= trained]
    held = sorted({*range(2 * N)} - trained)
    return counts, rows, np.array(pairs), [row for row in held if row < N], [row for row in held if row >= N]


def cosine(one, two):
    return (one / np.linalg.norm(one, axis=1, keepdims=True)) @ (two / np.linalg.norm(two, axis=1, keepdims=True)).T


def cases(settings):
    return enumerate(product((False, True), (False, True), settings))


def test_ridge_equals_scikit_learn_both_ways():
    given, rows = inputs()
    kernel, (counts, raw, pairs, graphs, vectors) = ridge_wl(given), sides(given, rows)
    unit = np.array(given.dataset.targets.scales["x"][1])
    for choice, (back, scaled, penalty) in cases(PENALTIES):
        of_vectors = raw / unit if scaled else raw
        x, y = (of_vectors[pairs[:, 1] - N], counts[pairs[:, 0]])
        held, others = of_vectors[np.array(vectors) - N], counts[graphs]
        if back:
            x, y, held, others = y, x, others, held
        alpha = penalty * np.square(x - x.mean(0)).sum(1).mean()
        predicted = Ridge(alpha=alpha).fit(x, y).predict(held)
        expected = cosine(predicted - y.mean(0), others - y.mean(0))
        expected = expected if back else expected.T
        found = kernel.similarity(choice, None)(torch.tensor(graphs), torch.tensor(vectors))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        turned = kernel.similarity(choice, None)(torch.tensor(vectors), torch.tensor(graphs))
        np.testing.assert_allclose(turned.T, found, atol=1e-12)


def test_nearest_neighbours_equal_a_search_by_hand():
    given, rows = inputs()
    kernel, (counts, raw, pairs, graphs, vectors) = nearest_wl(given), sides(given, rows)
    unit = np.array(given.dataset.targets.scales["x"][1])
    for choice, (back, scaled, _) in cases((None,)):
        of_vectors = raw / unit if scaled else raw
        sources, others = (counts, of_vectors) if back else (of_vectors, counts)
        at, to = (pairs[:, 0], pairs[:, 1] - N) if back else (pairs[:, 1] - N, pairs[:, 0])
        ask, pool = (graphs, np.array(vectors) - N) if back else (np.array(vectors) - N, graphs)
        centred, mean = sources - sources[at].mean(0), others[to].mean(0)
        near = to[cosine(centred[ask], centred[at]).argmax(1)]
        expected = cosine(others[near] - mean, others[pool] - mean)
        found = kernel.similarity(choice, None)(torch.tensor(graphs), torch.tensor(vectors))
        np.testing.assert_allclose(found, expected if back else expected.T, atol=1e-5)


def test_held_out_pairs_do_not_reach_the_regression():
    given, _ = inputs()
    held = [row for row in range(N, 2 * N) if row in given.parts["test"]]
    changed = VECTORS.copy()
    changed[np.array(held) - N] += 100
    other, _ = inputs(changed)
    valid = torch.from_numpy(given.parts["valid"])
    rows = valid[valid < N], valid[valid >= N]
    for choice in (0, len(PENALTIES) * 3):
        before, after = (ridge_wl(each).similarity(choice, None)(*rows) for each in (given, other))
        torch.testing.assert_close(before, after)


def test_of_many_pairs_a_random_part_is_used(monkeypatch):
    given, _ = inputs()
    test = torch.from_numpy(given.parts["test"])
    rows = test[test < N], test[test >= N]
    whole = ridge_wl(given).similarity(0, None)(*rows)
    monkeypatch.setattr(references, "MOST", 15)
    part = ridge_wl(inputs()[0]).similarity(0, None)(*rows)
    assert part.shape == whole.shape
    assert not torch.equal(part, whole)


def test_a_vector_equal_to_the_mean_has_cosine_0():
    square = np.array([[1.0, 2.0], [0.0, 0.0]])
    assert references._root(np.square(square).sum(1)).tolist() == [pytest.approx(5**0.5), 1.0]
