"""Test the groups of graphs from every kind of source, and the message for each invalid group."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphcl.datasets import load_dataset, open_on_disk, preparation, write_on_disk
from graphcl.datasets.relation import GroupNumbers
from tests.datasets.graphs import one_line

PAIR = torch.tensor([[0, 1], [1, 0]])
NAMES, NUMBERS = ["b", "a", None, "b", "c"], [0, 1, -1, 0, 2]


def graph(group=None, nodes=3):
    return Data(edge_index=PAIR, num_nodes=nodes, **({} if group is None else {"group": group}))


def test_every_form_of_the_same_groups(tmp_path, monkeypatch):
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    graphs = [graph(name) for name in NAMES]
    torch.save(graphs, tmp_path / "list.pt")
    InMemoryDataset.save([graph(name or "d") for name in NAMES], str(tmp_path / "collated.pt"))
    monkeypatch.setattr(preparation, "_GROUP", 3)
    smiles = ["C", "CC", "CCC", "CO", "CN"]
    rows = "".join(f"{each},{name or ''},1\n" for each, name in zip(smiles, NAMES, strict=True))
    (tmp_path / "table.csv").write_text(f"smiles,project,y\n{rows}")
    molecules = {"source": tmp_path / "table.csv", "group": "project"}
    forms = {
        "names": load_dataset(graphs),
        "file": load_dataset(tmp_path / "list.pt"),
        "networkx": load_dataset([nx.path_graph(3) if name is None else nx.Graph([(0, 1)], group=name)
                                  for name in NAMES]),
        "in pieces": write_on_disk(iter(graphs), tmp_path / "pieces"),
        "packed": write_on_disk(graphs, tmp_path / "packed"),
        "opened": open_on_disk(tmp_path / "packed"),
        "table": load_dataset(**molecules, target="y"),
        "packed table": write_on_disk(**molecules, folder=tmp_path / "table"),
        "loaded again": load_dataset(load_dataset(graphs), features="degree"),
    }  # fmt: skip
    for name, dataset in forms.items():
        assert dataset.groups.tolist() == NUMBERS, name
        assert (dataset.groups.dtype, dataset[1].group.tolist()) == (torch.long, [1]), name
        assert dataset[3:].groups.tolist() == NUMBERS[3:], name
    assert load_dataset(tmp_path / "collated.pt").groups.tolist() == [0, 1, 2, 0, 3]
    assert all("group" not in each or isinstance(each.group, str) for each in graphs)  # not modified


def test_numbers_are_kept_and_graphs_without_groups_have_none():
    one = torch.tensor([7])
    for groups in ([7, 9, -1], [one, one + 2, -1], [one[0], np.int64(9), None], [7.0, np.float32(9), np.nan]):
        assert load_dataset([graph(each) for each in groups]).groups.tolist() == [7, 9, -1], groups
    for none in ("", "  ", np.str_("")):
        assert load_dataset([graph("a"), graph(none), graph("b"), graph(none)]).groups.tolist() == [0, -1, 1, -1]
        assert GroupNumbers()([none, 3]).tolist() == [-1, 3]
    assert load_dataset([graph(), graph()]).groups is None
    node = Data(x=torch.eye(2), edge_index=PAIR, y=torch.tensor([0, 1]), group=torch.tensor([3, 4]))
    assert load_dataset(node, nodes=True).groups is None  # an attribute of the nodes


def test_wrong_groups():
    rule = "must be a string or a whole number from 0 on (-1, None or '': no group), got "
    for graphs, *words in (
        ([graph(0), graph(2.5)], f"own: `group` of graph 1 {rule}2.5."),
        ([graph(-2), graph()], f"graph 0 {rule}-2."),
        ([graph(["a"]), graph()], f"graph 0 {rule}['a']."),
        ([graph("a"), graph(1)], "own: `group` mixes numbers and strings; use one kind"),
        ([graph(torch.arange(3))] * 2, "own: `group` must be one whole number or string per graph; rename it"),
    ):
        one_line(lambda: load_dataset(graphs), *words)  # noqa: B023, called at once
    one_line(lambda: load_dataset([graph(), graph()], group="project"), "`group` 'project' is for molecules")
    one_line(lambda: load_dataset(["C", "CC"], group="project"), "`group` 'project' names a column, but a list has")
