"""Test shards, the ranks' parts of a batch: equal in size, disjoint, and complete except for the remainder."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.loader import DataLoader

from graphcl.loaders.loader import make_loader
from graphcl.loaders.order import EpochBatches
from graphcl.loaders.resident import ResidentLoader
from graphcl.loaders.streaming import StreamingLoader
from tests.datasets.graphs import one_line
from tests.methods.small import graphs, seeded
from tests.strategies import QUICK


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


LOADERS = {
    "resident": ResidentLoader,
    "streaming": lambda *args, **options: StreamingLoader(ResidentLoader(*args, **options)),
    "fallback": make_loader,
}


@pytest.mark.parametrize("kind", LOADERS)
def test_every_loader_takes_its_shard(kind, monkeypatch):
    """The batches of both ranks have the graphs that `batch_sampler.current` lists, together every graph once."""
    data = graphs(22)
    monkeypatch.setattr("graphcl.loaders.loader.not_resident", lambda _: "a reason")
    found = []
    for rank in range(2):
        loader = LOADERS[kind](data, 8, True, seeded(1), shard=(rank, 2))
        assert isinstance(loader, DataLoader) == (kind == "fallback")
        assert len(loader) == 3
        given = list(loader)
        for batch, numbers in zip(given, loader.batch_sampler.current, strict=True):
            assert torch.equal(batch.x, torch.cat([data[number].x for number in numbers]))
            found += numbers.tolist()
    assert sorted(found) == list(range(22))


def test_invalid_shards():
    known = {"num_graphs": 30, "batch_size": 8, "shuffle": True, "generator": None, "shard": (0, 4)}
    for sizes, line in [
        ({"batch_size": 7}, "`batch_size` must be at least 2 x 4 ranks = 8, two graphs each, got 7."),
        ({"num_graphs": 7}, "`num_graphs` must be at least 2 x 4 ranks = 8, two graphs each, got 7."),
        ({"shard": (4, 4)}, "`shard` must be (rank, ranks) with 0 <= rank < ranks, got (4, 4)."),
        ({"shard": (-1, 4)}, "< ranks, got (-1, 4)."),
    ]:
        one_line(lambda: EpochBatches(**known | sizes), line)  # noqa: B023, called at once
