"""Test loading the user's own graphs from lists, data sets and files, and the message for each invalid input."""

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.datasets import FakeDataset, FakeHeteroDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import ToUndirected

from graphcl.datasets import GraphDataset, features, load_dataset
from graphcl.errors import InputTypeError
from tests.datasets.graphs import Saved

PAIR = torch.tensor([[0, 1], [1, 0]])


def graph(nodes=3, **attributes):
    return Data(**{"edge_index": PAIR, "x": torch.randn(nodes, 2), "y": 0, **attributes})


def without(key, **attributes):
    data = graph(**attributes)
    del data[key]
    return data


def assert_same(dataset, graphs, labels):
    assert len(dataset) == len(graphs)
    for ours, own in zip(dataset, graphs, strict=True):
        assert torch.equal(ours.x, own.x)
        assert torch.equal(ours.edge_index, own.edge_index)
    assert dataset.y.tolist() == labels
    assert dataset.labelled


def test_every_form_of_the_same_graphs(tmp_path):
    graphs = [graph(2 + i, y=torch.tensor([i % 3])) for i in range(6)]
    InMemoryDataset.save(graphs, str(tmp_path / "mine.pt"))
    torch.save(graphs, tmp_path / "list.pt")
    forms = {
        "list": graphs,
        "tuple": tuple(graphs),
        "file": str(tmp_path / "mine.pt"),
        "path": tmp_path / "mine.pt",
        "list in a file": tmp_path / "list.pt",
        "data set": Saved(tmp_path / "mine.pt"),
        "torch's subset": torch.utils.data.Subset(graphs, range(6)),
    }
    for form in forms.values():
        assert_same(load_dataset(form), graphs, [0, 1, 2, 0, 1, 2])
    assert load_dataset(tmp_path / "mine.pt").name == "mine"


def test_in_memory_data_set_is_shared_and_not_changed():
    source = FakeDataset(num_graphs=8, edge_dim=3)
    keys, store = set(source._data.keys()), source._data
    dataset = load_dataset(source)
    assert dataset._data.edge_index.data_ptr() == store.edge_index.data_ptr()
    assert dataset._data.x.data_ptr() == store.x.data_ptr()
    assert load_dataset(source, features="degree").num_features != source.num_features
    assert source._data is store
    assert set(store.keys()) == keys
    assert set(source.slices) == set(load_dataset(source).slices)


def test_subset_and_transform_of_a_data_set():
    source = FakeDataset(num_graphs=8)
    assert_same(load_dataset(source[2:5]), list(source[2:5]), load_dataset(source[2:5]).y.tolist())
    source.transform = lambda data: Data(x=data.x * 2, edge_index=data.edge_index, y=data.y)
    assert torch.equal(load_dataset(source)[3].x, source[3].x)


def test_own_list_is_not_changed():
    graphs = [Data(edge_index=PAIR, num_nodes=3, y=5), Data(edge_index=PAIR, num_nodes=4, y=7)]
    dataset = load_dataset(graphs)
    assert dataset.y.tolist() == [0, 1]
    assert dataset.classes.tolist() == [5, 7]
    assert [(set(g.keys()), g.y, g.num_nodes) for g in graphs] == [
        ({"edge_index", "y", "num_nodes"}, 5, 3),
        ({"edge_index", "y", "num_nodes"}, 7, 4),
    ]
    assert "num_nodes" not in dataset._data
    assert "num_nodes" not in dataset[0]  # would be wrong in a view that drops nodes
    assert [g.num_nodes for g in dataset] == [3, 4]


def test_a_loaded_data_set_is_returned_unchanged():
    dataset = load_dataset([graph(), graph()], features="constant")
    assert load_dataset(dataset) is dataset
    assert load_dataset(dataset, features="degree").features == "degree"


def test_one_graph_as_a_data_set():
    dataset = GraphDataset(graph(), None, "single", "labels")
    assert len(dataset) == 1
    assert dataset[0].num_nodes == 3
    assert next(iter(DataLoader(dataset))).num_graphs == 1
    assert (
        repr(dataset)
        == "GraphDataset('single', 1 graph, x: 2 columns (labels), no classes, as `y` is not one whole number a graph)"
    )


