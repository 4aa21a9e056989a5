"""Test files of graphs in formats of networkx: several graphs in a file, and faults that networkx reads silently."""

import json

import networkx as nx
import pytest

from graphcl import load_dataset
from tests.datasets.graphs import one_line

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
HEAD = f'<graphml xmlns="{NAMESPACE}"><key id="x" for="node" attr.name="x" attr.type="double"/>'
NODES = '<node id="a"/><node id="b"/>'
EDGE = '<edge source="a" target="b"/>'


def graphml(*graphs):
    return f"{HEAD}{''.join(graphs)}</graphml>"


def graph(inner, **attributes):
    named = "".join(f" {key}={value!r}" for key, value in attributes.items())
    return f"<graph edgedefault='undirected'{named}>{inner}</graph>"


def node_link(nodes, edges, name="links", **others):
    ends = [{"source": source, "target": target} for source, target in edges]
    return {
        "directed": False,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": n} for n in nodes],
        name: ends,
    } | others


ONE, OTHER = graph(NODES + EDGE, id="g1"), graph(NODES + '<node id="c"/>' + EDGE, id="g2")
SEVERAL = [
    ("m.graphml", graphml(ONE, OTHER), ["g1", "g2"]),
    ("m.graphml", graphml(ONE, OTHER).replace(f' xmlns="{NAMESPACE}"', ""), ["g1", "g2"]),
    ("m.graphml", graphml(ONE, OTHER.replace("g2", "g1")), [0, 1]),  # ids that do not tell the graphs apart
    ("m.json", json.dumps([node_link("ab", ["ab"]), node_link("abc", ["ab"], "edges", graph={})]), [0, 1]),
    ("m.json", json.dumps([node_link("ab", ["ab"], graph={"id": "p"}), node_link("abc", ["ab"], graph={"id": "q"})]),
     ["p", "q"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "ids"), SEVERAL)
def test_all_graphs_of_a_file_are_read(name, text, ids, tmp_path):
    (tmp_path / name).write_text(text)
    dataset = load_dataset(tmp_path / name)
    assert [(each.num_nodes, each.num_edges) for each in dataset] == [(2, 2), (3, 2)]
    assert dataset.ids.tolist() == ids
    (tmp_path / "folder").mkdir()
    for stem in "st":
        (tmp_path / "folder" / name.replace("m", stem, 1)).write_text(
            text.replace("g1", f"{stem}1").replace("g2", f"{stem}2")
        )
    folder = load_dataset(tmp_path / "folder")
    assert [each.num_nodes for each in folder] == [2, 3, 2, 3]


def test_parallel_edges_of_one_graph_do_not_change_the_next(tmp_path):
    both = graph(NODES + EDGE + EDGE, id="g1")
    (tmp_path / "m.graphml").write_text(graphml(both, OTHER))
    (tmp_path / "n.graphml").write_text(graphml(OTHER, both))
    for name in "mn":
        counts = {each.num_nodes: each.num_edges for each in load_dataset(tmp_path / f"{name}.graphml")}
        assert counts == {2: 4, 3: 2}


FAULTS = [
    (
        "m.graphml",
        graphml(graph(NODES + '<edge source="a" target="z"/>')),
        "an edge ends at node 'z', which is not listed",
    ),
    ("m.graphml", graphml(ONE, graph(NODES + '<edge source="z" target="b"/>')), "an edge ends at node 'z'"),
    ("m.graphml", graphml(graph(f'<node id="p">{ONE}</node>')), "nested graphs are not read"),
    ("m.graphml", graphml(), "it holds no graph"),
    ("m.json", json.dumps(node_link("ab", ["az"])), "an edge ends at node 'z', which is not listed"),
    ("m.json", json.dumps(node_link([0, 1], [(0, 7)], "edges")), "an edge ends at node 7, which is not listed"),
    (
        "m.json",
        json.dumps(node_link("ab", ["ab"]) | {"edges": []}),
        "an object with `nodes` and either `links` or `edges`",
    ),
    ("m.json", json.dumps([node_link("ab", ["ab"]), 3]), "an object with `nodes`"),
    ("m.json", '{"nodes": []}', "it has no `links` or `edges`; write it by networkx.node_link_data"),
    ("m.json", '{"elements": {}, "edges": []}', "it has no `nodes`"),
]


@pytest.mark.parametrize(("name", "text", "line"), FAULTS)
def test_a_fault_is_one_line(name, text, line, tmp_path):
    (tmp_path / name).write_text(text)
    one_line(lambda: load_dataset(tmp_path / name), str(tmp_path / name), line)


def test_nodes_without_ids_and_with_lists_are_read(tmp_path):
    grid = nx.grid_2d_graph(2, 2)
    (tmp_path / "grid.json").write_text(json.dumps(nx.node_link_data(grid)))
    (tmp_path / "bare.json").write_text('{"nodes": [{}, {}], "links": [{"source": 0, "target": 1}]}')
    for name, nodes in (("grid", 4), ("bare", 2)):
        assert load_dataset(tmp_path / f"{name}.json")[0].num_nodes == nodes
