"""Find the functions of an old release of a package in a new one: python examples/functions.py OLD NEW FUNCTION

OLD and NEW are folders of Python files, FUNCTION is a name such as `argparse.py:parse_args`. The script trains on the
functions of both releases, prints the five nearest new functions, and draws what the nearest one shares in shared.png.
"""

import ast
import sys
from pathlib import Path

import torch
from torch_geometric.data import Data

from graphcl import GraphCL
from graphcl.extensions.sparse.explain import pattern_figure
from graphcl.extensions.sparse.index import SparseIndex

if len(sys.argv) != 4:
    sys.exit(__doc__.splitlines()[0])
KINDS = {}  # name of a kind of syntax node -> category


def graph(node):
    """Return a syntax tree as a graph: the kind of each node, and edges between parents and children."""
    nodes, ends = [node], []
    for place, each in enumerate(nodes):  # children are appended while the loop runs
        children = [*ast.iter_child_nodes(each)]
        ends += [(place, len(nodes) + number) for number in range(len(children))]
        nodes += children
    kinds = [[KINDS.setdefault(type(each).__name__, len(KINDS))] for each in nodes]
    return Data(x=torch.tensor(kinds), edge_index=torch.tensor(ends + [end[::-1] for end in ends]).T)


old, new = (
    {
        f"{file.name}:{node.name}": graph(node)
        for file in sorted(Path(folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    for folder in sys.argv[1:3]
)
if sys.argv[3] not in old:
    sys.exit(f"{sys.argv[1]} has no {sys.argv[3]}; choose from: {', '.join([*old][:8])}, ...")
finder = GraphCL(encoder="wl_sparse", loss={"name": "infonce", "temperature": 0.05}, epochs=4)
finder.fit([*old.values(), *new.values()], groups=[*old, *new])
index = SparseIndex(finder.sparse_rows([*new.values()]), ids=new)
scores, names = index.search(finder.sparse_rows([old[sys.argv[3]]]), k=5)
for score, name in zip(scores[0], names[0], strict=True):
    print(f"{100 * score:5.1f} % {name}")
shared = finder.explain(old[sys.argv[3]], new[names[0][0]], k=8, min_depth=1)
pattern_figure(shared, [*KINDS]).savefig("shared.png", dpi=150)
