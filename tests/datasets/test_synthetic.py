"""Test the claims in the docstring of the generated data set."""

import random

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from torch_geometric.data import Batch
from torch_geometric.utils import degree

from graphcl.datasets import load_dataset
from graphcl.datasets.synthetic import CORE_KINDS, FAMILIES, synthetic
from tests.datasets.graphs import one_line


@pytest.fixture(scope="module")
def graphs():
    return synthetic()


def fingerprint(found) -> str:
    batch = Batch.from_data_list(found)
    weight = torch.arange(1, batch.num_edges + 1)
    return (
        f"{batch.num_nodes} {batch.num_edges} {int((batch.edge_index * weight).sum())} {int(batch.x.argmax(1).sum())}"
    )


def test_counts_and_form(graphs):
    assert len(graphs) == 600
    assert torch.bincount(torch.cat([graph.y for graph in graphs])).tolist() == [150] * len(FAMILIES)
    sizes = np.array([graph.num_nodes for graph in graphs])
    assert (sizes.min(), sizes.max()) == (20, 61)
    assert 35 < sizes.mean() < 45
    one_line(lambda: synthetic(num_graphs=0), "`num_graphs` must be at least 1, got 0")
    for graph in graphs:
        graph.validate()
        assert graph.is_undirected()
        assert graph.is_coalesced()
        assert not graph.has_self_loops()
        assert (graph.x.sum(dim=1) == 1).all()


def test_the_same_seed_gives_the_same_graphs(graphs):
    state, torch_state = random.getstate(), torch.get_rng_state()
    few = fingerprint(graphs[:60])
    assert few == "2436 13150 290657891741 7001"  # on every machine
    assert fingerprint(synthetic(1, 8)) != fingerprint(synthetic(0, 8)) == fingerprint(graphs[:8])
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_most_edges_of_the_core_follow_the_rule(graphs):
    rules, shares = list(FAMILIES.values()), []
    for graph in graphs:
        kind = graph.x.argmax(dim=1)
        ends = kind[graph.edge_index]
        core = (ends < CORE_KINDS).all(dim=0)
        follow = [rules[graph.y](a, b) for a, b in ends[:, core].T.tolist()]
        shares.append(np.mean(follow))
    assert min(shares) > 0.6
    assert np.mean(shares) > 0.79


def test_neither_degrees_nor_kinds_tell_the_family(graphs):
    """A random forest that sees only degree histograms, sizes and kinds is near the chance level of 25 %."""

    def statistics(graph):
        degrees = torch.bincount(degree(graph.edge_index[0], graph.num_nodes).long(), minlength=40)[:40]
        return torch.cat([degrees, torch.tensor([graph.num_nodes, graph.num_edges]), graph.x.sum(dim=0).long()])

    table = torch.stack([statistics(graph) for graph in graphs]).numpy()
    labels = [int(graph.y) for graph in graphs]
    assert cross_val_score(RandomForestClassifier(15, random_state=0), table, labels, cv=3).mean() < 0.35


def test_it_needs_no_file(monkeypatch, root):
    few = synthetic(num_graphs=8)
    monkeypatch.setattr("graphcl.datasets.synthetic.synthetic", lambda: few)
    assert load_dataset("synthetic", root, mirror="/not/there").name == "synthetic"
    assert not root.exists()
