"""Variants of graphs as Python objects: networkx, PyG, matrices, ids, groups."""

import io
from importlib.util import find_spec

import networkx as nx
import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from graphcl import GraphCL
from graphcl.datasets import load_dataset
from graphcl.system.arrays import decode, id_arrays
from tests.variants import Refused, kind, number, surrogate, text

BASES = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)


def rows_of(data, *keys):
    """Return the sorted edges of a graph as tuples: the two ends, and their values of the attributes `keys`."""
    columns = [data[key].reshape(data.num_edges, -1).tolist() for key in keys]
    return sorted(zip(*data.edge_index.tolist(), *columns, strict=True))


def network(rng, base):
    """Return a networkx graph with `x` and `edge_attr`, and its nodes' values and its edges by a loop."""
    graph = base()
    nodes = rng.sample(["root", "seed", 0, -3, 7, (1, "a"), "b", 2.5], rng.randint(2, 7))
    graph.add_nodes_from((node, {"x": [number(rng), number(rng)]}) for node in nodes)
    for _ in range(rng.randint(1, 8)):
        graph.add_edge(*rng.choices(nodes, k=2), edge_attr=number(rng))
    place = {node: index for index, node in enumerate(graph)}
    edges = []
    for one, two, value in graph.edges(data="edge_attr"):
        edges.append((place[one], place[two], [value]))
        if not graph.is_directed() and one != two:
            edges.append((place[two], place[one], [value]))
    return graph, [graph.nodes[node]["x"] for node in graph], sorted(edges)


def subclass(base, habit):
    """Return a subclass of a class of networkx whose constructor has a habit."""

    class Own(base):
        made = 0

        def __init__(self, *given, **more):
            if habit == "needs" and not given:
                raise LookupError("an argument is missing")
            if habit == "once" and type(self).made:
                raise OSError("only one graph")
            type(self).made += 1
            super().__init__(**more)
            if habit == "adds":
                self.add_edge("seed", "root")
            if habit == "attributes":
                self.add_node("seed", origin="constructor")
            if habit == "exits" and not given:
                raise SystemExit(0)

    return Own


@kind
def networkx_subclass(rng, folder):
    base = rng.choice(BASES)
    plain, x, edges = network(rng, base)
    graph = subclass(base, rng.choice(["adds", "needs", "once", "attributes", "exits"]))("given")
    graph.clear()
    graph.add_nodes_from(plain.nodes(data=True))
    graph.add_edges_from(plain.edges(data=True))

    def call():
        data = load_dataset([graph, graph])[1]
        return data.x.tolist(), rows_of(data, "edge_attr")

    return call, (x, edges)


