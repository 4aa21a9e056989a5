"""Test loading the user's own graphs from lists, data sets and files, and the message for each invalid input."""

import os
import warnings

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.datasets import FakeDataset, FakeHeteroDataset
from torch_geometric.transforms import ToUndirected

from graphcl import errors
from graphcl.datasets import load_dataset, preparation, write_on_disk
from graphcl.errors import InputError, InputTypeError, InputWarning
from tests.conftest import small_graphs
from tests.datasets.conftest import write_folder
from tests.datasets.graphs import Saved, Trap, one_line
from tests.memory import peak

PAIR = torch.tensor([[0, 1], [1, 0]])


def graph(nodes=3, **attributes):
    return Data(**{"edge_index": PAIR, "x": torch.randn(nodes, 2), "y": 0, **attributes})


def test_every_form_of_the_same_graphs(tmp_path):
    graphs = [graph(2 + i, y=torch.tensor([i % 3])) for i in range(6)]
    InMemoryDataset.save(graphs, str(tmp_path / "mine.pt"))
    torch.save(graphs, tmp_path / "list.pt")
    transformed = Saved(tmp_path / "mine.pt")
    transformed.transform = lambda data: Data(x=data.x * 2, edge_index=data.edge_index, y=data.y)
    forms = {
        "list": graphs,
        "file": str(tmp_path / "mine.pt"),
        "list in a file": tmp_path / "list.pt",
        "data set": Saved(tmp_path / "mine.pt"),
        "PyG's subset": Saved(tmp_path / "mine.pt")[:6][2:],
        "transform": transformed,
    }
    for name, form in forms.items():
        dataset, expected = load_dataset(form), graphs[2:] if name == "PyG's subset" else graphs
        assert dataset.classes[dataset.y].tolist() == [int(own.y) for own in expected], name
        for ours, own in zip(dataset, expected, strict=True):
            assert torch.equal(ours.x, own.x * (1 + (name == "transform"))), name
            assert torch.equal(ours.edge_index, own.edge_index), name
    with warnings.catch_warnings():  # torch.serialization.safe_globals would revoke PyG's permission to load `Data`
        warnings.simplefilter("error")
        assert len(Saved(tmp_path / "mine.pt")) == 6


def test_every_form_of_one_graph(tmp_path):
    one, file = graph(), tmp_path / "one.pt"
    InMemoryDataset.save([one], str(tmp_path / "set.pt"))
    torch.save([one], tmp_path / "list.pt")
    torch.save(one, file)
    packed = tmp_path / "packed"
    write_on_disk(iter([one]), packed)
    for form in (one, [one], file, tmp_path / "list.pt", tmp_path / "set.pt", Saved(tmp_path / "set.pt"), packed):
        dataset = load_dataset(form)
        assert len(dataset) == 1, form
        assert torch.equal(dataset[0].x, one.x), form
    assert load_dataset(nx.path_graph(3), features="degree")[0].x.argmax(1).tolist() == [1, 2, 1]


def test_sources_are_shared_and_not_changed():
    source = FakeDataset(num_graphs=8, edge_dim=3)
    keys, store = set(source._data.keys()), source._data
    dataset = load_dataset(source)
    for key in ("edge_index", "x"):
        assert dataset._data[key].data_ptr() == store[key].data_ptr()
    assert load_dataset(source, features="degree").num_features != source.num_features
    assert source._data is store
    assert set(store.keys()) == keys
    assert load_dataset(dataset) is dataset
    graphs = [Data(edge_index=PAIR, num_nodes=nodes, y=nodes) for nodes in (5, 7)]
    dataset = load_dataset(graphs)
    assert (dataset.y.tolist(), dataset.classes.tolist()) == ([0, 1], [5, 7])
    assert [each.to_dict().keys() for each in graphs] == [{"edge_index", "y", "num_nodes"}] * 2
    assert "num_nodes" not in dataset[0]  # would be wrong in a view that drops nodes
    assert [each.num_nodes for each in dataset] == [each.y for each in graphs] == [5, 7]


