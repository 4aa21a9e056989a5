"""Test which graphs count as copies, against isomorphism, and which test graphs have one in training."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphcl import load_dataset
from graphcl.extensions.diagnosis.run import Copies, count_copies


def graphs(n=60, seed=0):
    """Return small random graphs with kinds of nodes, of which many are isomorphic, and their classes."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(n):
        graph = nx.gnp_random_graph(int(rng.integers(2, 5)), 0.6, seed=number)
        pairs = [pair for a, b in graph.edges() for pair in ((a, b), (b, a))]
        edges = torch.tensor(pairs or np.zeros((0, 2)), dtype=torch.long).T
        x = torch.eye(2)[rng.integers(0, 2, len(graph))]
        found.append(Data(x=x, edge_index=edges, y=torch.tensor([int(rng.integers(0, 2))])))
    return found


def isomorphic(one, two):
    """Return whether two graphs are isomorphic, with equal features."""
    made = []
    for data in (one, two):
        graph = nx.Graph(data.edge_index.T.tolist())
        graph.add_nodes_from((node, {"kind": int(kind)}) for node, kind in enumerate(data.x.argmax(1)))
        made.append(graph)
    return nx.is_isomorphic(*made, node_match=lambda a, b: a["kind"] == b["kind"])


def test_copies_are_the_isomorphic_graphs():
    given = graphs()
    found = count_copies(load_dataset(given))
    same = np.array([[isomorphic(one, two) for two in given] for one in given])
    assert np.array_equal(found.number[:, None] == found.number, same)
    assert found.repeated == np.mean(same.sum(1) > 1)
    y = np.array([int(each.y) for each in given])
    assert found.conflicting == np.mean([(y[row] != y[i]).any() for i, row in enumerate(same)])
    largest = [max(np.bincount(y[row])) / row.sum() for row in same]
    assert found.ceiling == pytest.approx(100 * np.mean(largest))
    assert 0 < found.conflicting < found.repeated < 1


def test_a_test_graph_has_a_copy_in_training_if_one_is_in_another_fold():
    copies = Copies(np.array([0, 0, 1, 1, 2, 3, 3, 3]))
    folds = (np.array([0, 2, 5, 6]), np.array([1, 4]), np.array([3, 7]))
    assert copies.in_training(folds).tolist() == [True, True, True, True, False, True, True, True]
    assert copies.in_training((np.array([0, 1, 5, 6]), np.array([2, 3, 4, 7]))).nonzero()[0].tolist() == [5, 6, 7]
    found = copies.in_training((np.array([1, 4, 6]),), train=np.array([0, 2, 3]))
    assert found.nonzero()[0].tolist() == [1]
