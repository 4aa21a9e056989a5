"""Test that an epoch of pairs has one pair of every group, and that all loaders yield these pairs."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from graphcl import GIN, ContrastiveModel, TwoViews, train
from graphcl.augment import Identity
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.datasets.relation import GroupNumbers, relation_of_groups
from graphcl.loaders.loader import StreamingLoader, make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochPairs, ListedPairs
from graphcl.losses import supcon
from graphcl.training.epoch import augmented
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line
from tests.strategies import QUICK, assert_law, assert_same_batch, seeded, uniform

GROUPS = [4, 4, -1, 9, 4, 9, 5, -1, 7, 7, 7, 7, 2, 2]
MEMBERS = {4: {0, 1, 4}, 9: {3, 5}, 7: {8, 9, 10, 11}, 2: {12, 13}}
ALONE = [2, 6, 7]


@QUICK
@given(
    groups=st.lists(st.integers(-1, 8), min_size=1, max_size=40),
    batch_size=st.integers(1, 6),
    singles=st.sampled_from(["drop", "views"]),
    seed=st.integers(0, 9),
)
def test_an_epoch_has_one_pair_of_every_group(groups, batch_size, singles, seed):
    members = {each: {i for i, own in enumerate(groups) if own == each} for each in dict.fromkeys(groups) if each >= 0}
    wanted = [each for each in members.values() if len(each) > 1]
    alone = [{i} for i in range(len(groups)) if groups[i] < 0 or len(members[groups[i]]) == 1]
    wanted = sorted(wanted + alone * (singles == "views"), key=min)  # numbered in the order of their first graph
    if len(wanted) < 2:
        one_line(lambda: EpochPairs(groups, batch_size, singles=singles), "pairs needs at least two groups of ")
        return
    sampler = EpochPairs(groups, batch_size, True, seeded(seed), singles=singles)
    for _ in range(2):
        pairs = sampler.draw()
        assert sorted(torch.cat(sampler.ids).tolist()) == list(range(len(wanted)))
        assert all(len(each) <= batch_size + (batch_size > 1) for each in sampler.ids)
        for pair, ids in zip(pairs, sampler.ids, strict=True):
            for (one, two), number in zip(torch.stack(pair).t().tolist(), ids.tolist(), strict=True):
                assert {one, two} <= wanted[number]
                assert (one == two) == (len(wanted[number]) == 1)


def test_members_are_drawn_uniformly_and_anew():
    sampler = EpochPairs(GROUPS, 4, True, seeded(0), singles="views")
    found = {number: [] for number in range(sampler.num_graphs)}
    for _ in range(600):
        (pairs, *rest), (ids, *_) = sampler.draw(), sampler.ids
        for pair, number in zip(torch.stack(pairs).t().tolist(), ids.tolist(), strict=True):
            found[number].append(tuple(pair))
        assert rest
    for number, members in enumerate(sorted([*MEMBERS.values(), *({i} for i in ALONE)], key=min)):
        if len(members) > 1:
            assert_law(found[number], uniform(itertools.permutations(members, 2)))
    plain = EpochPairs(GROUPS, 8)
    assert [torch.stack(each).tolist() for each in plain.draw() + plain.draw()] == [[[0, 3, 8, 12], [1, 5, 9, 13]]] * 2
    named = EpochPairs(["", None, "a", "b", "a", "b"], 2)
    assert [torch.stack(each).tolist() for each in named.draw()] == [[[2, 3], [4, 5]]]


def test_ranks_share_every_batch():
    groups = torch.arange(60) // 2
    whole = EpochPairs(groups, 8, True, seeded(1))
    shards = [EpochPairs(groups, 8, True, seeded(1), shard=(rank, 2)) for rank in range(2)]
    for _ in range(2):
        whole.draw()
        of_ranks = zip(*(each.draw() for each in shards), strict=True)
        for expected, parts in zip(whole.current, of_ranks, strict=True):
            for place, members in enumerate(zip(*parts, strict=True)):
                assert torch.equal(torch.cat(members), expected[place][: len(members[0]) * 2])


@pytest.fixture(scope="module")
def dataset():
    graphs = small_graphs(42, edge_attr=True)
    for number, graph in enumerate(graphs):
        graph.group, graph.id = number % 19, number
    return load_dataset(graphs)


def test_every_loader_yields_both_members(dataset, tmp_path, monkeypatch):
    packed = write_on_disk(dataset, tmp_path / "packed")

    def pairs():
        return EpochPairs(dataset.groups, 4, True, seeded(0))

    made = {
        "resident": ResidentLoader(dataset, batch_sampler=pairs()),
        "like": make_loader(dataset, like=ResidentLoader(dataset, 9), batch_sampler=pairs()),
        "streaming": make_loader(packed, batch_sampler=pairs()),
    }
    monkeypatch.setattr("graphcl.loaders.loader.not_resident", lambda _: "a reason")
    made["PyG's"] = make_loader(dataset, batch_sampler=pairs())
    kinds = [ResidentLoader, ResidentLoader, StreamingLoader, DataLoader]
    assert [type(each) for each in made.values()] == kinds
    wanted = pairs()
    for epoch in range(4):
        drawn = wanted.draw()
        for name, loader in made.items():
            if epoch < 2:
                found = list(loader)
            else:  # in chunks of several batches, where the loader has them
                ways = augmented(loader, Identity(), Identity(), None, torch.device("cpu"))
                *found, ids = zip(*ways, strict=True)
                found = list(zip(*found, strict=True))
                assert all(map(torch.equal, ids, wanted.ids)), name
            assert len(found) == len(drawn) == len(loader)
            for members, graphs in zip(found, drawn, strict=True):
                for batch, rows in zip(members, graphs, strict=True):
                    assert batch.id.tolist() == rows.tolist(), name
                    if epoch == 0:
                        assert_same_batch(batch, Batch.from_data_list([dataset[i] for i in rows.tolist()]))


def test_wrong_arguments(dataset):
    for options, line in (
        ({"groups": [0, 0, 1, 1]}, "the sampler is for 4 graphs, but the data set has 42."),
        ({"groups": [-1] * 42}, "needs at least two groups of two or more graphs each, got 0; check `group`."),
        ({"groups": dataset.groups, "batch_size": 15, "shard": (0, 8)}, "`batch_size` must be at least 2 x 8 ranks"),
        ({"groups": [0, 0, 1, 1] + [-1] * 38, "shard": (0, 2)}, "`num_groups` must be at least 2 x 2 ranks = 4, two"),
    ):
        given = {"batch_size": 4} | options
        one_line(lambda: ResidentLoader(dataset, batch_sampler=EpochPairs(**given)), line)  # noqa: B023, called at once


def test_a_loss_with_several_positives_gets_the_groups():
    dataset = load_dataset(small_graphs(14))
    pairs = relation_of_groups(GroupNumbers()(GROUPS))
    loader = ResidentLoader(dataset, batch_sampler=ListedPairs(pairs, 8, True, seeded(0), several=True))
    method = TwoViews(ContrastiveModel(GIN(dataset.num_features, 8, 2)), "supcon", labels="ids")
    one, two = next(iter(loader))
    found = method(one, two, ids=loader.batch_sampler.ids[0]).loss
    z1, z2 = method.model.project(*method.model.encode_views(one, two))
    torch.testing.assert_close(found, supcon(z1, z2, labels=loader.batch_sampler.ids[0]))
    (epoch,) = train(method, loader, "identity", "identity", epochs=1)
    assert epoch.loss > 0
    one_line(lambda: method(one, two), "method `two_views` needs the indices of a batch's graphs")
