"""Test each kind of node features; degrees are compared with a loop over graphs."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphcl.datasets import FEATURES, load_dataset
from graphcl.errors import InputError
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


@settings(deadline=None, max_examples=25)
@given(graphs=graph_lists(), max_degree=st.integers(1, 8))
def test_degrees_as_in_a_loop(graphs, max_degree):
    degrees = []
    for graph in graphs:
        pairs = [(a, b) for a, b in graph.edge_index.t().tolist() if a != b]
        degrees.append([sum(a == node for a, _ in pairs) for node in range(graph.num_nodes)])
    width = min(max(map(max, degrees)), max_degree) + 1
    dataset = load_dataset(graphs, features="labels+degree", max_degree=max_degree)
    assert dataset.num_features == 2 + width
    for graph, own, degree in zip(dataset, graphs, degrees, strict=True):
        expected = F.one_hot(torch.tensor(degree).clamp(max=max_degree), width).float()
        assert torch.equal(graph.x, torch.cat([own.x, expected], dim=1))


@pytest.mark.parametrize(("columns", "last"), [(2, [0, 1]), (4, [0, 0, 0, 1]), (6, [0, 0, 0, 1, 0, 0])])
def test_a_fixed_number_of_degree_columns(columns, last):
    """With `degree_columns`, larger degrees share the last column, extra columns are 0, `max_degree` is ignored."""
    dataset = load_dataset(two(x=X), features="labels+degree", max_degree=1, degree_columns=columns)
    assert dataset[0].x[0].tolist() == [*X[0].tolist(), *last]
    assert dataset.degree_columns == columns
    assert load_dataset(two(x=X), degree_columns=columns).degree_columns == 0  # labels only


@pytest.mark.parametrize(
    ("features", "given", "resolved"),
    [
        ("auto", {"x": X}, "labels"),
        ("auto", {"num_nodes": 4}, "constant"),
        ("auto+degree", {"x": X}, "labels+degree"),
        ("auto+degree", {"num_nodes": 4}, "degree"),
    ],
)
def test_auto(features, given, resolved):
    dataset = load_dataset(two(**given), features=features)
    assert dataset.features == resolved
    assert load_dataset(two(**given), features=resolved).x.equal(dataset.x)


@pytest.mark.parametrize("features", FEATURES)
def test_every_choice_is_a_float_matrix(features):
    dataset = load_dataset(two(x=X.to(torch.int64)), features=features)
    assert dataset.x.dtype == torch.float32
    assert features != "constant" or (dataset.x == 1).all()
    assert dataset.x.shape[0] == 8
    assert dataset.features in set(FEATURES) - {"auto", "auto+degree"}


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        *(({"features": each}, InputError, "but own has no node labels (no `x`); choose 'constant'")
          for each in ("labels", "labels+degree")),
        *(({"features": each}, InputError, "`features` must be one of 'auto', ") for each in ("degrees", None)),
        *(({name: value}, kind, f"`{name}` must be") for name in ("max_degree", "degree_columns")
          for value, kind in ((0, InputError), (2.0, TypeError), (True, TypeError), ("3", TypeError))),
    ],
)  # fmt: skip
def test_wrong_arguments(options, kind, says):
    one_line(lambda: load_dataset(two(num_nodes=4), **options), says, kind=kind)