def test_one_whole_number_is_a_class():
    one = torch.tensor(1)
    for y in (1, True, np.int64(1), np.array([1]), one, one.view(1, 1), one.view(1).short(), 1.0, [1.0]):
        dataset = load_dataset([graph(y=y), graph(y=[0.0] if isinstance(y, list) else y * 0), graph(y=y)])
        assert (dataset.num_classes, dataset.y.tolist(), dataset[1].y.shape) == (2, [1, 0, 1], (1,)), repr(y)


def test_strings_are_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "_GROUP", 2)
    names, index = ["no", "yes", "a" * 70, "no", "é"], [1, 2, 0, 1, 3]
    graphs = [graph(y=name, number=i) for i, name in enumerate(names)]
    torch.save(graphs, tmp_path / "own.pt")
    networks = [nx.path_graph(3) for _ in names]
    for network, name in zip(networks, names, strict=True):
        network.graph["y"] = name
    node = Data(x=torch.eye(5), edge_index=PAIR, y=names)
    held = load_dataset(graphs)
    for number, found in enumerate((
        held,
        load_dataset([graph(y=np.array([name])) for name in names]),
        load_dataset([graph(y=[name]) for name in names]),
        load_dataset(tmp_path / "own.pt"),
        load_dataset(networks),
        load_dataset(node, nodes=True),
        load_dataset(held, features="degree"),
        write_on_disk(graphs, tmp_path / "packed"),
        write_on_disk(iter(graphs), tmp_path / "pieces"),
        write_on_disk(held[:], tmp_path / "subset"),
    )):  # fmt: skip
        y = found._data.y
        assert (found.num_classes, y.dtype, y.tolist()) == (4, torch.long, index), number
        assert list(found.classes) == sorted(set(names)), number
        assert list(found.classes[y]) == names, number
    mixed = [*graphs[:2], graph(y=1), graph(y=2)]
    one_line(lambda: write_on_disk(iter(mixed), tmp_path / "mixed"), "`y` of some graphs is a string, of others")


def test_the_classes_of_a_data_set_keep_their_values(tmp_path):
    held = load_dataset([graph(y=y) for y in (7, 5, 9, 7)])
    for found in (load_dataset(held[1:], features="degree"), write_on_disk(held[1:], tmp_path / "packed")):
        assert found.classes[found._data.y].tolist() == [5, 9, 7]


def test_other_targets_are_kept_without_classes():
    pair = torch.tensor([1, 0])
    for y in (0.5, 1e20, np.float64(0.5), np.nan, pair, pair.view(1, 2), torch.arange(3), {"a": 1}, None):
        dataset = load_dataset([graph(y=y), graph(y=y)])
        why = "" if y is None else ", as `y` is not one whole number a graph"
        assert repr(dataset).endswith(f"no classes{why})"), y
        assert (dataset.labelled, dataset.num_classes) == (False, 0)
        if isinstance(y, float):
            assert dataset[1].y.item() == pytest.approx(y, nan_ok=True)
        elif isinstance(y, torch.Tensor):
            assert torch.equal(dataset[1].y, y)


def test_edges_in_one_direction_only(tmp_path):
    loop = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 0, 2, 2]])  # an edge listed twice and self-loops have no direction
    one_way = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 1]])
    graphs = [graph(edge_index=edges) for edges in (loop, NONE, one_way, one_way)]
    torch.save(graphs, tmp_path / "own.pt")
    for source in (graphs, tmp_path / "own.pt"):
        errors._SHOWN.clear()
        with pytest.warns(UserWarning, match=r"^graph 2 of own has edges in one direction only") as caught:
            load_dataset(source)
        assert len(caught) == 1
    errors._SHOWN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset([ToUndirected()(each) for each in graphs])


