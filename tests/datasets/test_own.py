"""Test loading the user's own graphs from lists, data sets and files, and the message for each invalid input."""

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
from graphcl.errors import InputError, InputTypeError
from graphcl.loaders.loader import make_loader
from tests.conftest import small_graphs
from tests.datasets.graphs import Saved
from tests.memory import peak

PAIR = torch.tensor([[0, 1], [1, 0]])


def graph(nodes=3, **attributes):
    return Data(**{"edge_index": PAIR, "x": torch.randn(nodes, 2), "y": 0, **attributes})


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


@pytest.mark.parametrize("y", [torch.tensor([1, 0]), torch.tensor([[1, 0]]), torch.arange(3), {"a": 1}, None], ids=repr)
def test_other_targets_are_kept_without_classes(y):
    dataset = load_dataset([graph(y=y), graph(y=y)])
    assert (dataset.labelled, dataset.num_classes) == (False, 0)
    assert f"no classes{', as `y` is not one whole number a graph' if y is not None else ''})" in repr(dataset)
    assert str(dataset[0].y) == ("{'a': tensor([1])}" if isinstance(y, dict) else str(y))


def test_one_graph_as_a_data_set():
    dataset = GraphDataset(graph(), None, "single", "labels")
    assert (len(dataset), dataset[0].num_nodes) == (1, 3)
    assert next(iter(DataLoader(dataset))).num_graphs == 1
    assert repr(dataset).startswith("GraphDataset('single', 1 graph, x: 2 columns (labels), no classes, as `y` is not")


FAR = torch.tensor([[0, 4], [4, 0]])
SHAPES = [
    ([graph(x=torch.ones(3)), graph(x=torch.ones(4))], [(3, 1), (4, 1)]),
    ([graph(x=torch.ones(3, 0)), graph(x=torch.ones(4, 0))], [(3, 1), (4, 1)]),
    ([Data(edge_index=FAR), Data(edge_index=PAIR)], [(5, 1), (2, 1)]),  # number of nodes from the edges
    ([Data(edge_index=FAR, pos=torch.randn(7, 3))] * 2, [(7, 1), (7, 1)]),
    ([graph(y=np.ones(1)), graph(y=np.ones(2))], [(3, 2), (3, 2)]),  # no classes
]


@pytest.mark.parametrize(("graphs", "shapes"), SHAPES)
def test_nodes_and_columns(graphs, shapes):
    assert [each.x.shape for each in load_dataset(graphs)] == shapes


def far(**attributes):
    return graph(edge_index=torch.tensor([[0, 1], [1, 3]]), **attributes)


def bad(value):
    x = torch.randn(3, 2)
    x[1, 0] = x[2, 1] = value
    return graph(x=x)


def without(key):
    return Data(**{name: value for name, value in graph().to_dict().items() if name != key})


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([graph(), graph()])


