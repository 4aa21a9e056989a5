"""Test that batches of `ResidentLoader` equal PyG's batches, and that each epoch has every graph once."""

import itertools
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.loader import DataLoader

from graphcl.errors import InputTypeError
from graphcl.loaders.loader import StreamingLoader, make_loader
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.samplers import EpochBatches
from tests.datasets.graphs import Held, Saved, graphs_with, one_line
from tests.strategies import QUICK, assert_law, assert_same_batch, seeded, uniform


def batch_indices(*sizes):
    return EpochBatches(*sizes).draw()


ATTRIBUTES = {
    "no-features": {},
    "whole-numbers": {"more": lambda i: {"y": i, "level": i - 3}},
    "double-and-short": {"more": lambda i: {"a": torch.ones(i, 2).double() * i, "b": torch.ones(1).short() * i}},
    "face": {"keys": ("x",), "more": lambda i: {"face": torch.arange(i + 2).repeat(3, 1)}},
    "node-indices": {"more": lambda i: {"root_index": torch.tensor([i]), "pair_index": torch.ones(2, i).long()}},
    "scalar-node-indices": {"keys": ("x",), "more": lambda i: {"root_index": torch.tensor(i)}},
    "narrow-node-indices": {"keys": ("x",), "more": lambda i: {"root_index": torch.tensor([i], dtype=torch.int32)}},
    "stated-numbers-of-nodes": {"keys": ("x",), "more": lambda i: {"num_nodes": i + 2}},
    "empty-parts": {"more": lambda i: {"rest": torch.arange(i % 2), "z": torch.ones(1)}},
    "everything": {
        "keys": ("x", "pos", "node_flag", "edge_attr", "edge_weight", "y", "target", "ragged", "name", "scale"),
        "more": lambda i: {"face": torch.ones(3, i, dtype=torch.long), "level": i, "scalar": torch.tensor(0.5)},
    },
}


@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_batches_equal_pygs(attributes, tmp_path):
    graphs = graphs_with(**attributes)
    InMemoryDataset.save(graphs, tmp_path / "graphs.pt")
    for dataset in (Held(graphs), graphs, Saved(tmp_path / "graphs.pt")):
        loader = make_loader(dataset, batch_size=3)
        for got, chosen in zip(loader, ([0, 1, 2], [3, 4, 5, 6]), strict=True):
            assert_same_batch(got, Batch.from_data_list([dataset[i] for i in chosen]))
        for chosen in ([6, 0, 3], [3], [2, 2, 5], list(range(7))):
            wanted = Batch.from_data_list([dataset[i] for i in chosen])
            assert_same_batch(loader.batch(torch.tensor(chosen)), wanted)


def test_a_loader_like_another_shares_its_tensors():
    """A run has loaders for training and for embedding, and the device should hold the data set once."""
    dataset = Held(graphs_with())
    one = ResidentLoader(dataset, 2, shuffle=True)
    other = make_loader(dataset, 3, like=one)
    assert other._levels is one._levels
    for got, expected in zip(other, make_loader(dataset, 3), strict=True):
        assert_same_batch(got, expected)


class Compound(Data):  # PyG caches batch classes by class name, so the name must be unique among the tests
    pass


def test_parts_of_data_sets_and_subclasses_of_data():
    whole = Held(graphs_with(**ATTRIBUTES["everything"], count=12))
    for part in (whole[3:9], whole[[1, 5, 2]], whole[torch.tensor([True, False] * 6)], whole[3:9][1:4], whole[4:5]):
        loader = ResidentLoader(part, batch_size=4)
        assert_same_batch(loader.batch(torch.arange(len(part))), Batch.from_data_list(list(part)))
    graphs = [Compound(**graph.to_dict()) for graph in graphs_with(keys=("x", "y"))]
    for dataset in (graphs, Held(graphs)):
        got = ResidentLoader(dataset, 3).batch(torch.tensor([4, 1]))
        assert_same_batch(got, Batch.from_data_list([dataset[4], dataset[1]]))
        assert type(got[0]) is Compound


def test_a_batch_shares_no_memory():
    """Writing into a batch does not change the data set or later batches."""
    dataset = Held(graphs_with(keys=("x", "y", "edge_attr", "ragged")))
    loader = ResidentLoader(dataset, 7)
    expected = Batch.from_data_list(list(dataset))
    for _ in range(2):
        (batch,) = loader
        assert_same_batch(batch, expected)
        for value in batch._store.values():
            if isinstance(value, torch.Tensor):
                value.zero_()
    assert_same_batch(Batch.from_data_list(list(dataset)), expected)