def test_whole_numbers_are_magnitudes_with_a_warning_unless_the_encoder_takes_categories():
    graphs = [graph(x=torch.tensor([[-1, 1], [2, 0], [0, 1]]))] * 2
    errors._SHOWN.clear()
    with pytest.warns(UserWarning, match="`x` of own holds whole numbers from -1 to 2, which are") as caught:
        assert load_dataset(graphs).x.dtype == torch.float32
    advice = str(caught[0].message).split("graph.x = ")[1]
    assert advice == "torch.nn.functional.one_hot(graph.x.long() + 1, 4).flatten(1)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_dataset(graphs, categories=True).x.dtype == torch.long
        assert load_dataset([graph(x=torch.eye(3).long())] * 2).x.dtype == torch.float32
        one_hot = eval(advice, {"torch": torch, "graph": graph(x=torch.tensor([[-1, 1], [2, 0]]).int())})
        assert one_hot.tolist() == [[1, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0, 0]]


def test_nodes_and_columns():
    for graphs, shapes in (
        ([graph(x=torch.ones(3, 0)), graph(x=torch.ones(4, 0))], [(3, 1), (4, 1)]),
        ([graph(x=torch.ones(3)), graph(x=torch.ones(4))], [(3, 1), (4, 1)]),
        ([Data(edge_index=PAIR, pos=torch.randn(7, 3))] * 2, [(7, 1), (7, 1)]),
    ):
        assert [each.x.shape for each in load_dataset(graphs)] == shapes


def test_the_number_of_nodes_without_features():
    sizes = (2, 5)
    for key in ("z", "feat", "n_id", "node_type", "node_charge"):
        graphs = [Data(edge_index=PAIR, **{key: torch.ones(n)}) for n in sizes]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [each.num_nodes for each in load_dataset(graphs)] == [2, 5], key
            assert key == "z" or [each.num_nodes for each in graphs] == [2, 5], key  # PyG agrees
    for more in ({}, {"z": torch.ones(1)}, {"node_count": 5}):
        errors._SHOWN.clear()
        with pytest.warns(UserWarning, match="^own: the number of nodes is guessed as the largest"):
            found = load_dataset([Data(edge_index=4 * PAIR, **more), Data(edge_index=PAIR, **more)])
        assert [each.num_nodes for each in found] == [5, 2]


def test_floating_attributes_of_edges_have_the_type_of_x():
    for kind in (torch.float64, torch.float16):
        values = torch.tensor([[0.5], [2.0]]).to(kind)
        graphs = [graph(x=torch.ones(3, 2).to(kind), edge_attr=values, edge_weight=values[:, 0])] * 2
        node = [Data(**{**graphs[0].to_dict(), "y": torch.tensor([0, 1, 0])})]
        for found in (load_dataset(graphs)[1], load_dataset(node, nodes=True)[0]):
            assert (found.x.dtype, found.x.tolist()) == (torch.float32, [[1, 1]] * 3)
            assert (found.edge_attr.dtype, found.edge_attr.tolist()) == (torch.float32, [[0.5], [2]])
            assert (found.edge_weight.dtype, found.edge_weight.tolist()) == (torch.float32, [0.5, 2])
    assert load_dataset([graph(edge_attr=torch.ones(2, 1).long())]).edge_attr.dtype == torch.long  # categories


def bad(value):
    x = torch.randn(3, 2)
    x[1, 0] = x[2, 1] = value
    return graph(x=x)