@pytest.mark.parametrize(
    "y",
    [1, True, np.int64(1), np.array([1]), torch.tensor(1), torch.tensor([[1]]), torch.tensor([1]).short(), 1.0, [1.0]],
    ids=repr,
)
def test_one_whole_number_is_a_class(y):
    other = [0.0] if isinstance(y, list) else y * 0
    dataset = load_dataset([graph(y=y), graph(y=other), graph(y=y)])
    assert dataset.labelled
    assert dataset.num_classes == 2
    assert dataset.y.tolist() == [1, 0, 1]
    assert dataset[1].y.shape == (1,)


@pytest.mark.parametrize(
    ("y", "kept"),
    [
        (torch.tensor([1, 0]), "tensor([1, 0])"),
        (torch.tensor([[1, 0]]), "tensor([[1, 0]])"),
        (torch.tensor([0, 1, 0]), "tensor([0, 1, 0])"),
        ({"a": 1}, "{'a': tensor([1])}"),
        (None, "None"),
    ],
    ids=repr,
)
def test_other_targets_are_kept_without_classes(y, kept):
    dataset = load_dataset([graph(y=y), graph(y=y)])
    assert not dataset.labelled
    assert dataset.num_classes == 0
    assert f"no classes{', as `y` is not one whole number a graph' if y is not None else ''})" in repr(dataset)
    assert str(dataset[0].y) == kept


@pytest.mark.parametrize("value", [0.5, 1e20, np.float64(0.5), np.nan, np.inf])
def test_the_first_graph_without_a_whole_number_is_named(value):
    dataset = load_dataset([graph(y=each) for each in (type(value)(1), value, value)])
    assert repr(dataset).endswith(f"no classes, as `y` is not one whole number a graph (graph 1: {value:g}))")
    assert dataset[1].y.item() == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("form", ["list", "file"])
def test_edges_in_one_direction_only(form, tmp_path, monkeypatch):
    loop = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 0, 2, 2]])  # an edge listed twice and self-loops have no direction
    one_way = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 1]])
    graphs = [graph(edge_index=edges) for edges in (loop, PAIR[:, :0], one_way, one_way)]
    torch.save(graphs, tmp_path / "own.pt")
    source = graphs if form == "list" else tmp_path / "own.pt"
    features._WARNED.clear()
    with pytest.warns(UserWarning, match=r"^graph 2 of own has edges in one direction only.*ToUndirected") as caught:
        load_dataset(source)
    assert len(caught) == 1
    features._WARNED.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset([ToUndirected()(each) for each in graphs])
        monkeypatch.setattr("graphcl.datasets.own._MAX_SORTED", 3)
        load_dataset(source)


def test_whole_numbers_are_magnitudes_with_a_warning_unless_the_encoder_takes_categories():
    graphs = [graph(x=torch.tensor([[6, 1], [8, 0], [7, 1]])) for _ in range(2)]
    features._WARNED.clear()
    with pytest.warns(UserWarning, match="`x` of own holds whole numbers from 0 to 8, which are read as magnitudes"):
        numbers = load_dataset(graphs)
    assert numbers.x.dtype == torch.float32
    features._WARNED.clear()
    with pytest.warns(UserWarning, match="one-hot encode them") as caught:
        load_dataset([graph(x=torch.tensor([[-1, 1], [2, 0], [0, 1]]))] * 2)
    advice = str(caught[0].message).split("graph.x = ")[1]
    assert advice == "torch.nn.functional.one_hot(graph.x.long() + 1, 4).flatten(1)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_dataset(graphs, categories=True).x.dtype == torch.long
        assert load_dataset([graph(x=torch.eye(3).long())] * 2).x.dtype == torch.float32
        one_hot = eval(advice, {"torch": torch, "graph": graph(x=torch.tensor([[-1, 1], [2, 0]]).int())})
        assert one_hot.tolist() == [[1, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0, 0]]
        assert load_dataset([graph(2, x=one_hot)] * 2).num_features == 8


def test_flat_and_missing_columns():
    dataset = load_dataset([graph(x=torch.ones(3)), graph(x=torch.ones(4))])
    assert [g.x.shape for g in dataset] == [(3, 1), (4, 1)]
    dataset = load_dataset([graph(x=torch.ones(3, 0)), graph(x=torch.ones(4, 0))])
    assert dataset.features == "constant"
    assert [g.x.shape for g in dataset] == [(3, 1), (4, 1)]


def test_number_of_nodes_is_taken_from_the_edges_last():
    path = torch.tensor([[0, 4], [4, 0]])
    assert [g.num_nodes for g in load_dataset([Data(edge_index=path), Data(edge_index=PAIR)])] == [5, 2]
    pos = torch.randn(7, 3)
    assert load_dataset([Data(edge_index=path, pos=pos)] * 2)[0].x.shape == (7, 1)


