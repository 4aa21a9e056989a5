"""Ranks' shares of each batch: disjoint, equal, and together the batch of one process but for what is left over."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.loader import DataLoader

from graphcl.datasets.order import EpochBatches
from graphcl.datasets.resident import ResidentLoader, make_loader
from graphcl.datasets.streaming import StreamingLoader
from graphcl.errors import InputError
from tests.methods.small import graphs, seeded
from tests.strategies import QUICK


@QUICK
@given(ranks=st.integers(2, 5), batch=st.integers(0, 20), count=st.integers(0, 60), seed=st.integers(0, 9))
def test_shares(ranks, batch, count, seed):
    batch, count = batch + 2 * ranks, count + 2 * ranks
    whole = EpochBatches(count, batch, True, seeded(seed))
    shares = [EpochBatches(count, batch, True, seeded(seed), share=(rank, ranks)) for rank in range(ranks)]
    for _ in range(2):
        expected = [graphs.tolist() for graphs in whole.draw()]
        parts = [[graphs.tolist() for graphs in each.draw()] for each in shares]
        assert [each.current.graphs.tolist() for each in shares] == [whole.current.graphs.tolist()] * ranks
        assert {len(each) for each in parts} == {len(each) for each in shares} == {len(shares[0])}
        # What is dropped as a whole is a last batch that leaves a rank without a pair.
        assert len(expected) - len(shares[0]) == (len(expected[-1]) < 2 * ranks)
        for number, of_ranks in enumerate(zip(*parts, strict=True)):
            size = len(expected[number]) // ranks
            assert [len(part) for part in of_ranks] == [size] * ranks
            assert size >= 2
            joined = [graph for part in of_ranks for graph in part]
            assert joined == expected[number][: size * ranks]
        seen = [graph for each in parts for part in each for graph in part]
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize("kind", [ResidentLoader, StreamingLoader, DataLoader])
def test_every_loader_takes_its_share(kind, monkeypatch):
    """And tells which graphs it gave: `current` is the rank's own part; a training that goes on may skip batches."""
    data = graphs(22)
    if kind is DataLoader:
        monkeypatch.setattr("graphcl.datasets.resident.not_resident", lambda _: "a reason")
        make = make_loader
    else:
        make = kind
    found = []
    for rank in range(2):
        loader = make(data, 8, True, seeded(1), share=(rank, 2))
        assert isinstance(loader, kind)
        assert len(loader) == 3
        sampler = loader.batch_sampler
        for skip in (0, 1):
            sampler.skip = skip
            given = list(loader)
            order = sampler.current[skip:]
            assert [each.tolist() for each in order] == [graphs.tolist() for graphs in order]
            for batch, numbers in zip(given, order, strict=True):
                assert torch.equal(batch.x, torch.cat([data[number].x for number in numbers]))
            found += [number for each in order for number in each.tolist()] if not skip else []
    assert sorted(found) == list(range(22))


def test_what_is_refused():
    for sizes, line in (
        ({"batch_size": 7}, r"`batch_size` must be at least 2 x 4 ranks = 8, two graphs each, got 7\."),
        ({"num_graphs": 7}, r"`num_graphs` must be at least 2 x 4 ranks = 8, two graphs each, got 7\."),
        ({"share": (4, 4)}, r"`share` must be \(rank, ranks\) with 0 <= rank < ranks, got \(4, 4\)\."),
        ({"share": (-1, 4)}, r"`share` must be .*, got \(-1, 4\)\."),
    ):
        known = {"num_graphs": 30, "batch_size": 8, "shuffle": True, "generator": None, "share": (0, 4)} | sizes
        with pytest.raises(InputError, match=f"^{line}$"):
            EpochBatches(**known)
    with pytest.raises(InputError, match="at least 2 x 3 ranks"):
        make_loader(graphs(12), 5, share=(0, 3))
    assert len(EpochBatches(1, 1, True, None, share=(0, 1))) == 1  # one process alone: as ever