NONE = PAIR[:, :0]
EMPTY = graph(0, edge_index=NONE)
LISTS = [
    ([], "own holds no graph."),
    (iter([]), "own holds no graph."),
    ([graph(), graph(edge_index=PAIR * 3)], "graph 1 has the edge [0, 3], but 3 nodes, numbered from 0;"),
    ([graph(), graph(edge_index=torch.zeros(5, 2).long())], "graph 1 must be", "got [5, 2]"),
    ([graph(), graph(edge_index=PAIR.numpy())], "`edge_index` of graph 1", "got ndarray"),
    (
        [graph(), Data(x=torch.ones(3, 2), y=0)],
        "graph 1 has no `edge_index`, graph 0 has one; give it to all",
    ),
    ([graph(adj=torch.eye(3)), graph(adj=torch.eye(4))], "`adj` of graph 1 has shape [4, 4], of graph 0 [3, 3]; PyG"),
    ([graph(w=torch.tensor(1)), graph(w=PAIR)], "own: `w` of graph 1 has shape [2, 2], of graph 0 []; PyG joins"),
    ([graph(w=1), graph(w=0.5), graph(w="a")], "own: `w` of graph 2 has type str, of graph 0 int; use one type"),
    ([graph(w=PAIR), graph(w="a")], "own: `w` of graph 1 has type str, of graph 0 Tensor; use one type"),
    ([graph(y=1), graph(y="a")], "own: `y` of graph 1 has type str, of graph 0 int; use one type"),
    ([graph(y="a"), graph(y=1)], "own: `y` mixes strings and numbers: 'a' of graph 0, 1 of graph 1; use one kind."),
    ([graph(), graph(x=torch.ones(3, 5))], "`x` of graph 1 has shape [3, 5], of graph 0 [3, 2]"),
    ([graph(x=torch.eye(3).to_sparse())] * 2, "`x` must be a dense torch tensor [N, F]"),
    ([graph(edge_attr=np.ones((2, 1)))] * 2, "`edge_attr` must be a dense torch tensor, got list"),
    (
        [graph(), bad(torch.nan)],
        "own: 1 of 2 graphs are invalid: graph 1 has nan in `x`; correct",
        'set `invalid` to "skip".',
    ),
    ([bad(1e20), graph()], "graph 0 has 1e+20 in `x`, beyond 1e+15, whose square overflows;"),
    (
        [graph(), *[EMPTY] * 5],
        "5 of 6 graphs are invalid: graph 1 has no nodes; graph 2 has no nodes; graph 3 has no nodes; ...;",
    ),
]
DOORS = ("a name of", ".csv", ".graphml", ".pt file", "TU text", "graphcl pack", "PyG data set", "networkx", "matrices")
TYPES = [
    *((source, "`source` must be one of: ", *DOORS) for source in (3, None, {"x": 1}, b"MUTAG")),
    ([graph(), "graph"], "graph 1 must be a torch_geometric.data.Data, got str"),
    (FakeHeteroDataset(num_graphs=3), "FakeHeteroDataset", "HeteroData", "not supported"),
    (Batch.from_data_list([graph(), graph()]), "got DataBatch; use its to_data_list()"),
    *((each, "graph 0 must be a", "got Hetero", "heterogeneous graphs are not supported, use its to_homogeneous()")
      for each in (HeteroData(), [HeteroData()], Batch.from_data_list([HeteroData()]))),
    (TemporalData(src=torch.arange(2), dst=torch.arange(2)), "got TemporalData; temporal graphs are not supported"),
]  # fmt: skip


def test_wrong_sources(root):
    for table, kind in ((LISTS, InputError), (TYPES, InputTypeError)):
        for source, *words in table:
            one_line(lambda source=source: load_dataset(source, root), *words, kind=kind)
    assert not root.exists()


def test_missing_and_unreadable_paths(tmp_path, refused):
    refused(tmp_path / "mine.pkl", f"file or folder '{tmp_path}/mine.pkl' not found")
    (tmp_path / "mine.pkl").touch()
    refused(tmp_path / "mine.pkl", "mine.pkl' is not a data set, which is one of: ", *DOORS, "as `mirror`")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "empty', which holds nothing, is not a data set", *DOORS)
    refused(write_folder(write_folder(tmp_path / "both", "ONE"), "TWO"), "found 2 files *_A.txt")


def test_folder_of_files(tmp_path, refused):
    graphs = [graph(2 + i) for i in range(4)]
    graphs[3].id = 7
    for name, content in (("b", graphs[0]), ("a-1", graphs[1:3]), ("c", [graphs[3]]), ("pre_filter", "None")):
        torch.save(content, tmp_path / f"{name}.pt")
    (tmp_path / "._a-1.pt").write_bytes(b"\0\5\x16\7Mac OS X")  # macOS writes such files onto other disks
    dataset = load_dataset(tmp_path)
    assert (dataset.name, dataset.ids.tolist()) == (tmp_path.name, ["a-1/0", "a-1/1", "b", "7"])
    assert [each.num_nodes for each in dataset] == [3, 4, 2, 5]
    InMemoryDataset.save(graphs, str(tmp_path / "d.pt"))
    refused(tmp_path, "d.pt' must hold one `Data` or a list; name the file if it is a data set.")