# -- epochs ------------------------------------------------------------------------------------------------------------


class Ruled(Data):
    """A graph class with its own batching rules."""

    def __inc__(self, key, value, *args, **kwargs):
        return 1000 if key == "y" else super().__inc__(key, value, *args, **kwargs)


def drawn(batch):
    """Return the indices of the graphs in a batch, which `node_id` encodes."""
    return (batch.node_id[batch.ptr[:-1]] // 100).tolist()


def test_batches_equal_a_plain_split():
    for batch_size, count in itertools.product(range(1, 12), (0, 1, 2, 7, 12, 13, 23, 29)):
        generator, sampler = seeded(0), EpochBatches(count, batch_size, True, seeded(0))
        for _ in range(2):  # each epoch draws a new order
            expected = list(torch.randperm(count, generator=generator).split(batch_size)) if count else []
            if len(expected) > 1 and batch_size > 1 and expected[-1].numel() == 1:
                expected[-2:] = [torch.cat(expected[-2:])]
            assert [graphs.tolist() for graphs in sampler.draw()] == [graphs.tolist() for graphs in expected]
            assert len(sampler) == len(expected)


def test_windows_of_blocks():
    """Each window of 160 graphs consists of 16 whole blocks of 10 graphs."""
    order, other = (torch.cat(batch_indices(1000, 8, True, seeded(seed), 165)) for seed in range(2))
    assert not torch.equal(order, other)
    for part in order.split(160):
        assert (part // 10).unique(return_counts=True)[1].tolist() == [10] * (len(part) // 10)
        assert not torch.equal(part, part.sort().values)
    for count, window in ((1003, 165), (257, 16), (90, 64)):
        order = torch.cat(batch_indices(count, 8, True, seeded(0), window))
        assert order.sort().values.tolist() == list(range(count))
        whole = [torch.cat(batch_indices(count, 8, True, seeded(0), wide)) for wide in (count, 10 * count, None)]
        assert torch.equal(whole[0], whole[2])
        assert torch.equal(whole[1], whole[2])


def test_orders_are_uniform():
    generator = seeded(0)
    first = [int(EpochBatches(64, 8, True, generator, 32).draw()[0][0]) for _ in range(1600)]
    assert_law(first, uniform(range(64)))  # in windows, each graph is equally likely at each place
    orders = [tuple(torch.cat(batch_indices(3, 3, True, generator)).tolist()) for _ in range(600)]
    assert_law(orders, uniform(permutations(range(3))))


def test_without_a_generator_the_global_one_decides_and_else_stays():
    before = torch.get_rng_state()
    list(ResidentLoader(graphs_with(keys=("x",)), 3, True, seeded(0)))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = [drawn(batch) for batch in ResidentLoader(graphs_with(), 3, True)]
        torch.manual_seed(0)
        assert [drawn(batch) for batch in ResidentLoader(graphs_with(), 3, True)] == first


# -- shards -----------------------------------------------------------------------------------------------------------


@QUICK
@given(ranks=st.integers(2, 5), batch=st.integers(0, 20), count=st.integers(0, 60), seed=st.integers(0, 9))
def test_shards(ranks, batch, count, seed):
    batch, count = batch + 2 * ranks, count + 2 * ranks
    whole = EpochBatches(count, batch, True, seeded(seed))
    shards = [EpochBatches(count, batch, True, seeded(seed), shard=(rank, ranks)) for rank in range(ranks)]
    for _ in range(2):
        expected = [graphs.tolist() for graphs in whole.draw()]
        parts = [[graphs.tolist() for graphs in each.draw()] for each in shards]
        assert {len(each) for each in parts} == {len(each) for each in shards} == {len(shards[0])}
        # Only a last batch with fewer than two graphs per rank is dropped as a whole.
        assert len(expected) - len(shards[0]) == (len(expected[-1]) < 2 * ranks)
        for number, of_ranks in enumerate(zip(*parts, strict=True)):
            size = len(expected[number]) // ranks
            assert [len(part) for part in of_ranks] == [size] * ranks
            assert size >= 2
            joined = [graph for part in of_ranks for graph in part]
            assert joined == expected[number][: size * ranks]
        seen = [graph for each in parts for part in each for graph in part]
        assert len(seen) == len(set(seen))


def test_every_loader_takes_its_shard(monkeypatch):
    """The batches of both ranks have the graphs that `batch_sampler.current` lists, together every graph once."""
    data = graphs_with(count=22, keys=("x",))
    monkeypatch.setattr("graphcl.loaders.loader.not_resident", lambda _: "a reason")
    for make in (ResidentLoader, lambda *a, **o: StreamingLoader(ResidentLoader(*a, **o)), make_loader):
        found = []
        for rank in range(2):
            loader = make(data, batch_sampler=EpochBatches(22, 8, True, seeded(1), shard=(rank, 2)))
            assert isinstance(loader, DataLoader) == (make is make_loader)
            assert len(loader) == 3
            for batch, numbers in zip(list(loader), loader.batch_sampler.current, strict=True):
                assert torch.equal(batch.x, torch.cat([data[number].x for number in numbers]))
                found += numbers.tolist()
        assert sorted(found) == list(range(22))


def test_wrong_arguments():
    known = {"num_graphs": 30, "batch_size": 8, "shuffle": True, "generator": None, "shard": (0, 4)}
    for sizes, line in [
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"window": 15}, "`window` must be at least 16, got 15"),
        ({"batch_size": 7}, "`batch_size` must be at least 2 x 4 ranks = 8, two graphs each, got 7."),
        ({"num_graphs": 7}, "`num_graphs` must be at least 2 x 4 ranks = 8, two graphs each, got 7."),
        ({"shard": (4, 4)}, "`shard` must be (rank, ranks) with 0 <= rank < ranks, got (4, 4)."),
        ({"shard": (-1, 4)}, "< ranks, got (-1, 4)."),
    ]:
        one_line(lambda: EpochBatches(**known | sizes), line)  # noqa: B023, called at once
    for kind, make in itertools.product((HeteroData, TemporalData), (ResidentLoader, make_loader)):
        says = f"must hold torch_geometric.data.Data, got {kind.__name__}; "
        one_line(lambda: make([kind()] * 2, 3), says, kind=InputTypeError)  # noqa: B023, called at once


