"""Test augmentations as PyG transforms: on graphs, in data sets, loaders, `T.Compose` and data pipes."""

import os
import pickle
import re
import warnings

import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader

from graphcl.augment import AttributeMask, Compose, EdgePerturb, Identity, NodeDrop, OneOf, Subgraph
from graphcl.errors import InputError, InputTypeError
from graphcl.registry import augmentations
from tests.strategies import (
    QUICK,
    assert_same_graph,
    assert_true_batch,
    generators,
    induced,
    kept_nodes,
    make_graph,
    path,
    ratio_count,
    ratios,
    seeded,
    shapes,
)

NAMES = list(augmentations)


def build(name):
    needs_members = "members" in augmentations.arguments(name).required
    return augmentations[name](*[[NodeDrop(0.5), AttributeMask(0.5)]] * needs_members)


class Held(InMemoryDataset):
    def __init__(self, graphs, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


class Molecule(Data):
    """Custom Data class with a property and an attribute outside of PyG's stores."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        self.__dict__["source"] = "a file"

    @property
    def twice(self):
        return 2 * self.num_nodes


each_name = pytest.mark.parametrize("name", NAMES)


# -- single graphs -----------------------------------------------------------------------------------------------------


@each_name
def test_a_graph_gives_a_graph_and_stays(name):
    graph, again = make_graph(6, path(6)), make_graph(6, path(6))
    view = build(name)(graph, seeded(0))
    assert type(view) is Data
    assert set(view.keys()) == set(graph.keys())
    assert view is not graph or name == "identity"
    assert_same_graph(graph, again)
    view.extra = 1
    assert "extra" not in graph


@QUICK
@given(shapes(), ratios, generators)
def test_a_graph_by_itself_is_augmented_as_in_a_batch_of_one(shape, ratio, generator):
    graph = make_graph(*shape, keys=("x", "edge_attr", "name"))
    view = NodeDrop(ratio)(graph, generator)
    assert view.num_nodes == graph.num_nodes - ratio_count(ratio, graph.num_nodes)
    assert_same_graph(view, induced(graph, kept_nodes(view)))


@each_name
def test_what_belongs_to_the_whole_graph_is_handed_on_as_it_is(name):
    more = {
        "count": 3,
        "scale": 0.5,
        "flag": True,
        "scalar": torch.tensor(2.5),
        "y": torch.tensor([1]),
        "names": ["a", "b"],
        "nested": {"a": torch.ones(2), "b": "text"},
    }
    graph = Data(x=torch.randn(5, 2), edge_index=make_graph(5, path(5)).edge_index, **more)
    view = build(name)(graph, seeded(0))
    for key, value in more.items():
        assert type(view[key]) is type(value), key
        if isinstance(value, torch.Tensor):
            assert view[key].shape == value.shape, key
            assert torch.equal(view[key], value), key
        else:
            assert str(view[key]) == str(value), key


@each_name
def test_subclasses_of_data_stay_what_they_are(name):
    graph = make_graph(6, path(6))
    molecule = Molecule(**graph.to_dict())
    view = build(name)(molecule, seeded(0))
    assert type(view) is Molecule
    assert view.source == "a file"
    assert view.twice == 2 * view.num_nodes
    assert molecule.num_nodes == 6


@pytest.mark.parametrize("augment", [NodeDrop(0.5), Subgraph(0.5)], ids=repr)
@pytest.mark.parametrize("more", [{}, {"y": torch.tensor([1])}, {"atom": torch.arange(8)}], ids=list)
def test_isolated_nodes_are_not_forgotten_where_nothing_but_edges_tells_their_number(augment, more):
    graph = Data(edge_index=torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]]), **more)
    assert graph.num_nodes == 8
    for seed in range(5):
        assert augment(graph, seeded(seed)).num_nodes == 4


@pytest.mark.parametrize("augment", [EdgePerturb(0.5, add=False), EdgePerturb(0.5)], ids=repr)
@pytest.mark.parametrize("more", [{}, {"y": torch.tensor([1])}, {"atom": torch.arange(8)}], ids=list)
def test_nodes_stay_where_edges_go_and_nothing_but_edges_told_their_number(augment, more):
    graph = Data(edge_index=torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]]), **more)
    for seed in range(5):
        assert augment(graph, seeded(seed)).num_nodes == 8


@each_name
def test_a_stated_number_of_nodes(name):
    if name in ("attribute_mask", "random4", "feature_mask", "drop_and_mask"):
        pytest.skip("needs features")
    graph = make_graph(6, [(0, 1), (1, 0)], keys=())
    assert graph.num_nodes == 6
    augment = augmentations[name](*[[NodeDrop(0.5)]] * (name in ("compose", "one_of")))
    view = augment(graph, seeded(0))
    assert view.num_nodes == len(view.node_id)


@each_name
def test_edge_index_of_pygs_own_class(name):
    graph = make_graph(6, path(6))
    expected = build(name)(graph, seeded(0))
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(6, 6), sort_order=None)
    view = build(name)(graph, seeded(0))
    assert view.edge_index.shape == expected.edge_index.shape
    assert bool((view.edge_index == expected.edge_index).all())
    assert view.num_nodes == expected.num_nodes


# -- data sets and loaders ---------------------------------------------------------------------------------------------


@each_name
def test_as_the_transform_of_a_data_set_in_a_loader(name):
    graphs = [make_graph(4 + i, path(4 + i), i) for i in range(6)]
    dataset = Held(graphs, transform=build(name))
    assert type(dataset[0]) is Data
    for batch in DataLoader(dataset, batch_size=4):
        assert_true_batch(batch)
    loaded = next(iter(DataLoader(dataset, batch_size=6)))
    assert loaded.num_graphs == 6
    assert loaded.y.tolist() == list(range(6))
    assert [int(ids[0]) // 100 for ids in loaded.node_id.split(loaded.ptr.diff().tolist())] == list(range(6))


class Processed(InMemoryDataset):
    """Data set that is processed once and then read from its folder, like PyG's own data sets."""

    processed_file_names = "data.pt"

    def __init__(self, root, pre_transform=None):
        super().__init__(root, pre_transform=pre_transform)
        self.load(self.processed_paths[0])

    def process(self):
        graphs = [make_graph(4 + i, path(4 + i), i) for i in range(4)]
        self.save([self.pre_transform(graph) for graph in graphs], self.processed_paths[0])


@each_name
def test_as_the_pre_transform_it_is_drawn_once(name, tmp_path):
    first = Processed(str(tmp_path), pre_transform=build(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyG warns if the folder was made with another `pre_transform`
        again = Processed(str(tmp_path), pre_transform=build(name))
    for one, other in zip(first, again, strict=True):
        assert_same_graph(one, other)
    assert set(first[0].keys()) == set(make_graph(4, path(4)).keys())


@each_name
def test_on_a_batch_it_is_a_transform_too(name):
    """Apply each augmentation, alone and in `T.Compose`, to a batch from a loader with `follow_batch`."""
    graphs = [make_graph(4 + i, path(4 + i), i) for i in range(4)]
    (batch,) = DataLoader(graphs, batch_size=4, follow_batch=["x"])
    for transform in (build(name), T.Compose([build(name), T.Constant(cat=True)])):
        view = transform(batch)
        assert isinstance(view, Batch)
        assert [graph.y.item() for graph in view.to_data_list()] == [0, 1, 2, 3]
        assert torch.equal(view.x_batch, view.batch)
        assert torch.equal(view.x_ptr, view.ptr)


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


def test_in_the_processes_of_a_loader_each_draws_for_itself():
    views = [NodeDrop(0.5), Subgraph(0.5), EdgePerturb(0.5), AttributeMask(0.5)]
    loader = DataLoader(Numbered(Compose(views)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    epochs = [list(loader) for _ in range(2)]
    batches = [batch for epoch in epochs for batch in epoch]
    assert len({process for batch in batches for process in batch.process.tolist()} - {os.getpid()}) >= 2
    for epoch in epochs:
        assert [each for batch in epoch for each in batch.y.tolist()] == list(range(8))
    for batch in batches:
        assert_true_batch(batch)
    seen = {tuple(graph.node_id.tolist()) for batch in batches for graph in batch.to_data_list()}
    assert len(seen) == 16


def test_as_the_transform_each_access_draws_anew():
    dataset = FakeDataset(num_graphs=2, avg_num_nodes=40, transform=NodeDrop(0.5))
    n = dataset._data.x.size(0)
    assert n > 20
    assert not torch.equal(dataset[0].x, dataset[0].x)


@each_name
def test_among_pygs_transforms(name):
    chain = T.Compose([T.ToUndirected(), build(name), T.LocalDegreeProfile(), T.Constant()])
    view = chain(make_graph(6, [(0, 1), (1, 2), (3, 4)], keys=("x", "y")))
    assert view.x.size(1) == 2 + 5 + 1
    assert view.validate()


@each_name
def test_forward_is_the_call(name):
    graph = make_graph(6, path(6))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        called = build(name)(graph)
        torch.manual_seed(0)
        assert_same_graph(build(name).forward(graph), called)


def test_a_data_set_with_a_transform_can_be_pickled():
    graphs = [make_graph(6, path(6), i) for i in range(2)]
    dataset = Held(graphs, transform=Compose([OneOf([NodeDrop(0.5)]), Identity()]))
    assert pickle.loads(pickle.dumps(dataset))[0].num_nodes == 3


# -- messages ----------------------------------------------------------------------------------------------------------


def hetero():
    graph = HeteroData()
    graph["atom"].x = torch.ones(2, 1)
    return graph


@each_name
@pytest.mark.parametrize(
    ("graph", "line"),
    [
        (hetero(), r"got HeteroData; heterogeneous graphs are not supported, use its to_homogeneous\(\)\.$"),
        (Batch.from_data_list([hetero()]), r"got HeteroDataBatch; heterogeneous graphs are not supported"),
        (TemporalData(src=torch.arange(2), dst=torch.arange(2)), r"got TemporalData; temporal graphs are not supp"),
    ],
    ids=["hetero", "hetero batch", "temporal"],
)
def test_graphs_of_other_kinds_are_refused(name, graph, line):
    for transform in (build(name), T.Compose([build(name)])):
        with pytest.raises(InputTypeError, match=line):
            transform(graph)


@pytest.mark.parametrize("name", ["attribute_mask", "random4"])
def test_a_data_set_without_the_features_that_are_masked(name):
    graphs = [Data(edge_index=torch.tensor(path(4)).t(), num_nodes=4) for _ in range(2)]
    with pytest.raises(InputError, match=r"^attribute_mask needs node features `x`; add them, as PyG"):
        Held(graphs, transform=build(name))[0]
    assert Held(graphs, transform=T.Compose([T.Constant(), build(name)]))[0].x.size(1) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("mask", "line"),
    [
        (
            torch.tensor([9, 1]),
            "`graphs` must be a boolean tensor, true for graphs to augment, got a tensor of torch.int64",
        ),
        ([True, False], "`graphs` must be a boolean tensor, true for graphs to augment, got list"),
        (torch.ones(3, dtype=torch.bool), r"`graphs` must have shape [2], one per graph, got [3]"),
    ],
)
def test_masks_that_do_not_fit_are_refused(name, mask, line):
    """`graphs` must be boolean: numbers would multiply the count of nodes to remove."""
    batch = Batch.from_data_list([make_graph(4, []), make_graph(5, [])])
    with pytest.raises(InputError, match=re.escape(line)):
        build(name)(batch, seeded(0), graphs=mask)
