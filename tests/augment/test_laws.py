"""Test what augmentations draw against exact laws on small graphs, by a chi-square test over thousands of copies."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import pytest
import torch
from scipy.stats import kstest
from torch_geometric.data import Batch

from graphcl.augment import (
    AttributeMask,
    Compose,
    EdgeDrop,
    EdgePerturb,
    FeatureMask,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    apply_decision,
)
from graphcl.errors import InputError
from graphcl.graphs.batching import MASK
from tests.strategies import (
    Mark,
    assert_law,
    assert_same_batch,
    assert_true_batch,
    both_ways,
    copies,
    lollipop,
    make_batch,
    path,
    ratio_count,
    seeded,
    star,
    typical_batch,
    uniform,
)

# -- outcomes: what is drawn for each graph ----------------------------------------------------------------------------


def by_graph(graphs, ids, count):
    found = [set() for _ in range(count)]
    for g, number in zip(graphs.tolist(), ids.tolist(), strict=True):
        found[g].add(number)
    return map(frozenset, found)


def kept_nodes(view, batch):
    return by_graph(view.batch, view.node_id, view.num_graphs)


def kept_edges(view, batch):
    return by_graph(view.batch[view.edge_index[0]], view.edge_id, view.num_graphs)


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
PERTURBED = [(4, path(4), 0.7), (5, [(0, 1), (1, 2), (2, 0), (2, 2), (4, 2)], 0.5), (7, [(5, 6), (2, 4)], 0.5)]
FIVE = [pair for pair in combinations(range(4), 2) if pair != (1, 3)]
CHAIN = [(i, i + 1) for i in range(4)]
FAR = [pair for pair in combinations(range(5), 2) if pair[1] - pair[0] > 1]
NESTED = OneOf([Mark(0), OneOf([Mark(1), Compose([Identity(), Mark(2)])])])
LAWS = [
    (NodeDrop(0.4), 5, path(5), kept_nodes, subsets(5, 3)),
    (AttributeMask(0.4), 5, [], changed_rows, subsets(5, 2)),
    (EdgeDrop(0.8), 3, path(3), kept_edges, bernoulli(4, 0.2)),
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
      for n, entries, k in [(5, lollipop(), 2), *((*each, 3) for each in [*SMALL.values(), *ODD.values()])]),
    *((Subgraph(1 - k / n, "one_hop"), n, entries, kept_nodes, one_hop(n, entries, k))
      for n, entries in SMALL.values() for k in (3,)),
    *((OneOf([Mark(i) for i in range(n)]), 2, [], marked, uniform(range(n))) for n in (1, 5)),
    *((OneOf([Mark(i) for i in range(3)], weights=w), 2, [], marked, {i: each / sum(w) for i, each in enumerate(w)})
      for w in ([0.2, 0.3, 0.5], [0, 3, 1], [0.0, 0.0, 7.5], [1e-300, 1e-300, 2e-300])),
    (NESTED, 2, [], marked, {0: 0.5, 1: 0.25, 2: 0.25}),
    # What a member draws does not depend on being chosen.
    (OneOf([NodeDrop(0.4), Identity()]), 3, path(3), kept_nodes,
     {frozenset(range(3)): 0.5, **{s: p / 2 for s, p in subsets(3, 2).items()}}),
]  # fmt: skip


@pytest.mark.parametrize(("augment", "n", "entries", "outcome", "law"), LAWS)
def test_the_law(augment, n, entries, outcome, law):
    """The draws of one graph follow the law, and those of neighbouring graphs are independent."""
    count = 10_000 if isinstance(augment, Subgraph) else 4_000
    batch = copies(count, n, entries)
    outcomes = list(outcome(augment(batch, seeded(n)), batch))
    assert len(outcomes) == count
    assert_law(outcomes, law)
    pairs = {(a, b): float(p) * float(q) for a, p in law.items() for b, q in law.items() if p * q > 0}
    if len(pairs) > 1 and min(pairs.values()) * count / 2 >= 5:
        assert_law(zip(outcomes[::2], outcomes[1::2], strict=True), pairs)


def test_gaussian_noise_has_mean_and_deviation_one_half():
    batch = copies(100, 100, [])
    batch.x = torch.full((10_000, 3), 99.0)
    view = AttributeMask(0.5)(batch, seeded(1))
    noise = view.x[(view.x != 99).any(dim=1)].double()
    assert noise.shape == (5_000, 3)
    assert kstest((noise.flatten().numpy() - 0.5) / 0.5, "norm").pvalue > 1e-6


# -- cases -------------------------------------------------------------------------------------------------------------


def test_masked_rows_of_any_dtype_and_shape():
    kinds = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.float64]
    for kind, fill, shape in product(kinds, ["gaussian", "zero", "mean"], [(), (2, 3)]):
        x = torch.ones(12, *shape)
        x[8:] = 2
        batch = Batch(x=x.to(kind), edge_index=torch.empty(2, 0).long(), batch=torch.arange(3).repeat_interleave(4))
        if not kind.is_floating_point and (fill == "mean" or (fill == "gaussian" and not kind.is_signed)):
            with pytest.raises(InputError, match=rf"fill='{fill}' needs floating-point `x`, got {kind}"):
                AttributeMask(0.5, fill)(batch)
            continue
        view = AttributeMask(0.5, fill)(batch, seeded(0))
        assert (view.x.dtype, view.x.shape) == (kind, batch.x.shape)
        changed = (view.x != batch.x).view(12, -1)
        assert int(changed.any(dim=1).sum()) == 6, (kind, fill, shape)
        if fill == "zero" or not kind.is_floating_point:
            assert (view.x.view(12, -1)[changed] == (0 if fill == "zero" else MASK)).all()
    batch.x = batch.x.long()
    with pytest.raises(InputError, match=r"^feature_mask needs floating-point node features `x`, got torch\.int64"):
        FeatureMask()(batch)


# -- compositions ------------------------------------------------------------------------------------------------------


DROP, MOVE, MASKED = NodeDrop(0.3), EdgePerturb(0.4), AttributeMask(0.5)
TREES = [
    Compose([Compose([DROP, MOVE]), OneOf([Compose([MASKED, DROP]), Subgraph(0.3)]), MASKED]),
    OneOf([Compose([DROP, Subgraph(0.5)]), Compose([OneOf([DROP, Identity()]), MOVE]), MASKED]),
]


def test_nested_ones_replay_what_they_decided_and_compositions_apply_members_in_turn():
    batch = typical_batch()
    for augment, seed, graphs in product(TREES, range(5), [None, torch.arange(5) % 2 == 0]):
        view = augment(batch, seeded(seed), graphs)
        assert_true_batch(view)
        assert_same_batch(apply_decision(batch, augment.decide(batch, seeded(seed), graphs)), view)
    generator, members = seeded(1), [DROP, MOVE, MASKED]
    expected = MASKED(MOVE(DROP(batch, generator), generator), generator)
    for augment in (Compose(members), Compose([Compose(members[:1]), *members[1:]]), Compose([Compose(members)])):
        assert_same_batch(augment(batch, seeded(1)), expected)


def test_members_with_several_steps_and_lists_of_members():
    augment = OneOf([Compose([NodeDrop(0.5), NodeDrop(0.5)]), Compose([Subgraph(0.5), NodeDrop(0.5)])])
    view = augment(make_batch(*[(8, path(8))] * 10), seeded(0))
    assert view.ptr.diff().tolist() == [2] * 10
    members = [NodeDrop(0.5)]
    own = Compose(members)
    members.append(None)
    assert own.members == members[:1]
    assert repr(OneOf(["node_drop", Subgraph()])) == repr(OneOf([NodeDrop(), Subgraph()]))