@kind
def adjacency(rng, folder):
    """Every form of the same weighted directed graph gives the same edges."""
    import scipy.sparse as sp

    n = rng.randint(2, 6)
    dense = np.zeros((n, n))
    for _ in range(rng.randint(1, 9)):
        dense[rng.randrange(n), rng.randrange(n)] = number(rng)
    expected = (
        n,
        sorted((i, j, [float(dense[i, j])]) for i, j in zip(*map(np.ndarray.tolist, np.nonzero(dense)), strict=True)),
    )
    forms = ["numpy", "matrix", "array", "adj_t", "graphml", "gml", "json", "networkx"]
    form = rng.choice(forms + ["igraph"] * (find_spec("igraph") is not None))
    settings = {}
    if form == "numpy":
        source = np.asarray(dense, rng.choice([np.float16, np.float32, np.float64, ">f8"]), rng.choice("CF"))
    elif form in ("matrix", "array"):
        ends, twice = np.tile(np.nonzero(dense), 2), np.tile(dense[np.nonzero(dense)] / 2, 2)  # entries that add up
        made = (sp.coo_matrix if form == "matrix" else sp.coo_array)((twice, tuple(ends)), (n, n))
        source = made.asformat(rng.choice(["coo", "csr", "csc", "lil", "dok", "bsr", "dia"]))
    elif form == "adj_t":
        index = torch.from_numpy(np.stack(np.nonzero(dense.T)))
        values = torch.from_numpy(dense.T[np.nonzero(dense.T)])
        source = Data(adj_t=to_torch_csr_tensor(index, values, (n, n)), num_nodes=n)
    else:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(n))
        graph.add_weighted_edges_from((i, j, value[0]) for i, j, value in expected[1])
        settings, source = {"edge_weight": "weight"}, graph
        if form == "igraph":
            import igraph

            source = igraph.Graph.from_networkx(graph)
        elif form != "networkx":
            source = folder / f"g.{form}"
            if form == "json":
                import json

                source.write_text(json.dumps(nx.node_link_data(graph)))
            else:
                {"graphml": nx.write_graphml, "gml": nx.write_gml}[form](graph, source)
            settings["features"] = "constant"

    def call():
        given = source if form in ("graphml", "gml", "json") else [source]
        data = load_dataset(given, folder / "root", **settings)[0]
        if "edge_weight" not in data:  # left out if all are 1
            data.edge_weight = torch.ones(data.num_edges)
        return data.num_nodes, rows_of(data, "edge_weight")

    return call, expected


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@kind
def dtypes_and_node_counts(rng, folder):
    """Floating values become float32; an attribute of nodes says how many there are, also behind the last edge."""
    n, kinds = rng.randint(3, 7), [rng.choice(FLOATS) for _ in range(2)]
    values = [[number(rng), number(rng)] for _ in range(4)]
    nodes = {
        "x": torch.ones(n, 2, dtype=kinds[1]),
        "z": torch.arange(n),
        "pos": torch.zeros(n, 3),
        "num_nodes": n,
        "node_weight": torch.ones(n),
    }
    key = rng.choice([*nodes])
    graph = Data(edge_index=PATH, edge_attr=torch.tensor(values).to(kinds[0]), **{key: nodes[key]})

    def call():
        data = load_dataset([graph.clone(), graph])[0]
        return data.num_nodes, data.edge_attr.dtype, data.x.dtype, data.edge_attr.tolist()

    return call, (n, torch.float32, torch.float32, values)


class Stream(IterableDataset):
    def __init__(self, graphs):
        self.graphs = graphs

    def __iter__(self):
        return iter(self.graphs)


@kind
def containers(rng, folder):
    """Every container of graphs is read in its order."""
    graphs = [Data(edge_index=PATH, x=torch.tensor([[number(rng)]] * 3), y=rng.randint(0, 1)) for _ in range(3)]
    array = np.empty(3, object)
    array[:] = graphs
    chosen = rng.choice([tuple(graphs), iter(graphs), Stream(graphs), Subset(graphs, range(3)), array,
                         dict(enumerate(graphs)).values(), map(Data.clone, graphs)])  # fmt: skip
    return lambda: [float(each.x[0]) for each in load_dataset(chosen)], [float(each.x[0]) for each in graphs]


def damaged(rng):
    """Return an attribute that no graph can have, and a part of the message."""
    return rng.choice([
        ("x", torch.ones(3, 2).to_sparse(), "`x`"),
        ("x", torch.ones(3, 2, dtype=torch.complex64), "`x`"),
        ("x", [[1.0, 2.0]] * 3, "`x`"),
        ("x", np.ones((3, 2)), "`x`"),
        ("x", torch.tensor([[rng.choice([float("nan"), float("inf"), -float("inf"), 1e30])] * 2] * 3), "`x`"),
        ("x", torch.ones(2, 2), "edge"),
        ("x", torch.ones(3, 1), "`x`"),
        ("x", torch.ones(3, 2, 2), "`x`"),
        ("edge_attr", torch.ones(rng.choice([1, 3, 5]), 1), "`edge_attr`"),
        ("edge_attr", torch.tensor([[1.0], [2.0], [float("nan")], [1.0]]), "`edge_attr`"),
        ("edge_index", PATH.float(), "`edge_index`"),
        ("edge_index", PATH.t(), "`edge_index`"),
        ("edge_index", PATH + rng.choice([1, 10**6, 2**62, -1, -(2**62)]), "edge"),
        ("edge_index", PATH.tolist(), "`edge_index`"),
        ("y", {"a": 1}, "`y`"),
        ("y", "yes", "`y`"),
        ("group", [1, 2], "`group`"),
        ("group", -rng.randint(2, 9), "`group`"),
        ("group", 0.5, "`group`"),
    ])  # fmt: skip


