"""Test the figures of rankings against every order of tied candidates, by loops from the definitions."""

import itertools
import math

import numpy as np
import pytest
import torch

from graphcl.errors import InputError
from graphcl.evaluate import ranking
from graphcl.evaluate.ranking import FIGURES, QueryScores, expected_figures, rank_by, rank_pairs, rank_queries


def figures_of(order):
    """Return the figures of one ranking, given as a list of whether each rank is relevant."""
    ranks = [rank for rank, hit in enumerate(order, 1) if hit]
    first = ranks[0]
    precision = [sum(order[:rank]) / rank for rank in ranks]
    return [
        1 / first,
        (first <= 10) / first,
        float(first <= 1),
        float(first <= 10),
        sum(precision) / len(ranks),
        sum(1 / math.log2(1 + rank) for rank in ranks if rank <= 10)
        / sum(1 / math.log2(2 + place) for place in range(min(10, len(ranks)))),
    ]


def by_orders(scores, relevant):
    """Return the mean of the figures over all orders of equal scores."""
    tied = [[i for i in range(len(scores)) if scores[i] == each] for each in sorted(set(scores), reverse=True)]
    orders = itertools.product(*(itertools.permutations(each) for each in tied))
    found = [figures_of([relevant[i] for i in itertools.chain(*order)]) for order in orders]
    return np.mean(found, axis=0)


CASES = [
    ([3, 2, 1], [0, 1, 0]),
    ([1, 1, 1, 1, 1], [0, 0, 1, 0, 1]),
    ([5, 2, 2, 2, 2, 1, 1, 1], [0, 1, 0, 1, 0, 1, 1, 0]),
    ([9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 0], [0] * 8 + [1, 0, 0, 1, 1]),  # the tie lies around rank 10
    ([2, 2, 2, 1, 1, 1], [1, 1, 1, 1, 1, 1]),
    ([1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1]),
]


@pytest.mark.parametrize("few", [0, 16])
def test_ties_count_as_the_mean_over_all_their_orders(few, monkeypatch):
    monkeypatch.setattr(ranking, "_FEW", few)
    for scores, relevant in CASES:
        found = expected_figures(torch.tensor([scores], dtype=torch.double), torch.tensor([relevant]).bool())
        np.testing.assert_allclose([float(found[name]) for name in FIGURES], by_orders(scores, relevant), rtol=1e-12)


def loops(h, group, queries, candidates):
    """Return query -> figures of rankings without ties."""
    found = {}
    for query in queries:
        others = [i for i in candidates if i != query]
        cosine = {i: h[query] @ h[i] / np.linalg.norm(h[query]) / np.linalg.norm(h[i]) for i in others}
        order = [group[query] == group[i] for i in sorted(others, key=lambda i: -cosine[i])]
        if group[query] >= 0 and any(order):
            found[query] = figures_of(order)
    return found


@pytest.mark.parametrize(("tile", "few"), [(1, 16), (100, 0), (2**21, 2), (2**21, 16)])
def test_equals_loops_over_the_queries(tile, few, monkeypatch):
    monkeypatch.setattr(ranking, "_TILE", tile)
    monkeypatch.setattr(ranking, "_FEW", few)
    generator = np.random.default_rng(0)
    h, group = generator.normal(size=(40, 6)), generator.integers(-1, 9, 40)
    some = generator.permutation(40)
    for queries, candidates in ((None, None), (some[:12], None), (some[:12], some[8:])):
        asked, pool = (range(40) if each is None else each for each in (queries, candidates))
        expected = loops(h, group, asked, pool)
        found = rank_queries(torch.from_numpy(h), group, queries, candidates)
        assert found.queries.tolist() == [*expected]
        table = np.stack([found.values[name] for name in FIGURES], axis=1)
        np.testing.assert_allclose(table, [*expected.values()], rtol=1e-12)
        assert found.percent()["map"] == pytest.approx(100 * table[:, 4].mean())


