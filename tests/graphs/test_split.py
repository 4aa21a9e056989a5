"""Test `split`: it undoes the concatenation of several batches by the loader."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.augment import NodeDrop, random4
from graphcl.datasets.resident import ResidentLoader
from graphcl.graphs.batching import split


def graphs(n: int = 23) -> list[Data]:
    found = []
    for i in range(n):
        size = i % 5 + 1
        edge_index = torch.randint(size, (2, i % 4), generator=torch.Generator().manual_seed(i))
        found.append(
            Data(
                x=torch.rand(size, 3, generator=torch.Generator().manual_seed(i)),
                edge_index=edge_index,
                edge_attr=torch.arange(edge_index.size(1)).float(),
                y=torch.tensor([i]),
                label=f"graph {i}",
                weight=i / 2,
            )
        )
    return found


def assert_same(one: Batch, other: Batch) -> None:
    assert set(one.keys()) == set(other.keys())
    assert one.num_graphs == other.num_graphs
    for key, value in other._store.items():
        assert torch.equal(one[key], value) if isinstance(value, torch.Tensor) else one[key] == value, key
    for a, b in zip(one.to_data_list(), other.to_data_list(), strict=True):
        assert a.to_dict().keys() == b.to_dict().keys()
        for key, value in b.to_dict().items():
            assert torch.equal(a[key], value) if isinstance(value, torch.Tensor) else a[key] == value, key


@pytest.mark.parametrize("sizes", [[23], [1] * 23, [4, 4, 4, 4, 7], [22, 1]])
def test_parts_are_pygs_batches(sizes):
    whole, data = Batch.from_data_list(graphs()), graphs()
    start = 0
    for part, size in zip(split(whole, sizes), sizes, strict=True):
        assert_same(part, Batch.from_data_list(data[start : start + size]))
        start += size


def test_graphs_without_features_keep_their_number_of_nodes():
    data = [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=n) for n in (2, 5, 3)]
    parts = split(Batch.from_data_list(data), [2, 1])
    assert [graph.num_nodes for part in parts for graph in part.to_data_list()] == [2, 5, 3]
    assert parts[0].num_nodes == 7


def test_node_indices_are_counted_from_each_parts_start():
    data = [Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [2]]), face=torch.tensor([[0], [1], [2]]))] * 4
    for part in split(Batch.from_data_list(data), [1, 3]):
        assert_same(part, Batch.from_data_list(data[: part.num_graphs]))


def test_views_are_taken_apart_too():
    whole = Batch.from_data_list(graphs())
    for augment in (NodeDrop(0.4), random4(0.4)):
        view = augment(whole, torch.Generator().manual_seed(0))
        rebuilt = [graph for part in split(view, [10, 13]) for graph in part.to_data_list()]
        assert_same(Batch.from_data_list(rebuilt), Batch.from_data_list(view.to_data_list()))


@pytest.mark.parametrize("least", [1, 5, 12, 1000])
def test_chunks_are_the_same_batches(least):
    alone = ResidentLoader(graphs(), 4, shuffle=True, generator=torch.Generator().manual_seed(3))
    together = ResidentLoader(graphs(), 4, shuffle=True, generator=torch.Generator().manual_seed(3))
    for _ in range(2):
        batches, chunks = list(alone), list(together.chunks(least))
        parts = [part for batch, sizes in chunks for part in split(batch, sizes)]
        assert len(parts) == len(batches)
        for part, batch in zip(parts, batches, strict=True):
            assert_same(part, batch)
        assert all(batch.num_graphs >= least for batch, _ in chunks[:-1])