@kind
def broken_attributes(rng, folder):
    """One graph of three has an attribute that cannot be used; the message names it."""
    graphs = [
        Data(edge_index=PATH, x=torch.ones(3, 2), edge_attr=torch.ones(4, 1), y=torch.tensor(i % 2), group=i)
        for i in range(3)
    ]
    key, value, words = damaged(rng)
    graphs[rng.randrange(3)][key] = value
    return lambda: load_dataset(graphs), Refused(words)


@kind
def ids(rng, folder):
    """Ids keep their length and their NUL characters, in memory and in a file."""
    words = [text(rng, rng.choice([1, 5, 3000])) + str(i) + "\0" * rng.randint(0, 2) for i in range(3)]
    values = rng.choice([words, [2**62, -5, 7], [np.int64(4), np.int32(2), 3], ["", "a", "a\0"], ["x", 1, 2]])
    expected = [str(each) for each in values] if max(map(type, values), key=str) is str else [*map(int, values)]
    graphs = [Data(edge_index=PATH, num_nodes=3, id=each) for each in values]

    def call():
        found = load_dataset(graphs).ids
        np.savez(file := io.BytesIO(), **id_arrays(found))
        file.seek(0)
        stored = dict(np.load(file))
        again = stored["id"].tolist() if "id" in stored else decode(stored["id.text"], stored["id.slices"])
        return found.tolist(), again

    return call, (expected, expected)


@kind
def fingerprints(rng, folder):
    """Any change of the data changes the fingerprint; a copy does not."""
    graphs = [Data(edge_index=PATH, x=torch.ones(3, 1), y=i % 2, id=f"g{i}", group=f"p{i // 2}") for i in range(4)]
    others = [graph.clone() for graph in graphs]
    key = rng.choice(["", "y", "id", "group", "x", "edge_index", "order", "classes"])
    at = rng.randrange(4)
    if key == "y":
        others[at].y = 1 - others[at].y
    elif key == "classes":
        names = rng.choice([["no", "yes"], [5, 7], [1, 0]])
        for each, graph in zip(others, graphs, strict=True):
            each.y = names[graph.y]
    elif key == "id":
        others[at].id += rng.choice(["\0", " ", "a"])
    elif key == "group":
        others[at].group = "p9"
    elif key == "x":
        others[at].x[rng.randrange(3)] += 2.0**-20
    elif key == "edge_index":
        others[at].edge_index = PATH.flip(1)
    elif key == "order":
        others = others[::-1]
    return lambda: load_dataset(graphs).fingerprint() == load_dataset(others).fingerprint(), key == ""


@kind
def groups_and_seeds_of_the_estimator(rng, folder):
    graphs = [Data(edge_index=PATH, x=torch.ones(3, 1)) for _ in range(4)]
    settings = {"epochs": 1, "batch_size": 4, "encoder": {"name": "gin", "hidden_channels": 2, "num_layers": 1}}
    wrong = rng.choice([
        {"groups": rng.choice([["a"] * 3, [0, 0, "a", "a"], [0.5] * 4, [{}] * 4, ["a", "a", "b", surrogate(rng)]])},
        {"loss": rng.choice(["infonc", {"name": "infonce", "temperature": "x"}, {}, 3])},
        {"batch_size": rng.choice([0, -1, 1.5, "many"])},
    ])  # fmt: skip
    groups = wrong.pop("groups", None)
    words = "group" if groups is not None else next(iter(wrong))
    return lambda: GraphCL(**{**settings, **wrong}).fit(iter(graphs), groups=groups), Refused(words)