def test_copies_of_one_embedding_tie_whatever_their_place():
    # BLAS rounds the products of equal rows differently, and a constant embedding must not rank anybody
    h, group = np.tile(np.random.default_rng(1).normal(size=(1, 77)), (61, 1)), np.arange(61) // 2
    found = rank_queries(h.astype(np.float32), group)
    assert len(found.queries) == 60
    torch.testing.assert_close(found.values["mrr"], torch.full((60,), sum(1 / i for i in range(1, 61)) / 60).double())
    torch.testing.assert_close(found.values["recall_at_10"], torch.full((60,), 1 / 6).double())


def test_a_zero_row_a_group_of_one_and_no_group():
    h = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    assert rank_queries(h, torch.tensor([4, 4, 7, -1])).queries.tolist() == [0, 1]
    assert rank_queries(h, ["b", "b", "c", "a"]).queries.tolist() == [0, 1]
    assert rank_queries(h, ["b", "b", "", " "]).queries.tolist() == [0, 1]
    assert rank_queries(h, torch.tensor([4, 4, 7, -1])).values["mrr"].tolist() == [1 / 2, pytest.approx(11 / 18)]


H, GROUP = np.eye(4), [0, 0, 1, 1]
INVALID = [
    ((H[0], GROUP), r"`h` must be \[graphs, features\], got shape \[4\]\."),
    ((H, GROUP[:3]), r"`group` must hold one number for each of the 4 rows of `h`, got shape \[3\]\."),
    ((H, [0.5, 1, 2, 3]), r"`group` must hold strings, or whole numbers, -1 for none, got float64\."),
    ((H, [-2, 0, 0, 1]), r"`group` must be -1 for no group, or 0 or more, got -2\."),
    ((H, [0, 1, 2, -1]), r"no query has a candidate of its own group; groups need two graphs or more\."),
    ((H, GROUP, [4]), r"`queries` must hold different indices of the 4 graphs, at least one\."),
    ((H, GROUP, None, [1, 1]), r"`candidates` must hold different indices of the 4 graphs, at least one\."),
]


def test_invalid_data():
    for arguments, message in INVALID:
        with pytest.raises(InputError, match=f"^{message}$"):
            rank_queries(*arguments)


def test_ranks_by_a_given_similarity():
    h, group = np.random.default_rng(2).normal(size=(20, 3)), np.arange(20) // 2
    unit = torch.from_numpy(h / np.linalg.norm(h, axis=1, keepdims=True))
    given = rank_by(lambda queries, candidates: unit[queries] @ unit[candidates].T, group)
    assert given.percent() == rank_queries(h, group).percent()


def test_infinite_similarities_rank_first_and_last():
    """-inf excludes a candidate that another one can still tie with, but never the query itself."""
    infinite = np.inf
    kernel = np.array(
        [[0, -infinite, 1, -infinite], [-infinite, 0, infinite, 9], [infinite, 9, 0, infinite], [1, 2, 3, np.nan]]
    )
    found = rank_by(lambda queries, candidates: kernel[queries][:, candidates], [0, 0, 1, 1])
    # 0 finds 1 behind 2, tied with 3; 1 finds 0 last; 2 finds 3 tied with 0; 3 finds 2 first
    assert found.values["mrr"].tolist() == pytest.approx([(1 / 2 + 1 / 3) / 2, 1 / 3, 3 / 4, 1])


