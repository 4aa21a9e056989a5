"""Test augmentations as PyG transforms: on graphs, in data sets, loaders and `T.Compose`."""

import os
import pickle
import warnings

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader

from graphcl.augment import AttributeMask, Compose, EdgePerturb, Identity, NodeDrop, OneOf, Subgraph
from tests.augment.test_contract import NAMES, NEEDS_FEATURES, build
from tests.strategies import assert_same_graph, assert_true_batch, make_graph, path, seeded

GRAPHS = [make_graph(4 + i, path(4 + i), i) for i in range(6)]
each_name = pytest.mark.parametrize("name", NAMES)


class Molecule(Data):
    """Custom Data class with a property and an attribute outside of PyG's stores."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        self.__dict__["source"] = "a file"

    @property
    def twice(self):
        return 2 * self.num_nodes


@each_name
def test_a_graph_gives_a_graph(name):
    """Also of a subclass, with attributes of the whole graph of any type, and with PyG's `EdgeIndex`."""
    more = {"count": 3, "flag": True, "scalar": torch.tensor(2.5), "names": ["a", "b"], "nested": {"a": 1, "b": "text"}}
    graph = Molecule(**make_graph(6, path(6)).to_dict(), **more)
    again, augment = graph.clone(), build(name)
    view = augment(graph, seeded(0))
    assert type(view) is Molecule
    assert (view.source, view.twice) == ("a file", 2 * view.num_nodes)
    assert set(view.keys()) == set(graph.keys())
    assert view is not graph or name == "identity"
    assert_same_graph(graph, again)
    for key in [*more, "y", "target", "name", "scale"]:
        assert type(view[key]) is type(graph[key]), key
        assert str(view[key]) == str(graph[key]), key
    view.extra = 1
    assert "extra" not in graph
    torch.manual_seed(0)
    called = augment(graph)
    torch.manual_seed(0)
    assert_same_graph(augment.forward(graph), called)

    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(6, 6), sort_order=None)
    other = augment(graph, seeded(0))
    assert torch.equal(torch.as_tensor(other.edge_index), view.edge_index)
    assert other.num_nodes == view.num_nodes


@pytest.mark.parametrize(("augment", "left"), [(NodeDrop(0.5), 4), (Subgraph(0.5), 4), (EdgePerturb(0.5, add=False), 8),
                                               (EdgePerturb(0.5), 8)], ids=repr)  # fmt: skip
@pytest.mark.parametrize("more", [{}, {"y": torch.tensor([1])}, {"atom": torch.arange(8)}], ids=list)
def test_isolated_nodes_are_counted_where_only_edges_tell_their_number(augment, left, more):
    graph = Data(edge_index=torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]]), **more)
    for seed in range(3):
        assert augment(graph, seeded(seed)).num_nodes == left


class Held(InMemoryDataset):
    def __init__(self, graphs, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


class Processed(InMemoryDataset):
    """Data set that is processed once and then read from its folder, like PyG's own data sets."""

    processed_file_names = "data.pt"

    def __init__(self, root, pre_transform=None):
        super().__init__(root, pre_transform=pre_transform)
        self.load(self.processed_paths[0])

    def process(self):
        self.save([self.pre_transform(graph) for graph in GRAPHS], self.processed_paths[0])


@each_name
def test_in_data_sets_loaders_and_chains(name, tmp_path):
    augment = build(name)
    dataset = pickle.loads(pickle.dumps(Held(GRAPHS, transform=augment)))
    assert type(dataset[0]) is Data
    loaded = next(iter(DataLoader(dataset, batch_size=6)))
    assert_true_batch(loaded)
    assert loaded.y.tolist() == list(range(6))
    assert [int(ids[0]) // 100 for ids in loaded.node_id.split(loaded.ptr.diff().tolist())] == list(range(6))

    first = Processed(str(tmp_path), pre_transform=augment)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyG warns if the folder was made with another `pre_transform`
        again = Processed(str(tmp_path), pre_transform=augment)
    for one, other in zip(first, again, strict=True):
        assert_same_graph(one, other)

    (batch,) = DataLoader(GRAPHS, batch_size=6, follow_batch=["x"])
    for transform in (augment, T.Compose([augment, T.Constant(cat=True)])):
        view = transform(batch)
        assert isinstance(view, Batch)
        assert [graph.y.item() for graph in view.to_data_list()] == list(range(6))
        assert torch.equal(view.x_batch, view.batch)
        assert torch.equal(view.x_ptr, view.ptr)
    chain = T.Compose([T.ToUndirected(), augment, T.LocalDegreeProfile(), T.Constant()])
    view = chain(make_graph(6, [(0, 1), (1, 2), (3, 4)], keys=("x", "y")))
    assert view.x.size(1) == 2 + 5 + 1
    assert view.validate()
    bare = make_graph(6, [(0, 1), (1, 0)], keys=())
    if name not in NEEDS_FEATURES:
        view = augment(bare)
        assert view.num_nodes == len(view.node_id)
    else:
        assert Held([bare], transform=T.Compose([T.Constant(), augment]))[0].x.size(1) == 1


class Numbered(torch.utils.data.Dataset):
    """Data set that returns the same graph each time, with the id of the process that made it."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8

    def __getitem__(self, number):
        graph = make_graph(40, path(40))
        graph.y, graph.process = torch.tensor([number]), os.getpid()
        return self.transform(graph)


def test_each_access_and_each_process_of_a_loader_draws_anew():
    dataset = FakeDataset(num_graphs=2, avg_num_nodes=40, transform=NodeDrop(0.5))
    assert not torch.equal(dataset[0].x, dataset[0].x)
    views = [NodeDrop(0.5), Subgraph(0.5), EdgePerturb(0.5), OneOf([AttributeMask(0.5), Identity()])]
    loader = DataLoader(Numbered(Compose(views)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    epochs = [list(loader) for _ in range(2)]
    assert all([number for batch in epoch for number in batch.y.tolist()] == list(range(8)) for epoch in epochs)
    loaded = [batch for epoch in epochs for batch in epoch]
    assert len({process for batch in loaded for process in batch.process.tolist()} - {os.getpid()}) >= 2
    seen = {tuple(graph.node_id.tolist()) for batch in loaded for graph in batch.to_data_list()}
    assert len(seen) == 16