def test_ids_that_are_whole_numbers_or_one_entry_are_used_and_others_are_named():
    graphs = small_graphs(3)
    for form in (float, lambda each: torch.tensor([[each]]), lambda each: [each], np.int32):
        for number, graph in enumerate(graphs):
            graph.id = form(1002 - number)
        assert load_dataset(graphs).ids.tolist() == [1002, 1001, 1000]
    for form in (lambda each: each + 0.5, lambda each: 2.0**24 + each, lambda each: [each, each]):
        for number, graph in enumerate(graphs):
            graph.id = form(number)
        errors._SHOWN.clear()
        with pytest.warns(InputWarning, match="`id` of own is not one whole number or string for each graph"):
            assert load_dataset(graphs).ids.tolist() == [0, 1, 2]


def test_other_ids_groups_and_classes_are_other_data(tmp_path):
    named = [{key: each} for key in ("id", "group") for each in ("a", 3, 4)]
    digests, kinds = set(), [{}, *named, {"id": "b"}, {"note": "a"}, {"y": 1}, {"y": 5}]
    for number, kind in enumerate(kinds):
        graphs = [graph(x=torch.ones(3, 2)), graph(x=torch.ones(3, 2), **kind)]
        for key in kind:
            graphs[0][key] = "c" if isinstance(kind[key], str) else 0
        held, packed = load_dataset(graphs).fingerprint(), write_on_disk(graphs, tmp_path / str(number)).fingerprint()
        assert load_dataset(graphs).fingerprint() == held
        digests |= {held["digest"], packed["digest"]}
    assert len(digests) == len(kinds)


def test_folder_in_text_layout(tmp_path, root):
    mine = write_folder(tmp_path / "my graphs", "MINE")
    for path in (mine, f"{mine}/"):
        dataset = load_dataset(path, root)
        assert (dataset.name, [g.num_nodes for g in dataset]) == ("MINE", [3, 2, 3])
    assert sorted(p.suffix for p in mine.iterdir()) == [".txt"] * 4  # no file was added
    assert len(list(root.iterdir())) == 1  # both paths share one cache folder
    (mine / "MINE_graph_labels.txt").write_text("1\n2\n3\n")
    assert load_dataset(mine, root).num_classes == 3  # read again, as a file changed


def collated(**attributes):
    data, slices = InMemoryDataset.collate(small_graphs(4))
    return {**data.to_dict(), **attributes}, slices, {}, Data


def saved(slices, **attributes):
    return attributes, {key: torch.tensor(cut) for key, cut in slices.items()}, Data


HOSTILE = [
    ((Trap(), None), f"holds pickled code ({os.name}.mkdir), which is never run"),
    (b"PK\3\4 and no more", "is not a PyTorch file"),
    (({}, {}, HeteroData), "is not a data set of PyG's `Data`"),
    (saved({"edge_index": [0, 1, 9]}, edge_index=PAIR), "slices of `edge_index`"),
    (saved({"x": [0, 1, 2]}, edge_index=PAIR, x=PAIR), "slices of `edge_index` not found"),
    (saved({"edge_index": [0, 1, 2]}, edge_index=PAIR.int()), "got [2, 2] of int32"),
    (collated(_num_nodes=[1, "2"]), "cannot load"),
    (collated(_num_nodes=[-1]), "`num_nodes` is given for 1 of 4 graphs"),
]


def test_hostile_files(tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "f.pt"
    with peak() as found:
        for content, says in HOSTILE:
            file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
            refused(file, says)
    assert found[0] < 64 * 2**20
    assert not (tmp_path / "sprung").exists()


def test_one_number_for_each_edge_is_one_column():
    dataset = load_dataset([graph(edge_attr=torch.tensor([1.0, 2.0]), y=k % 2) for k in range(4)])
    assert dataset[0].edge_attr.tolist() == [[1], [2]]
    assert dataset.num_edge_features == 1
