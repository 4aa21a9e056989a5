"""Helpers for property tests: random graphs and batches, exact comparison of batches, and a chi-square test."""

import math
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch_geometric.data import Batch, Data

from graphcl.augment import Augmentation, Decision
from graphcl.graphs import native

NODE_LEVEL = ("x", "pos", "node_id", "node_flag")
EDGE_LEVEL = ("edge_index", "edge_attr", "edge_weight", "edge_id")
OPTIONAL = ("x", "pos", "node_flag", "edge_attr", "edge_weight", "y", "target", "ragged", "name", "scale")

QUICK = settings(max_examples=30, deadline=None)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@contextmanager
def loops(compiled):
    """Run the block with the compiled loops, if they are installed, or with torch's operations only."""
    before, native.enabled = native.enabled, compiled and native.enabled
    try:
        yield
    finally:
        native.enabled = before


def seeded(seed, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def ratio_count(ratio, count):
    """Return floor(ratio * count) in exact arithmetic, where `ratio` is the decimal number that `repr` prints."""
    return math.floor(Decimal(repr(ratio)) * count)


# -- graphs ------------------------------------------------------------------------------------------------------------


def both_ways(pairs):
    """Return the edges `(u, v)` and `(v, u)` for each pair; a self-loop is listed once."""
    return [entry for u, v in pairs for entry in dict.fromkeys([(u, v), (v, u)])]


def path(n):
    return both_ways((i, i + 1) for i in range(n - 1))


def star(leaves):
    return both_ways((0, i + 1) for i in range(leaves))


def lollipop():
    """Return the edges of a triangle 0-1-2 with a tail 2-3-4."""
    return both_ways([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])


def make_graph(num_nodes, entries, number=0, keys=OPTIONAL):
    """Return a graph with node, edge and graph attributes; `node_id` and `edge_id` are unique over all graphs.

    Args:
        num_nodes: number of nodes.
        entries: directed edges `(source, target)`.
        number: number of the graph.
        keys: names of the attributes, out of `OPTIONAL`.
    """
    entries = list(entries)
    node_id = 100 * number + torch.arange(num_nodes)
    edge_id = 100 * number + torch.arange(len(entries))
    values = {
        "x": torch.stack([node_id + 0.25, -(node_id + 1.0).sqrt()], dim=1),
        "pos": (node_id[:, None] + torch.arange(3)).double() / 7,
        "node_flag": node_id % 3 == 0,
        "edge_attr": torch.stack([edge_id, -edge_id], dim=1).float(),
        "edge_weight": edge_id.double() + 0.5,
        "y": torch.tensor([number]),
        "target": torch.full((1, 3), number + 0.5),
        # A length other than the numbers of nodes and edges, so that it is not taken for a node or edge attribute.
        "ragged": torch.full((num_nodes + len(entries) + 2,), number),
        "name": f"graph {number}",
        "scale": number + 0.5,
    }
    graph = Data(edge_index=torch.tensor(entries, dtype=torch.long).view(-1, 2).t().contiguous())
    for key in keys:
        graph[key] = values[key]
    graph.node_id, graph.edge_id = node_id, edge_id
    if "x" not in keys and "pos" not in keys:
        graph.num_nodes = num_nodes
    return graph


def make_batch(*shapes, keys=OPTIONAL):
    """Return a batch of one graph for each `(number of nodes, edges)` in `shapes`."""
    return Batch.from_data_list([make_graph(n, entries, i, keys) for i, (n, entries) in enumerate(shapes)])


def copies(count, num_nodes, entries):
    """Return a batch of `count` equal graphs, to draw many independent augmentations at once."""
    batch = torch.arange(count).repeat_interleave(num_nodes)
    ends = torch.tensor(entries, dtype=torch.long).view(-1, 2).t()
    shift = (torch.arange(count) * num_nodes).repeat_interleave(len(entries))
    return Batch(
        x=torch.arange(1.0, count * num_nodes + 1).sqrt()[:, None].repeat(1, 2),
        edge_index=ends.repeat(1, count) + shift,
        batch=batch,
        ptr=torch.arange(count + 1) * num_nodes,
        node_id=torch.arange(num_nodes).repeat(count),
        edge_id=torch.arange(len(entries)).repeat(count),
    )


class Mark(Augmentation):
    """Set all features to `value`, so that a graph shows which augmentation it drew."""

    def __init__(self, value):
        self.value = value

    def decide(self, batch, generator=None, graphs=None):
        mine = torch.ones(batch.num_graphs, dtype=torch.bool) if graphs is None else graphs
        nodes = mine[batch.batch].nonzero().flatten()
        return Decision(masked=nodes, features=torch.full_like(batch.x[nodes], self.value))


def shapes(min_nodes=1, max_nodes=6):
    """Return a strategy for `(number of nodes, edges)`, with self-loops and repeated edges; half are undirected."""

    def with_entries(n):
        end = st.integers(0, n - 1)
        entries = st.lists(st.tuples(end, end), max_size=8) if n else st.just([])
        return st.tuples(st.just(n), entries | entries.map(both_ways))

    return st.integers(min_nodes, max_nodes).flatmap(with_entries)


def attribute_sets(needs=()):
    return st.sets(st.sampled_from(OPTIONAL)).map(
        lambda drawn: tuple(key for key in OPTIONAL if key in drawn or key in needs)
    )


@st.composite
def batches(draw, needs=(), min_nodes=1):
    """Draw a batch of one to five graphs with the same random attributes, which include all in `needs`."""
    drawn = draw(st.lists(shapes(min_nodes), min_size=1, max_size=5))
    return make_batch(*drawn, keys=draw(attribute_sets(needs)))


ratios = st.integers(0, 99).map(lambda percent: percent / 100)
generators = st.integers(0, 2**32 - 1).map(seeded)

TYPICAL = (
    (5, path(5)),
    (1, []),
    (4, [(0, 1), (0, 1), (1, 0), (2, 2), (3, 1)]),
    (6, both_ways([(0, 1), (1, 2), (2, 0), (3, 4)])),
    (3, []),
)
"""(number of nodes, edges) of a path, a single node, a multigraph with a self-loop, two components, and no edges."""


def typical_batch(keys=OPTIONAL):
    return make_batch(*TYPICAL, keys=keys)


# -- the same ----------------------------------------------------------------------------------------------------------


def assert_same_value(got, expected, where=""):
    assert type(got) is type(expected), f"{where}: {got!r} instead of {expected!r}"
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype, f"{where}: {got.dtype} instead of {expected.dtype}"
        assert torch.equal(got.cpu(), expected.cpu()), f"{where}: {got} instead of {expected}"
    elif isinstance(expected, dict):
        assert set(got) == set(expected), where
        for key in expected:
            assert_same_value(got[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), where
        for i, pair in enumerate(zip(got, expected, strict=True)):
            assert_same_value(*pair, f"{where}[{i}]")
    else:
        assert got == expected, f"{where}: {got!r} instead of {expected!r}"


def assert_same_graph(got, expected, where="graph"):
    assert type(got) is type(expected), where
    assert_same_value(got.to_dict(), expected.to_dict(), where)
    assert got.num_nodes == expected.num_nodes, where


def assert_same_graphs(got, expected):
    assert len(got) == len(expected)
    for i, pair in enumerate(zip(got, expected, strict=True)):
        assert_same_graph(*pair, f"graph {i}")


def assert_same_batch(got, expected):
    """Assert that two batches have equal attributes and equal internal slices, which `to_data_list` uses."""
    assert type(got) is type(expected)
    assert set(got.keys()) == set(expected.keys())
    for key in expected.keys():  # noqa: SIM118
        assert_same_value(got[key], expected[key], key)
    assert got.num_graphs == expected.num_graphs
    assert got.num_nodes == expected.num_nodes
    assert_same_value(got._slice_dict, expected._slice_dict, "_slice_dict")
    assert_same_value(got._inc_dict, expected._inc_dict, "_inc_dict")


def assert_true_batch(batch):
    """Assert that `batch` equals PyG's batch of its graphs, and that every edge stays within its graph."""
    graphs = batch.to_data_list()
    for i, graph in enumerate(graphs):
        assert graph.num_nodes == int(batch.ptr[i + 1] - batch.ptr[i]), f"graph {i}"
        if graph.num_edges:
            assert 0 <= int(graph.edge_index.min()) <= int(graph.edge_index.max()) < graph.num_nodes, f"graph {i}"
    again = Batch.from_data_list(graphs)
    assert_same_batch(batch, again)
    assert_same_graphs(graphs, again.to_data_list())


def snapshot(batch):
    """Return a copy of all attributes and internal slices of `batch`."""
    held = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in batch._store.items()}
    return held, dict(batch._slice_dict), dict(batch._inc_dict), batch.num_graphs


def kept_nodes(graph):
    """Return the indices, in the original graph, of the nodes that remain in the view `graph`."""
    return (graph.node_id % 100).tolist()


def induced(graph, kept):
    """Return the subgraph of `graph` induced by the nodes `kept`, computed by a plain loop."""
    new_name = {old: new for new, old in enumerate(kept)}
    edges = [i for i, (u, v) in enumerate(graph.edge_index.t().tolist()) if u in new_name and v in new_name]
    out = graph.clone()
    for key in graph.keys():  # noqa: SIM118
        if key in NODE_LEVEL:
            out[key] = torch.stack([graph[key][i] for i in kept])
        elif key in EDGE_LEVEL and key != "edge_index":
            out[key] = torch.stack([graph[key][i] for i in edges]) if edges else graph[key][:0]
    ends = [[new_name[int(end)] for end in graph.edge_index[:, i]] for i in edges]
    out.edge_index = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
    if "num_nodes" in graph:
        out.num_nodes = len(kept)
    return out


# -- laws --------------------------------------------------------------------------------------------------------------


def assert_law(outcomes, law):
    """Assert by a chi-square test (alpha = 1e-6) that `outcomes` follow `law`, a dict from outcome to probability.

    The callers use fixed seeds, so the result is the same in each run.
    """
    counts = Counter(outcomes)
    total = sum(counts.values())
    possible = {outcome: float(p) for outcome, p in law.items() if p > 0}
    assert set(counts) <= set(possible), f"impossible: {set(counts) - set(possible)}"
    if len(possible) == 1:
        return
    expected = [p * total for p in possible.values()]
    assert min(expected) >= 5, "too few draws for the test"
    observed = [counts[outcome] for outcome in possible]
    p_value = chisquare(observed, expected).pvalue
    assert p_value > 1e-6, (
        f"p = {p_value:.1e}, {dict(zip(possible, zip(observed, expected, strict=True), strict=True))}"
    )


def uniform(outcomes):
    outcomes = list(outcomes)
    return {outcome: 1 / len(outcomes) for outcome in outcomes}
