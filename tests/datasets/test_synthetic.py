"""Test the claims in the docstring of the generated data set."""

import random

import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from torch_geometric.data import Batch
from torch_geometric.utils import degree

from graphcl.datasets.synthetic import FAMILIES, synthetic


@pytest.fixture(scope="module")
def graphs():
    return synthetic()


def test_counts_and_form(graphs):
    assert torch.bincount(torch.cat([graph.y for graph in graphs])).tolist() == [150] * len(FAMILIES)
    sizes = [graph.num_nodes for graph in graphs]
    assert (min(sizes), max(sizes)) == (20, 61)
    for graph in graphs:
        assert (graph.is_undirected(), graph.is_coalesced(), graph.has_self_loops()) == (True, True, False)
        assert (graph.x.sum(dim=1) == 1).all()


def test_the_same_seed_gives_the_same_graphs(graphs):
    def fingerprint(found):
        batch = Batch.from_data_list(found)
        edges = (batch.edge_index * torch.arange(1, batch.num_edges + 1)).sum().item()
        return batch.num_nodes, batch.num_edges, edges, batch.x.argmax(1).sum().item()

    state, torch_state = random.getstate(), torch.get_rng_state()
    assert fingerprint(graphs[:60]) == (2436, 13150, 290657891741, 7001)  # on every machine
    assert fingerprint(synthetic(1, 8)) != fingerprint(synthetic(0, 8)) == fingerprint(graphs[:8])
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_neither_degrees_nor_kinds_tell_the_family(graphs):
    """A random forest that sees only degree histograms, sizes and kinds is near the chance level of 25 %."""
    table = []
    for graph in graphs:
        degrees = degree(graph.edge_index[0], graph.num_nodes).long().bincount(minlength=40)[:40]
        table.append([*degrees.tolist(), graph.num_nodes, graph.num_edges, *graph.x.sum(dim=0).tolist()])
    labels = [int(graph.y) for graph in graphs]
    assert cross_val_score(RandomForestClassifier(15, random_state=0), table, labels, cv=3).mean() < 0.35
