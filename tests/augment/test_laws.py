"""Test what augmentations draw against exact laws on small graphs, by a chi-square test over thousands of copies."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch_geometric.data import Batch, Data

from graphcl.augment import (
    AttributeMask,
    Augmentation,
    Compose,
    Decision,
    EdgeDrop,
    EdgePerturb,
    FeatureMask,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    apply_decision,
)
from graphcl.augment.subgraph import first_passage
from graphcl.errors import InputError
from graphcl.graphs.batching import MASK
from tests.strategies import (
    QUICK,
    Mark,
    assert_law,
    assert_same_batch,
    assert_true_batch,
    batches,
    both_ways,
    copies,
    lollipop,
    make_batch,
    path,
    ratio_count,
    seeded,
    shapes,
    star,
    typical_batch,
    uniform,
)

# -- outcomes: what is drawn for each graph ----------------------------------------------------------------------------


def kept_nodes(view, batch):
    found = [[] for _ in range(view.num_graphs)]
    for g, node in zip(view.batch.tolist(), view.node_id.tolist(), strict=True):
        found[g].append(node)
    return map(frozenset, found)


def kept_edges(view, batch):
    found = [[] for _ in range(view.num_graphs)]
    for g, edge in zip(view.batch[view.edge_index[0]].tolist(), view.edge_id.tolist(), strict=True):
        found[g].append(edge)
    return map(frozenset, found)


def changed_rows(view, batch):
    changed = (view.x != batch.x).any(dim=1).view(view.num_graphs, -1)
    return [frozenset(row.nonzero().flatten().tolist()) for row in changed]


def kept_columns(view, batch):
    return map(tuple, (view.x[batch.ptr[:-1]] != 0).long().tolist())


def marked(view, batch):
    return view.x[view.ptr[:-1], 0].tolist()


def pairs_of(view):
    """Return the connected pairs of each graph, and the new pair of each edge by the edge's index."""
    ends = view.node_id[view.edge_index].t().tolist()
    found = [{} for _ in range(view.num_graphs)]
    for g, i, end in zip(view.batch[view.edge_index[0]].tolist(), view.edge_id.tolist(), ends, strict=True):
        found[g][i] = tuple(end)
    return found


def replaced_pairs(view, batch):
    for now, before in zip(pairs_of(view), pairs_of(batch), strict=True):
        new, old = ({frozenset(end) for end in each.values() if end[0] != end[1]} for each in (now, before))
        yield frozenset(old - new), frozenset(new - old)


def moves(view, batch):
    """Return the edges that moved, with their new pairs."""
    for now, before in zip(pairs_of(view), pairs_of(batch), strict=True):
        yield tuple(sorted((i, tuple(sorted(end))) for i, end in now.items() if end != before[i]))


# -- laws --------------------------------------------------------------------------------------------------------------


def subsets(n, size):
    return uniform(map(frozenset, combinations(range(n), size)))


def bernoulli(n, p):
    """Return the law of a set out of n elements, each of which is in it with probability p."""
    return {frozenset(s): p**k * (1 - p) ** (n - k) for k in range(n + 1) for s in combinations(range(n), k)}


def replacements(n, entries, ratio):
    pairs = {frozenset(entry) for entry in entries if len(set(entry)) == 2}
    absent = {frozenset(pair) for pair in combinations(range(n), 2)} - pairs
    k = ratio_count(ratio, len(pairs))
    return uniform((frozenset(a), frozenset(b)) for a in combinations(pairs, k) for b in combinations(absent, k))


def growth(n, entries, size):
    """Each step adds the end of a uniformly drawn boundary edge, or a uniform node where there is none."""
    entries = [*entries, *((v, u) for u, v in entries)]
    law = {frozenset([start]): Fraction(1, n) for start in range(n)}
    for _ in range(size - 1):
        larger = Counter()
        for region, p in law.items():
            boundary = [v for u, v in entries if u in region and v not in region]
            choices = boundary or [v for v in range(n) if v not in region]
            for v in choices:
                larger[region | {v}] += p / len(choices)
        law = larger
    return law


def one_hop(n, entries, size):
    """A uniform start node and a uniform set of its neighbours."""
    law = Counter()
    for start in range(n):
        around = sorted({v for u, v in entries if u == start})
        sets = list(combinations(around, min(size - 1, len(around))))
        for chosen in sets:
            law[frozenset([start, *chosen])] += Fraction(1, n * len(sets))
    return law