# -- data sets for PyG's loader ---------------------------------------------------------------------------------------


class Stacked(Data):
    def __cat_dim__(self, key, value, *args, **kwargs):
        return None if key == "target" else super().__cat_dim__(key, value, *args, **kwargs)


NOT_RESIDENT = {
    "transform": (lambda: Held(graphs_with(keys=("x", "y")), transform=lambda graph: graph), "transform"),
    "subset": (lambda: Subset(Held(graphs_with(keys=("x",)), lambda graph: graph), range(7)), "transform"),
    "own-increments": (lambda: [Ruled(**graph.to_dict()) for graph in graphs_with(keys=("x", "y"))], "Ruled"),
    "own-axis": (lambda: [Stacked(**graph.to_dict()) for graph in graphs_with(keys=("x", "target"))], "Stacked"),
    "nested": (lambda: graphs_with(lambda i: {"deep": {"a": torch.ones(i)}}), "deep"),
    "nested-data-set": (lambda: Held(graphs_with(lambda i: {"deep": {"a": torch.ones(i)}})), "deep"),
    "list": (lambda: graphs_with(lambda i: {"names": ["a"] * i + ["b"]}), "names"),
    "sparse": (lambda: graphs_with(lambda i: {"adj": torch.eye(i + 2).to_sparse()}), "adj"),
    "of-the-batch": (lambda: graphs_with(lambda i: {"my_batch": torch.tensor([0, 1])}), "my_batch"),
}


def test_other_data_sets_use_pygs_loader():
    for make, word in NOT_RESIDENT.values():
        dataset = make()
        one_line(lambda: ResidentLoader(dataset, 3), "cannot be held on the device: ", word, "use PyG's DataLoader")  # noqa: B023
        loader = make_loader(dataset, 3, True, seeded(0))
        assert isinstance(loader, DataLoader), word
        for chosen, got in zip(batch_indices(7, 3, True, seeded(0)), loader, strict=True):
            expected = Batch.from_data_list([dataset[i] for i in chosen.tolist()])
            assert drawn(got) == chosen.tolist()
            if word != "adj":  # PyG cannot split a batch with a sparse tensor
                assert_same_batch(got, expected)
