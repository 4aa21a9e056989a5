"""Test each kind of node features; degrees are compared with a loop over graphs."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphcl.datasets import FEATURES, load_dataset
from tests.datasets.graphs import one_line

STAR = torch.tensor([[0, 0, 0, 1, 2, 3, 1], [1, 2, 3, 0, 0, 0, 1]])  # a star of 3 leaves, one with a self-loop
X = torch.arange(8.0).view(4, 2)


def two(**first):
    return [Data(edge_index=STAR, **first), Data(edge_index=STAR[:, :0], **first)]


@st.composite
def graph_lists(draw):
    graphs = []
    for _ in range(draw(st.integers(2, 5))):
        n = draw(st.integers(1, 6))
        ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
        edges = torch.tensor(draw(st.lists(ends, max_size=20)), dtype=torch.long).view(-1, 2).t()
        graphs.append(Data(edge_index=edges, x=torch.randn(n, 2)))
    return graphs


@settings(deadline=None, max_examples=30)
@given(graphs=graph_lists(), max_degree=st.integers(1, 8), columns=st.none() | st.integers(2, 8))
def test_degrees_as_in_a_loop(graphs, max_degree, columns):
    """With `degree_columns`, larger degrees share the last column, extra columns are 0, `max_degree` is ignored."""
    degrees = []
    for graph in graphs:
        pairs = [(a, b) for a, b in graph.edge_index.t().tolist() if a != b]
        degrees.append([sum(a == node for a, _ in pairs) for node in range(graph.num_nodes)])
    width = columns or min(max(map(max, degrees)), max_degree) + 1
    options = {"max_degree": max_degree, "degree_columns": columns}
    dataset = load_dataset(graphs, features="labels+degree", **options)
    assert (dataset.num_features, dataset.degree_columns) == (2 + width, width)
    assert load_dataset(graphs, features="labels", **options).degree_columns == 0
    for graph, own, degree in zip(dataset, graphs, degrees, strict=True):
        expected = F.one_hot(torch.tensor(degree).clamp(max=width - 1), width).float()
        assert torch.equal(graph.x, torch.cat([own.x, expected], dim=1))


def test_auto_and_every_choice():
    for features, with_x, without_x in (("auto", "labels", "constant"), ("auto+degree", "labels+degree", "degree")):
        for graphs, expected in ((two(x=X), with_x), (two(num_nodes=4), without_x)):
            dataset = load_dataset(graphs, features=features)
            assert dataset.features == expected
            assert load_dataset(graphs, features=expected).x.equal(dataset.x)
    for features in FEATURES:
        dataset = load_dataset(two(x=X.to(torch.int64)), features=features)
        assert (dataset.x.dtype, len(dataset.x)) == (torch.float32, 8)
        assert features != "constant" or (dataset.x == 1).all()
    says = "but own has no `x`; choose 'constant'"
    one_line(lambda: load_dataset(two(num_nodes=4), features="labels+degree"), says)
    one_line(lambda: load_dataset(two(x=X), max_degree=0), "`max_degree` must be in [1, 1e9), got 0")
