"""Test invalid graphs: refused in one line, or left out and listed, with the rows of the others in place."""

from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl import GraphCL, errors
from graphcl.__main__ import main
from graphcl.datasets import load_dataset, preparation, write_on_disk
from graphcl.system.arrays import decode
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line

INVALID = {2: "has nan in `x`", 5: "has inf in `edge_attr`", 6: "has the edge [99, ", 7: "has no nodes"}
KEPT = [0, 1, 3, 4, *range(8, 12)]
FOUND = "4 of 12 graphs are invalid: graph 2 has nan in `x`; graph 5 has inf in `edge_attr`; graph 6 has the edge"
QUICK = {"epochs": 1, "batch_size": 4, "encoder": {"name": "gin", "hidden_channels": 4}}


def graphs_with_invalid(**options):
    graphs = small_graphs(12, edge_attr=True, **options)
    graphs[2].x[3, 1] = torch.nan
    graphs[5].edge_attr[-1] = torch.inf
    graphs[6].edge_index[0, 0] = 99
    for key, dim in (("x", 0), ("edge_attr", 0), ("edge_index", 1)):
        graphs[7][key] = graphs[7][key].narrow(dim, 0, 0)
    for graph in graphs:
        del graph.num_nodes
    return graphs


def test_invalid_graphs_are_refused_or_left_out_of_every_source(tmp_path, monkeypatch):
    graphs, groups = graphs_with_invalid(), [1, None, 2, 3, 5, *"4444444"]
    InMemoryDataset.save(graphs, str(tmp_path / "set.pt"))
    torch.save(graphs, tmp_path / "list.pt")
    for graph, group in zip(graphs, groups, strict=True):
        graph.group = None if group is None else f"g{group}"
    monkeypatch.setattr(preparation, "_GROUP", 2)  # of graphs 6 and 7, none is left
    packed = tmp_path / "packed"
    for source in (graphs, tmp_path / "set.pt", tmp_path / "list.pt", iter(graphs)):
        errors._SHOWN.clear()
        if isinstance(source, list):
            one_line(lambda: load_dataset(graphs), FOUND, '; ...; correct the graphs, or set `invalid` to "skip".')
        load = load_dataset if isinstance(source, list | Path) else partial(write_on_disk, folder=packed)
        with pytest.warns(UserWarning, match="4 of 12 graphs are invalid: .*; skipped") as caught:
            found = load(source, invalid="skip")
        assert sum("invalid" in str(each.message) for each in caught) == 1
        assert found.ids.tolist() == KEPT
        assert found.y.tolist() == [row % 2 for row in KEPT]
        for row, kept in zip(KEPT, found, strict=True):
            assert torch.equal(kept.x, graphs[row].x)
            assert torch.equal(kept.edge_index, graphs[row].edge_index)
        if source is graphs:
            assert found.groups.tolist() == [0, -1, 1, 2, 3, 3, 3, 3]
            assert [(each.graph, each.id) for each in found.invalid] == [(row, row) for row in INVALID]
            assert all(reason in each.reason for each, reason in zip(found.invalid, INVALID.values(), strict=True))
    lines = (packed / "invalid.csv").read_text().splitlines()
    assert (lines[:2], len(lines)) == (["graph,id,reason", "2,2,has nan in `x`"], 5)
    only = [graphs[row] for row in INVALID]
    for call in (
        lambda: load_dataset(only, invalid="skip"),
        lambda: write_on_disk(iter(only), packed / "x", invalid="skip"),
    ):
        one_line(call, "own: 4 of 4 graphs are invalid: ", "; nothing is left.")
    networks = [nx.path_graph(3), nx.Graph(), nx.path_graph(2)]
    nx.set_node_attributes(networks[0], 1.5, "x")
    nx.set_node_attributes(networks[2], 2.5, "x")
    assert load_dataset(networks, invalid="skip").id.tolist() == [0, 2]


def test_rows_stay_in_place(tmp_path, capsys):
    graphs = graphs_with_invalid()
    for number, graph in enumerate(graphs):
        graph.id = f"graph {number}"
    torch.save(graphs, tmp_path / "own.pt")
    words, run = ["--dataset", str(tmp_path / "own.pt"), "--invalid", "skip"], tmp_path / "run"
    assert main(["run", *words, "--epochs", "1", "--eval", "knn", "--report", "false", "--out", str(run)]) == 0
    assert f"invalid graphs: 4, in {run}/invalid.csv" in capsys.readouterr().out
    assert (run / "invalid.csv").read_text().splitlines()[4] == "7,graph 7,has no nodes"
    assert main(["embed", str(run), *words, "--out", str(tmp_path / "h.npz")]) == 0
    assert (tmp_path / "h.npz.invalid.csv").read_text() == (run / "invalid.csv").read_text()
    kept = np.load(tmp_path / "h.npz")
    for stored in (kept, np.load(run / "embeddings.npz")):
        assert decode(stored["id.text"], stored["id.slices"]) == [f"graph {row}" for row in KEPT]
    fitted = GraphCL(invalid="skip", **QUICK).fit(graphs, groups=[0, 0, 9, 1, 1, 9, 9, 9, 2, 2, 3, 3])
    h = fitted.transform(graphs)
    assert np.flatnonzero(~np.isnan(h).any(axis=1)).tolist() == KEPT
    np.testing.assert_allclose(h[KEPT], fitted.transform([graphs[row] for row in KEPT]), rtol=1e-4, atol=1e-5)
    bad = [graphs[row] for row in range(len(graphs)) if row not in KEPT]
    assert np.isnan(fitted.transform(bad)).all()
    assert fitted.transform(bad).shape == (4, h.shape[1])
    one_line(lambda: GraphCL(invalid="skip", **QUICK).fit(graphs, groups=[0] * 13), "`groups` must have one entry per")
    with pytest.warns(errors.InputWarning, match="4 of 12 graphs are invalid") as caught:
        fitted.transform(graphs)
    assert caught[0].filename == __file__
    one_line(lambda: GraphCL(**QUICK).fit(graphs), FOUND, 'set `invalid` to "skip".')