def test_arrays_of_different_lengths_are_kept():
    dataset = load_dataset([graph(y=np.ones(1)), graph(y=np.ones(2))])
    assert not dataset.labelled
    assert dataset[1].y.tolist() == [1, 1]


def far(nodes=3, **attributes):
    return graph(nodes, edge_index=torch.tensor([[0, 1], [1, nodes]]), **attributes)


def bad(value, **attributes):
    x = torch.randn(3, 2)
    x[1, 0] = x[2, 1] = value
    return graph(x=x, **attributes)


LIST_ERRORS = {
    "empty": ([], "own holds no graph", "at least two"),
    "one": ([graph()], "own holds 1 graph", "at least two"),
    "string": ([graph(), "graph"], "graph 1 must be a torch_geometric.data.Data, got str"),
    "batch": ([graph(), Batch.from_data_list([graph()])], "graph 1", "to_data_list()"),
    "edge out of range": ([graph(), far(3)], "in graph 1: the first is [1, 3]", "3 nodes, numbered from 0"),
    "transposed edges": ([graph(), graph(edge_index=torch.zeros(5, 2).long())], "graph 1 must be", "got [5, 2]"),
    "numpy edges": ([graph(), graph(edge_index=PAIR.numpy())], "`edge_index` of graph 1", "got ndarray"),
    "no edges": ([graph(), without("edge_index")], "graph 1 has no `edge_index`", "to all graphs"),
    "x on some": ([graph(), without("x")], "graph 1 has no `x`, graph 0 has one", "to all graphs or to none"),
    "y on some": ([graph(), without("y")], "graph 1 has no `y`, graph 0 has one"),
    "y of text": (
        [graph(y="a"), graph(y="b")],
        "`y` of graph 0 must be a number, got 'a'; number the classes, e.g. by numpy.unique(",
    ),
    "other on some": ([graph(), graph(z=1)], "graph 0 has no `z`, graph 1 has one"),
    "widths": ([graph(), graph(x=torch.ones(3, 5))], "`x` of graph 1 has shape [3, 5], of graph 0 [3, 2]"),
    "numpy x": (
        [graph(), graph(x=np.ones((3, 2)))],
        "`x` of graph 1 must be a dense torch tensor [N, F]",
        "got ndarray",
    ),
    "sparse x": ([graph(x=torch.eye(3).to_sparse())] * 2, "must be a dense torch tensor [N, F], got torch.sparse_coo"),
    "cubic x": ([graph(x=torch.ones(3, 2, 2))] * 2, "`x` must be a dense torch tensor [N, F]", "got [6, 2, 2]"),
    "complex x": ([graph(x=torch.ones(3, 2) * 1j)] * 2, "`x` must be", "real numbers"),
    "edge widths": (
        [graph(edge_attr=torch.ones(2, 1)), graph(edge_attr=torch.ones(2, 4))],
        "`edge_attr` of graph 1 has shape [2, 4]",
    ),
    "edge rows": ([graph(), graph()], "`edge_attr` of graph 1 has 3 rows for 2 edges"),
    "nan": ([graph(), bad(float("nan"))], "`x` has 2 NaN or infinite values, in graph 1;"),
    "large": ([bad(1e20), graph()], "`x` has 2 values beyond 1e+15, whose squares overflow, in graph 0;"),
    "edge nan": ([graph(edge_attr=torch.tensor([1.0, torch.nan]))] * 2, "`edge_attr` has 2 NaN"),
    "too large for float": (
        [graph(x=torch.full((3, 2), 1e300, dtype=torch.double))] * 2,
        "`x` has 12 values beyond 1e+15",
    ),
    "empty graph": (
        [graph(), graph(0, edge_index=PAIR[:, :0])],
        "no node in graph 1; leave empty graphs out",
    ),
    "num_nodes": ([graph(num_nodes=4), graph(num_nodes=3)], "`x` of graph 0 has 3 rows, but the graph has 4 nodes"),
    "cannot be joined": ([graph(z=torch.ones(1, 2)), graph(z=torch.ones(1, 3))], "cannot be put together"),
}
LIST_ERRORS["edge rows"][0][0].edge_attr, LIST_ERRORS["edge rows"][0][1].edge_attr = torch.ones(2, 1), torch.ones(3, 1)