def test_invalid_similarities():
    kernel = torch.eye(4)
    kernel[1, 3] = torch.nan
    cases = [
        (lambda one, two: kernel[one][:, two], "the similarity of graphs 1 and 3 is NaN; use -inf for a pair never .*"),
        (lambda one, _: kernel[one][:, :3], r"`similarity` must return \[4, 4\] similarities, got \[4, 3\]"),
        (lambda one, _: kernel, r"`similarity` must return \[2, 4\] similarities, got \[4, 4\]"),
        (lambda one, two: "a", "`similarity` must hold real numbers, got <U1"),
    ]
    for number, (similarity, message) in enumerate(cases):
        with pytest.raises(InputError, match=f"^{message}\\.$"):
            rank_by(similarity, GROUP, [0, 1] if number == 2 else None)
    with pytest.raises(InputError, match=r"^`n` must be a whole number, got 4\.5\.$"):
        rank_by(cases[0][0], GROUP, n=4.5)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_listed_pairs_are_ranked_as_by_loops(itself, places, monkeypatch):
    monkeypatch.setattr(ranking, "_TILE", 30)
    draw = np.random.default_rng(0)
    scores, n = draw.normal(size=(9, 9)), 9
    relevant = np.unique(draw.integers(0, n, (25, 2)), axis=0)
    pool = draw.permutation(n)[:8]
    place = draw.integers(0, 2, (2, n)) if places else np.zeros((2, n), int)
    expected = {}
    for query in sorted(set(relevant[:, 0].tolist())):
        own = [c for c in pool if place[0][query] == place[1][c] and not (itself and c == query)]
        order = [(query, c) in map(tuple, relevant.tolist()) for c in sorted(own, key=lambda c: -scores[query, c])]
        if any(order):
            expected[query] = figures_of(order)
    given = {"place": tuple(map(torch.from_numpy, place))} if places else {}
    found = rank_pairs(lambda one, two: scores[one][:, two], relevant.T, pool, itself=itself, **given)
    assert found.queries.tolist() == [*expected]
    table = np.stack([found.values[name] for name in FIGURES], axis=1)
    np.testing.assert_allclose(table, [*expected.values()], rtol=1e-12)


def test_pairs_without_a_relevant_candidate_are_one_line():
    with pytest.raises(InputError, match="no query has a relevant candidate"):
        rank_pairs(lambda one, two: torch.zeros(len(one), len(two)), np.array([[0], [2]]), np.array([0, 1]))


def test_intervals_hold_the_mean_of_new_queries():
    draw, inside = np.random.default_rng(0), 0
    for _ in range(200):
        values = torch.from_numpy(draw.beta(0.5, 0.5, 100))
        low, high = QueryScores(torch.arange(100), {"mrr": values}).intervals(draws=300)["mrr"]
        inside += low <= 50 <= high
    assert 180 <= inside <= 199


def drawn_groups(seed, groups, members):
    """Return embeddings of random groups, some of which are hard as a whole, and the group of each row."""
    draw = np.random.default_rng(seed)
    centre, spread = draw.normal(size=(groups, 1, 8)), draw.exponential(size=(groups, 1, 1))
    h = centre + spread * draw.normal(size=(groups, members, 8))
    return h.reshape(-1, 8), np.repeat(np.arange(groups), members)


@pytest.mark.parametrize(("members", "mean"), [(2, 58.1), (4, 64.3)])
def test_intervals_resample_groups(members, mean):
    """The means are of 1,000 sets, where 94 and 93 % of these intervals hold them, and 83 and 71 % over queries."""
    found = [rank_queries(*drawn_groups(seed, 30, members)) for seed in range(100)]

    def coverage(units):
        alone = [QueryScores(each.queries, {"mrr": each.values["mrr"]}, units(each)) for each in found]
        ends = [each.intervals(draws=200)["mrr"] for each in alone]
        return np.mean([low <= mean <= high for low, high in ends])

    assert coverage(lambda each: each.units) > 0.88 > coverage(lambda _: None)


def test_a_unit_is_a_group_or_what_pairs_connect():
    h, group = np.random.default_rng(0).normal(size=(8, 3)), np.array([3, 3, -1, 5, 5, 5, 9, 9])
    found = rank_queries(h, group)
    assert found.units.tolist() == [0, 0, 1, 1, 1, 2, 2]
    scores = torch.rand(6, 6, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[0, 1, 2, 4], [1, 3, 3, 5]])
    for itself, same in ((True, [True, True, False]), (False, [False, True, False])):
        units = rank_pairs(lambda one, two: scores[one][:, two], pairs, [1, 3, 5], itself=itself).units.tolist()
        assert [units[1] == units[0], units[1] == units[2], units[3] in units[:3]] == same
    one = rank_by(lambda a, b: scores[a][:, b], [1, 1, 1, 2, 2, 2], place=torch.tensor([0, 0, 1, 0, 1, 1]))
    assert one.units.tolist() == [0, 0, 1, 1]