HETERO, EVENTS = HeteroData(), TemporalData(src=torch.arange(2), dst=torch.arange(2))
NAN, EMPTY, NONE = bad(torch.nan), graph(0, edge_index=PAIR[:, :0]), PAIR[:, :0]
LISTS = [
    ([], "own holds no graph; contrasting graphs needs at least two."),
    ([graph()], "own holds 1 graph; contrasting graphs needs at least two."),
    ([graph(), far()], "in graph 1: the first is [1, 3]", "3 nodes, numbered from 0"),
    ([graph(), graph(edge_index=torch.zeros(5, 2).long())], "graph 1 must be", "got [5, 2]"),
    ([graph(), graph(edge_index=PAIR.numpy())], "`edge_index` of graph 1", "got ndarray"),
    ([graph(), without("edge_index")], "graph 1 has no `edge_index`", "to all graphs"),
    ([graph(), without("x")], "graph 1 has no `x`, graph 0 has one", "to all graphs or to none"),
    ([graph(), without("y")], "graph 1 has no `y`, graph 0 has one"),
    ([graph(y="a"), graph(y="b")], "`y` of graph 0 must be a number, got 'a'; number the classes, e.g. by numpy.uniq"),
    ([graph(), graph(z=1)], "graph 0 has no `z`, graph 1 has one"),
    ([graph(), graph(x=torch.ones(3, 5))], "`x` of graph 1 has shape [3, 5], of graph 0 [3, 2]"),
    ([graph(), graph(x=np.ones((3, 2)))], "`x` of graph 1 must be a dense torch tensor [N, F], got ndarray"),
    ([graph(x=torch.eye(3).to_sparse())] * 2, "must be a dense torch tensor [N, F], got torch.sparse_coo"),
    ([graph(x=torch.ones(3, 2, 2))] * 2, "`x` must be a dense torch tensor [N, F]", "got [6, 2, 2]"),
    ([graph(x=torch.ones(3, 2) * 1j)] * 2, "`x` must be", "real numbers"),
    ([graph(edge_attr=torch.ones(2, n)) for n in (1, 4)], "`edge_attr` of graph 1 has shape [2, 4]"),
    ([graph(edge_attr=torch.ones(n, 1)) for n in (2, 3)], "`edge_attr` of graph 1 has 3 rows for 2 edges"),
    ([graph(), NAN], "`x` has 2 NaN or infinite values, in graph 1;"),
    ([bad(1e20), graph()], "`x` has 2 values beyond 1e+15, whose squares overflow, in graph 0;"),
    ([graph(edge_attr=torch.tensor([1.0, torch.nan]))] * 2, "`edge_attr` has 2 NaN"),
    ([graph(x=torch.full((3, 2), 1e300, dtype=torch.double))] * 2, "`x` has 12 values beyond 1e+15"),
    ([graph(), EMPTY], "no node in graph 1; leave empty graphs out"),
    ([graph(num_nodes=4), graph(num_nodes=3)], "`x` of graph 0 has 3 rows, but the graph has 4 nodes"),
    ([graph(z=torch.ones(1, 2)), graph(z=torch.ones(1, 3))], "cannot be put together"),
    *(
        ([wrong if number in (1, 3) else graph() for number in range(4)], " in graphs 1 and 3")
        for wrong in (NAN, far())
    ),
    ([graph(), *[EMPTY] * 5], " in graphs 1, 2, 3 and 2 more"),
]
TYPES = [
    *((source, "`source` must be") for source in (3, None, {"x": 1}, graph(), b"MUTAG", iter([]))),
    ([graph(), "graph"], "graph 1 must be a torch_geometric.data.Data, got str"),
    ([graph(), Batch.from_data_list([graph()])], "graph 1", "to_data_list()"),
    (HETERO, "`source` must be", "got HeteroData", "use its to_homogeneous()"),
    ([HETERO] * 2, "got HeteroData", "use its to_homogeneous()"),
    (EVENTS, "got TemporalData", "temporal graphs are not supported"),
    ([EVENTS] * 2, "got TemporalData", "temporal graphs are not supported"),
    (FakeHeteroDataset(num_graphs=3), "FakeHeteroDataset", "HeteroData", "not supported"),
    (Batch.from_data_list([graph(), graph()]), "got DataBatch; use its to_data_list()"),
    (Stream(), "Stream must have a length"),
]


@pytest.mark.parametrize(("source", "words", "kind"), [
    *((source, words, InputError) for source, *words in LISTS),
    *((source, words, InputTypeError) for source, *words in TYPES),
])  # fmt: skip
def test_wrong_sources(source, words, kind, refused):
    refused(source, *words, kind=kind)


def test_a_folder_must_be_a_path():
    with pytest.raises(TypeError, match="`data_root` must be a folder, got int"):
        load_dataset("MUTAG", data_root=3)


def test_missing_and_unreadable_paths(tmp_path, refused, write_folder):
    for name in ("MUTAG.zip", "mine.pkl", "mine.pickle"):
        refused(tmp_path / name, f"file or folder '{tmp_path}/{name}' not found")
        (tmp_path / name).write_bytes(b"")
    refused("missing.pt", "file or folder 'missing.pt' not found")
    refused(tmp_path / "MUTAG.zip", "for an archive NAME.zip give the name as `source` and its folder as `mirror`")
    for name in ("mine.pkl", "mine.pickle"):
        refused(tmp_path / name, "is a pickle", "never read", "InMemoryDataset.save(graphs, 'mine.pt')")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "must hold one data set in TU text layout", "The folder holds: nothing")
    refused(write_folder(write_folder(tmp_path / "both", "ONE"), "TWO"), "found 2 files *_A.txt")


def test_reading_a_file_leaves_pyg_able_to_read(tmp_path):
    # torch.serialization.safe_globals would revoke PyG's permission to load `Data`.
    InMemoryDataset.save([graph(), graph()], str(tmp_path / "mine.pt"))
    for _ in range(2):
        assert len(load_dataset(tmp_path / "mine.pt")) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Saved(tmp_path / "mine.pt")) == 2


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


# -- files -------------------------------------------------------------------------------------------------------------


class Trap:
    def __reduce__(self):
        return open, ("sprung", "w")


