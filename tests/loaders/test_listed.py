"""Test that batches of listed pairs have no known positive among the negatives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl import InputError
from graphcl.datasets.pair_file import make_relation
from graphcl.loaders.samplers import ListedPairs
from tests.strategies import QUICK, seeded

N = 12


def positives(pairs, shift):
    found = {}
    for query, target in pairs:
        found.setdefault(query, set()).add(target + shift)
        found.setdefault(target + shift, set()).add(query)
    return found


@QUICK
@given(
    pairs=st.sets(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), min_size=4, max_size=40),
    shared=st.booleans(),
    batch_size=st.integers(2, 8),
    places=st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=N, max_size=N)),
    ranks=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_no_negative_of_a_batch_is_a_known_positive(pairs, shared, batch_size, places, ranks, seed):
    pairs = sorted((query, target) for query, target in pairs if query != target or not shared)
    if len(pairs) < max(2, 2 * ranks) or batch_size < 2 * ranks:
        return
    draw, shift = seeded(seed), 0 if shared else N
    known = positives(pairs, shift)
    pick = torch.randint(N, (len(pairs),), generator=draw).tolist()
    rows = [
        (query, target, other if other + shift not in {query, *known[query]} else None)
        for (query, target), other in zip(pairs, pick, strict=True)
    ]
    relation = make_relation(rows, range(N), None if shared else range(N))
    place = None if places is None else torch.tensor(places)
    epochs = []
    for rank in range(ranks):
        sampler = ListedPairs(relation, batch_size, True, seeded(seed), (rank, ranks), place, 0.5)
        try:
            epochs.append(sampler.draw())
        except InputError:
            return
    used = [pair for epoch in epochs for one, two in epoch for pair in zip(one.tolist(), two.tolist())]  # noqa: B905
    assert set(used) <= set(pairs)
    assert len(used) == len(set(used))
    for batches in zip(*epochs, strict=True):
        queries = torch.cat([one for one, _ in batches]).tolist()
        targets = [each + shift for one, two in batches for each in two[: len(one)].tolist()]
        per_rank = [two[len(one) :].tolist() for one, two in batches]
        assert all(each == per_rank[0] for each in per_rank)  # the negatives of the whole batch
        negatives = [each + shift for each in per_rank[0]]
        ends = queries + targets + negatives
        assert len(set(ends)) == len(ends)
        for i, (query, target) in enumerate(zip(queries, targets, strict=True)):
            others = {*ends} - {queries[i], targets[i]}
            assert not others & known[query]
            assert not others & known[target]


def test_every_pair_occurs_if_none_conflict_and_places_stay_together():
    relation = make_relation([(i, i + 64) for i in range(64)], range(128))
    place = torch.arange(128) % 4
    sampler = ListedPairs(relation, 8, True, seeded(0), place=place)
    batches = sampler.draw()
    assert sorted(torch.cat([one for one, _ in batches]).tolist()) == list(range(64))
    assert all(len(place[one].unique()) == 1 for one, _ in batches)
    assert len({int(place[one][0]) for one, _ in batches[:8]}) > 1
    halves = ListedPairs(relation, 8, True, seeded(0), place=place, place_share=0.5).draw()
    assert all((place[one].bincount(minlength=4) % 4 == 0).all() for one, _ in halves)
    sampler.restrict_to(torch.arange(0, 64, 2))
    assert sorted(torch.cat([one for one, _ in sampler.draw()]).tolist()) == list(range(0, 64, 2))


def test_several_targets_of_a_query_are_positives_and_no_known_positive_is_a_negative():
    draw = seeded(1)
    pairs = [(query, 2 * query + k) for query in range(20) for k in range(1 + query % 3)]  # every third shares a target
    relation = make_relation([*pairs, (0, 39)], range(20), range(60))
    sampler, found = ListedPairs(relation, 12, True, draw, several=True), []
    for (queries, targets), ids in zip(sampler.draw(), sampler.ids, strict=True):
        nodes, label = torch.cat([queries, targets + 20]), ids.repeat(2)
        entry, positive = relation.positives(nodes)
        one, two = (positive[:, None] == nodes).nonzero(as_tuple=True)
        assert torch.equal(label[entry[one]], label[two])
        assert torch.equal(ids, queries)
        found += [(query, target) for query, target in zip(queries.tolist(), targets.tolist(), strict=True)]
    assert len(set(found)) == len(found) > 20
    shared = ListedPairs(
        make_relation([(i // 3, i) for i in range(36)], range(12), range(36)), 12, True, draw, several=True
    )
    assert all((ids.unique(return_counts=True)[1] == 3).all() for _ in shared.draw() for ids in shared.ids)


def test_parts_and_other_negatives_keep_what_is_known():
    relation = make_relation([(0, 1), (2, 3), (3, 0)], range(5)).of_pairs(torch.arange(2))
    other = relation.with_negatives(torch.tensor([[0], [4]]))
    for each in (relation, other):
        assert each.positives(torch.tensor([0]))[1].tolist() == [1, 3]
        assert each.component.tolist() == [0, 0, 0, 0, 1]
    assert list(ListedPairs(make_relation([(0, 1), (2, 3)], range(4)), 2)) == [([0, 2], [1, 3])]
    shards = [ListedPairs(make_relation({"query": range(8), "target": range(8, 16), "negative": [16] + [""] * 7},
                                        range(17)), 8, shard=(rank, 2)).draw() for rank in range(2)]  # fmt: skip
    assert [two[4:].tolist() for ((_, two),) in shards] == [[16], [16]]


def test_a_known_negative_is_drawn_with_its_weighted_pair():
    columns = {"query": [0, 2, 4], "target": [1, 3, 5], "negative": [6, "", 7], "weight": [1, 2.5, "3"]}
    sampler = ListedPairs(make_relation(columns, range(8)), 3)
    ((one, two),) = sampler.draw()
    assert (one.tolist(), two.tolist()) == ([0, 2, 4], [1, 3, 5, 6, 7])
    assert sampler.weights[0].tolist() == [1, 2.5, 3]


def test_a_star_of_pairs_is_refused():
    relation = make_relation([(0, i) for i in range(1, 6)], range(6))
    with pytest.raises(InputError, match="no batch has two pairs per rank that share no positive"):
        ListedPairs(relation, 4, True, seeded(0)).draw()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a", "b"), ("a", "z")], "no graph has the id 'z' of `target` in pair 1"),
        ([("a", "b"), ("d", "c")], "several graphs have the id 'd' of `query` in pair 1"),
        ([("a", "b"), ("c", "c")], "pair 1 is graph 'c' with itself"),
        ([("a", "b")], "has 1 pairs; contrasting needs at least two"),
        (["ab", ("a",)], r"pair 0 must be \(query, target\[, negative"),
        ([("a", "b", "c"), ("a", "c")], "a negative of pair 0 is a positive of its query"),
        ({"query": ["a", "b"]}, "has no column 'target'"),
        ({"query": ["a", "b"], "target": ["c"]}, r"columns must have equal lengths, got \[1, 2\]"),
        ({"query": ["a", "b"], "target": ["b", "c"], "weight": [1, float("nan")]}, "weight of pair 1 must be a pos"),
    ],
)
def test_an_invalid_list_is_one_line(pairs, message):
    with pytest.raises(InputError, match=message) as error:
        make_relation(pairs, ["a", "b", "c", "d", "d"])
    assert "\n" not in str(error.value)