SMALL = {
    "path": (5, path(5)),
    "star": (5, star(4)),
    "lollipop": (5, lollipop()),
    "chord and tail": (6, both_ways([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4), (4, 5)])),
}
ODD = {
    "components": (5, both_ways([(0, 1), (2, 3)])),
    "parallel": (4, both_ways([(0, 1), (0, 1), (0, 1), (0, 2), (2, 3)]) + both_ways([(0, 1)])),
    "self-loops": (4, [(i, i) for i in range(4)] + path(4)),
    "no edge": (4, []),
    "directed": (5, [(1, 0), (2, 0), (2, 3), (3, 4)]),
    "some both ways": (4, [(0, 1), (1, 0), (2, 1), (3, 1), (3, 1), (2, 2)]),
}
PERTURBED = [
    (4, path(4), 0.7), (5, star(4), 0.25), (5, lollipop(), 0.4), (5, [(0, 1), (1, 2), (2, 0), (2, 2), (4, 2)], 0.5),
    (7, [(5, 6), (2, 4)], 0.5),
]  # fmt: skip
FIVE = [pair for pair in combinations(range(4), 2) if pair != (1, 3)]
CHAIN = [(i, i + 1) for i in range(4)]
FAR = [pair for pair in combinations(range(5), 2) if pair[1] - pair[0] > 1]
NESTED = OneOf([Mark(0), OneOf([Mark(1), Compose([Identity(), Mark(2)])])])
LAWS = [
    *((NodeDrop(r), n, path(n), kept_nodes, subsets(n, k)) for n, r, k in [(5, 0.4, 3), (4, 0.25, 3), (6, 0.5, 3)]),
    *((AttributeMask(0.4, fill), 5, [], changed_rows, subsets(5, 2)) for fill in ("gaussian", "zero", "mean")),
    *((EdgeDrop(r), 3, path(3), kept_edges, bernoulli(4, 1 - r)) for r in (0.5, 0.8)),
    (FeatureMask(0.3), 3, [], kept_columns,
     {s: math.prod([0.3, 0.7][i] for i in s) for s in product([0, 1], repeat=2)}),
    *((EdgePerturb(r), n, entries, replaced_pairs, replacements(n, entries, r)) for n, entries, r in PERTURBED),
    (EdgePerturb(0.5, add=False), 5, path(5), kept_edges,
     uniform(frozenset({2 * a, 2 * a + 1, 2 * b, 2 * b + 1}) for a, b in combinations(range(4), 2))),
    # Where an edge moves does not depend on its place; otherwise low edges would move to low pairs.
    (EdgePerturb(0.5), 5, CHAIN, moves, uniform(
        tuple(zip(ab, new, strict=True)) for ab in combinations(range(4), 2)
        for pair in combinations(FAR, 2) for new in (pair, pair[::-1]))),
    (EdgePerturb(0.7), 4, FIVE, moves, uniform(((i, (1, 3)),) for i in range(5))),
    *((Subgraph(1 - k / n), n, entries, kept_nodes, growth(n, entries, k))
      for n, entries in [*SMALL.values(), *ODD.values()] for k in (2, 3)),
    *((Subgraph(1 - k / n, "one_hop"), n, entries, kept_nodes, one_hop(n, entries, k))
      for n, entries in SMALL.values() for k in (2, 3)),
    *((OneOf([Mark(i) for i in range(n)]), 2, [], marked, uniform(range(n))) for n in (1, 2, 5)),
    *((OneOf([Mark(i) for i in range(3)], weights=w), 2, [], marked, {i: each / sum(w) for i, each in enumerate(w)})
      for w in ([1, 1, 1], [0.2, 0.3, 0.5], [0, 3, 1], [0.0, 0.0, 7.5], [1e-300, 1e-300, 2e-300])),
    (NESTED, 2, [], marked, {0: 0.5, 1: 0.25, 2: 0.25}),
    # What a member draws does not depend on being chosen.
    (OneOf([NodeDrop(0.4), Identity()]), 3, path(3), kept_nodes,
     {frozenset(range(3)): 0.5, **{s: p / 2 for s, p in subsets(3, 2).items()}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("augment", "n", "entries", "outcome", "law"), LAWS, ids=[f"{law[3].__name__}-{law[0]}"[:60] for law in LAWS]
)
def test_the_law(augment, n, entries, outcome, law):
    """The draws of one graph follow the law, and those of neighbouring graphs are independent."""
    count = 20_000 if isinstance(augment, Subgraph) else 5_000 if isinstance(augment, EdgePerturb) else 10_000
    batch = copies(count, n, entries)
    outcomes = list(outcome(augment(batch, seeded(n)), batch))
    assert len(outcomes) == count
    assert_law(outcomes, law)
    pairs = {(a, b): float(p) * float(q) for a, p in law.items() for b, q in law.items() if p * q > 0}
    if len(pairs) > 1 and min(pairs.values()) * count / 2 >= 5:
        assert_law(zip(outcomes[::2], outcomes[1::2], strict=True), pairs)


def test_uniform_pools_draw_as_randint():
    """Pools without weights must reproduce the draws of earlier versions."""
    drawn = OneOf([Mark(i) for i in range(3)]).draw(1000, seeded(7), torch.device("cpu"))
    assert torch.equal(drawn, torch.randint(3, (1000,), generator=seeded(7)))


def test_the_law_does_not_depend_on_the_other_graphs():
    """A lollipop graph in a batch has the same distribution of regions as alone."""
    batch, generator = make_batch((9, path(9)), (5, lollipop()), (4, star(3)), keys=("x",)), seeded(0)
    views = (Subgraph(0.4)(batch, generator)[1] for _ in range(200))
    assert_law([frozenset((view.node_id % 100).tolist()) for view in views], growth(5, lollipop(), 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussian_noise_has_mean_and_deviation_one_half(dtype):
    batch = copies(100, 100, [])
    batch.x = torch.full((10_000, 3), 99.0, dtype=dtype)
    view = AttributeMask(0.5)(batch, seeded(1))
    assert view.x.dtype == dtype
    noise = view.x[(view.x != 99).any(dim=1)].double()
    assert noise.shape == (5_000, 3)
    assert kstest((noise.flatten().numpy() - 0.5) / 0.5, "norm").pvalue > 1e-6
    neighbours = torch.stack([*noise[1:].t(), noise[:-1, 0]])
    assert (torch.corrcoef(neighbours) - torch.eye(4)).abs().max() < 5 / 5_000**0.5


# -- first passage -----------------------------------------------------------------------------------------------------


@QUICK
@given(st.data())
def test_first_passage_against_a_loop(data):
    """Start times lie further apart than any path takes, some are infinite; parallel edges and loops occur."""
    n, entries = data.draw(shapes(max_nodes=8))
    order = data.draw(st.permutations(range(n)))
    start = [1000.0 * rank if data.draw(st.integers(0, 3)) else math.inf for rank in order]
    edges = [(u, v, data.draw(st.integers(1, 40)) / 4) for u, v in entries]
    edges += [(v, u, travel) for u, v, travel in edges]
    expected, before = list(start), None
    while expected != before:
        before = list(expected)
        for u, v, travel in edges:
            expected[v] = min(expected[v], expected[u] + travel)
    columns = list(zip(*edges, strict=True)) or [(), (), ()]
    source, target = (torch.tensor(column, dtype=torch.long) for column in columns[:2])
    found = first_passage(torch.tensor(start).double(), source, target, torch.tensor(columns[2]).double())
    assert found.tolist() == expected


def test_long_paths_beside_small_graphs():
    batch = make_batch((90, path(90)), (1, []), (5, star(4)), (60, both_ways([(i, i + 1) for i in range(0, 59, 2)])))
    for seed in range(5):
        view = Subgraph(0.4)(batch, seeded(seed))
        assert view.ptr.diff().tolist() == [54, 1, 3, 36]
        kept = (view[0].node_id % 100).tolist()
        assert kept == list(range(kept[0], kept[0] + 54))


# -- cases -------------------------------------------------------------------------------------------------------------


def test_a_decimal_ratio_means_the_decimal_number():
    assert NodeDrop(0.29)(make_batch((100, [])), seeded(0)).num_nodes == 71
    assert NodeDrop(0.57)(make_batch((100, []), (200, [])), seeded(0)).ptr.tolist() == [0, 43, 129]


def test_where_edges_have_nowhere_or_only_one_place_to_go():
    complete = (4, both_ways(combinations(range(4), 2)))
    batch = make_batch(complete, (12, path(12)), *[(4, both_ways(FIVE))] * 20)
    graphs = EdgePerturb(0.7)(batch, seeded(0)).to_data_list()
    assert [graph.num_edges for graph in graphs] == [2 * 2, 22] + [2 * 3] * 20
    assert all([1, 3] in graph.edge_index.t().tolist() for graph in graphs[2:])


def test_a_large_sparse_graph():
    """In a graph with millions of unconnected pairs, edges must move only to unconnected pairs."""
    n = 5_000
    batch = make_batch((4, path(4)), (n, path(n)), (7, star(6)), keys=())
    view = EdgePerturb(0.9)(batch, seeded(0))
    low, high = view.edge_index.min(dim=0).values, view.edge_index.max(dim=0).values
    assert (low < high).all()
    assert (low * view.num_nodes + high).unique().numel() * 2 == view.num_edges == batch.num_edges
    assert torch.equal(view.batch[low], view.batch[high])
    moved = (view.edge_index != batch.edge_index).any(dim=0)[6 : 6 + 2 * (n - 1)]
    assert int(moved.sum()) == 2 * ratio_count(0.9, n - 1)
    assert int(((high - low == 1) & (view.batch[low] == 1)).sum()) == 2 * (n - 1) - int(moved.sum())


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("fill", ["gaussian", "zero", "mean"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float16", "bfloat16", "float32", "float64"])
def test_masked_rows_of_any_dtype_and_shape(dtype, fill, shape):
    kind = getattr(torch, dtype)
    graphs = [Data(x=torch.ones(4, *shape).to(kind), edge_index=torch.empty(2, 0).long()) for _ in range(3)]
    graphs[2].x = graphs[2].x + graphs[2].x
    batch = Batch.from_data_list(graphs)
    if not kind.is_floating_point and (fill == "mean" or (fill == "gaussian" and not kind.is_signed)):
        with pytest.raises(InputError, match=rf"fill='{fill}' needs floating-point `x`, got {kind}"):
            AttributeMask(0.5, fill)(batch)
        return
    view = AttributeMask(0.5, fill)(batch, seeded(0))
    assert view.x.dtype == kind
    assert view.x.shape == batch.x.shape
    changed = (view.x != batch.x).view(12, -1)
    assert int(changed.any(dim=1).sum()) == 6
    if fill == "zero" or not kind.is_floating_point:
        assert (view.x.view(12, -1)[changed] == (0 if fill == "zero" else MASK)).all()


def test_categories_have_no_columns_to_mask():
    graph = Data(x=torch.tensor([[1], [2]]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match=r"^feature_mask needs floating-point node features `x`, got torch\.int64"):
        FeatureMask()(graph)


def test_a_node_that_is_masked_and_dropped_is_gone():
    """Mask indices refer to the batch before nodes are removed."""
    batch = Batch.from_data_list([Data(x=torch.arange(5.0)[:, None], edge_index=torch.zeros(2, 0, dtype=torch.long))])
    keep = torch.tensor([True, False, True, False, True])
    masked = Decision(keep_node=keep, masked=torch.tensor([1, 4, 2]), features=torch.tensor([[-1.0], [-4.0], [-2.0]]))
    assert apply_decision(batch, masked).x.flatten().tolist() == [0, -2, -4]
    assert batch.x.flatten().tolist() == [0, 1, 2, 3, 4]


# -- compositions ------------------------------------------------------------------------------------------------------


class Twice(Augmentation):
    """Custom augmentation with a two-step decision."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def decide(self, batch, generator=None, graphs=None):
        return Compose([self.first, self.second]).decide(batch, generator, graphs)


steps = st.sampled_from([NodeDrop(0.3), EdgePerturb(0.4), Subgraph(0.3), AttributeMask(0.5), Identity()])


def combined(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    return some.map(Compose) | some.map(OneOf)


trees = st.recursive(steps | st.just(Twice(NodeDrop(0.5), Subgraph(0.5))), combined, max_leaves=6)


@QUICK
@given(batches(needs=("x",)), trees, st.integers(0, 9), st.data())
def test_nested_ones_replay_what_they_decided(batch, augment, seed, data):
    flags = data.draw(st.none() | st.lists(st.booleans(), min_size=batch.num_graphs, max_size=batch.num_graphs))
    graphs = None if flags is None else torch.tensor(flags)
    view = augment(batch, seeded(seed), graphs)
    assert_true_batch(view)
    assert_same_batch(apply_decision(batch, augment.decide(batch, seeded(seed), graphs)), view)


@QUICK
@given(batches(needs=("x",)), st.lists(steps, min_size=1, max_size=4), st.integers(0, 9))
def test_a_composition_is_its_members_in_turn_however_nested(batch, members, seed):
    generator, expected = seeded(seed), batch
    for member in members:
        expected = member(expected, generator)
    for augment in (Compose(members), Compose([Compose(members[:1]), *members[1:]]), Compose([Compose(members)])):
        assert_same_batch(augment(batch, seeded(seed)), expected)


def test_members_with_several_steps_and_lists_of_members():
    augment = OneOf([Twice(NodeDrop(0.5), NodeDrop(0.5)), Twice(Subgraph(0.5), NodeDrop(0.5))])
    view = augment(make_batch(*[(8, path(8))] * 10), seeded(0))
    assert view.ptr.diff().tolist() == [2] * 10
    members = [NodeDrop(0.5)]
    own = Compose(members)
    members.append(None)
    assert own.members == members[:1]
    assert repr(OneOf(["node_drop", Subgraph()])) == repr(OneOf([NodeDrop(), Subgraph()]))
    assert_same_batch(Compose([NodeDrop(0.5)])(typical_batch(), seeded(1)), NodeDrop(0.5)(typical_batch(), seeded(1)))