def collated(attributes=None, slices=None):
    data, cuts = InMemoryDataset.collate(small_graphs(4))
    return {**data.to_dict(), **(attributes or {})}, {**cuts, **(slices or {})}, {}, Data


def inner(**changes):
    """Return two graphs with `changes` to their `__dict__`."""
    broken = graph()
    broken.__dict__.update(changes)
    return [broken, broken]


def saved(slices, **attributes):
    """Return what `InMemoryDataset.save` writes for graphs with these attributes and slices."""
    return {**attributes}, {key: torch.tensor(cut) for key, cut in slices.items()}, Data


HOSTILE = {
    "code": ((Trap(), None), "holds pickled code (io.open), which is never run"),
    "empty": (b"", "is not a PyTorch file"),
    "half": (b"PK\3\4 and no more", "is not a PyTorch file"),
    "tensor": (torch.ones(3), "is not a data set saved by PyG"),
    "hetero": (({}, {}, HeteroData), "heterogeneous graphs are not supported"),
    "one graph": (({"edge_index": PAIR}, None, Data), "holds 1 graph"),
    "no slices": (saved({}, edge_index=PAIR), "holds no graph"),
    "wrong slices": (saved({"edge_index": [0, 1, 9]}, edge_index=PAIR), "slices of `edge_index`"),
    "other slices": (saved({"x": [0, 1, 2]}, edge_index=PAIR, x=PAIR), "slices of `edge_index` not found"),
    "no edges": (saved({"x": [0, 1, 2]}, x=PAIR), "got none"),
    "sparse edges": (saved({"edge_index": [0, 1, 2]}, edge_index=PAIR.to_sparse()), "dense torch tensor"),
    "int32 edges": (saved({"edge_index": [0, 1, 2]}, edge_index=PAIR.int()), "got [2, 2] of int32"),
    "many-nodes": ([Data(edge_index=NONE, num_nodes=10**12)] * 2, "nodes have neither features nor edges"),
    "far-edges": ([Data(edge_index=torch.tensor([[10**15], [0]]))] * 2, "nodes have neither features nor edges"),
    "last-edge": ([Data(edge_index=torch.tensor([[2**63 - 1], [0]]))] * 2, "no node in graphs 0 and 1"),
    "num-nodes": ([Data(edge_index=NONE, num_nodes="many")] * 2, "the graphs cannot be put together"),
    "views": ([Data(x=torch.ones(1, 1).expand(10**9, 1), edge_index=NONE)] * 2, "its tensors claim 8000000000 bytes"),
    "no-slices": (collated(slices={"edge_index": None}), "slices of `edge_index` not found"),
    "x-uncut": (collated(slices={"x": [0]}), "slices of `x` not found"),
    "halves": (collated(slices={"x": torch.arange(5) / 2}), "slices of `x` not found"),
    "counts": (collated({"_num_nodes": [1, "2"]}), "its parts are inconsistent"),
    "counts-below": (collated({"_num_nodes": [-1]}), "`num_nodes` is given for 1 of 4 graphs"),
    "store": (inner(_store={"x": 1}), "is not a PyTorch file, or is corrupted"),
    "complex": (collated({"x": torch.ones(35, 3) * 1j}), "real numbers"),
}


@pytest.mark.parametrize(("content", "says"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(content, says, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "f.pt"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    with peak() as found:
        refused(file, says)
    assert found[0] < 64 * 2**20
    assert not Path("sprung").exists()


@pytest.mark.parametrize("key", ["num_edges", "keys", "batch", "ptr", "face"])
@pytest.mark.parametrize("value", [torch.arange(4.0), [1, 2, 3, 4], None], ids=["tensor", "list", "none"])
def test_attributes_with_names_that_pyg_uses(key, value, tmp_path, root):
    torch.save(collated({key: value}, {key: torch.arange(5)}), tmp_path / "f.pt")
    dataset = load_dataset(tmp_path / "f.pt", root)
    assert sum(batch.num_graphs for batch in make_loader(dataset, 2)) == 4


def test_an_unforeseen_error_is_one_line_with_its_cause(tmp_path, root, refused, monkeypatch):
    import graphcl.datasets.load as load

    def fail(*args):
        raise KeyError("a\nb")

    monkeypatch.setattr(load, "prepare", fail)
    torch.save(small_graphs(2), tmp_path / "f.pt")
    refused(tmp_path / "f.pt", "cannot load", "its parts are inconsistent")
    with pytest.raises(KeyError):  # the error is converted to InputError for files only
        load_dataset(small_graphs(2), root)