@pytest.mark.parametrize("case", LIST_ERRORS)
def test_wrong_lists(case, refused):
    graphs, *words = LIST_ERRORS[case]
    refused(graphs, *words)


def test_all_wrong_graphs_are_counted(refused):
    for wrong in (bad(float("nan")), far(3), graph(0, edge_index=PAIR[:, :0])):
        for places, text in (([1, 3], "graphs 1 and 3"), ([0, 2, 3, 5, 6], "graphs 0, 2, 3 and 2 more")):
            refused([wrong if number in places else graph() for number in range(8)], f" in {text}")


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([graph(), graph()])


HETERO, EVENTS = HeteroData(), TemporalData(src=torch.arange(2), dst=torch.arange(2))
SOURCE_ERRORS = [
    *((source, "`source` must be") for source in (3, None, {"x": 1}, graph(), b"MUTAG", iter([]))),
    (HETERO, "`source` must be", "got HeteroData", "use its to_homogeneous()"),
    ([HETERO] * 2, "got HeteroData", "use its to_homogeneous()"),
    (EVENTS, "got TemporalData", "temporal graphs are not supported"),
    ([EVENTS] * 2, "got TemporalData", "temporal graphs are not supported"),
    (FakeHeteroDataset(num_graphs=3), "FakeHeteroDataset", "HeteroData", "not supported"),
    (Batch.from_data_list([graph(), graph()]), "got DataBatch; use its to_data_list()"),
    (Stream(), "Stream must have a length"),
]


@pytest.mark.parametrize(("source", "words"), [(source, words) for source, *words in SOURCE_ERRORS])
def test_wrong_types(source, words, refused):
    refused(source, *words)
    with pytest.raises(InputTypeError):
        load_dataset(source)


def test_a_folder_must_be_a_path():
    with pytest.raises(TypeError, match="`data_root` must be a folder, got int"):
        load_dataset("MUTAG", data_root=3)


def test_reading_a_file_leaves_pyg_able_to_read(tmp_path):
    # torch.serialization.safe_globals would revoke PyG's permission to load `Data`.
    InMemoryDataset.save([graph(), graph()], str(tmp_path / "mine.pt"))
    for _ in range(2):
        assert len(load_dataset(tmp_path / "mine.pt")) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Saved(tmp_path / "mine.pt")) == 2


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_code_in_a_file_is_refused(tmp_path, refused):
    torch.save((Trap(str(tmp_path / "sprung")), None), tmp_path / "trap.pt")
    refused(tmp_path / "trap.pt", "trap.pt", "holds pickled code (io.open)", "never run", "InMemoryDataset.save")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["mine.pkl", "mine.pickle"])
def test_a_pickle_is_not_read_and_the_message_says_how_to_convert_it(name, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(name, f"file or folder '{name}' not found")
    with open(name, "wb") as file:
        pickle.dump(Trap("sprung"), file)
    refused(name, f"file '{name}' is a pickle", "never read", "InMemoryDataset.save(graphs, 'mine.pt')")
    assert not Path("sprung").exists()


def test_missing_paths(tmp_path, refused):
    refused("missing.pt", "file or folder 'missing.pt' not found")
    refused(tmp_path / "missing", "file or folder", "not found")
    (tmp_path / "MUTAG.zip").write_bytes(b"")
    refused(tmp_path / "MUTAG.zip", "for an archive NAME.zip give the name as `source` and its folder as `mirror`")


def test_folder_in_text_layout(tmp_path, root, write_folder):
    mine = write_folder(tmp_path / "my graphs", "MINE")
    dataset = load_dataset(mine, root)
    assert dataset.name == "MINE"
    assert [g.num_nodes for g in dataset] == [3, 2, 3]
    assert sorted(p.suffix for p in mine.iterdir()) == [".txt"] * 4  # no file was added
    assert len(load_dataset(f"{mine}/", root)) == 3
    assert len(list(root.iterdir())) == 1  # both paths share one cache folder
    (mine / "MINE_graph_labels.txt").write_text("1\n2\n3\n")
    assert load_dataset(mine, root).num_classes == 3  # read again, as a file changed


def test_wrong_folders(tmp_path, refused, write_folder):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "must hold one data set in TU text layout", "The folder holds: nothing")
    both = write_folder(write_folder(tmp_path / "both", "ONE"), "TWO")
    refused(both, "found 2 files *_A.txt")
    refused(write_folder(tmp_path / "m", A="1, 9\n1, 2\n"), "TINY_A.txt line 1", "1 to 8")
