"""Write functions of Python packages as graphs, with tables of pairs: python benchmarks/studies/python_graphs.py FOLDER

`old.pt`, `new.pt` and `releases.csv` hold the syntax trees of two releases, paired by qualified name; `source.pt`,
`bytecode.pt` and `bytecode.csv` trees and bytecode of one release.

A node is a node of the syntax tree, without docstrings, annotations and identifiers. Its label is its type: operators
and comparisons are nodes of their own, constants have the type of their value.
"""

import ast
import dis
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from itertools import chain

import torch
from study import folders, write_pairs
from torch.nn.functional import one_hot
from torch_geometric.data import Data, InMemoryDataset

PACKAGES = {
    "train": {"sympy": ("1.4", "1.13.3"), "django": ("2.2", "5.1"), "dask": ("2.0.0", "2024.8.0"),
              "scrapy": ("1.6.0", "2.11.2"), "pylint": ("2.0.0", "3.2.0")},
    "validation": {"docutils": ("0.14", "0.21.2"), "werkzeug": ("0.14.1", "3.1.3")},
    "test": {"networkx": ("2.4", "3.4.2"), "sphinx": ("2.0.0", "8.1.3"), "pygments": ("2.3.0", "2.18.0"),
             "jinja2": ("2.10", "3.1.4"), "babel": ("2.6.0", "2.16.0")},
}  # fmt: skip
"""Part -> package -> old and new release."""
BYTECODE = {"train": ("scrapy", "dask", "pylint"), "validation": ("werkzeug",), "test": ("jinja2", "babel", "pygments")}
"""Part -> packages whose new release is compiled."""
FEWEST, LARGEST = 20, 500
"""Nodes of a tree."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WITHOUT = ("annotation", "returns", "ctx")
"""Fields of nodes that are left out; `ctx` is whether a name is read or written."""


def fetch(package, version, cache):
    """Return the wheel of a package; fetch it if it is not in the folder `cache`."""
    folder = cache / f"{package}-{version}"
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, f"{package}=={version}", "-d", folder], check=True)
    return next(folder.glob("*.whl"))


def children(node):
    """Yield the nodes below a node that are kept."""
    for field, value in ast.iter_fields(node):
        if field not in WITHOUT:
            values = value if isinstance(value, list) else [value]
            documented = field == "body" and isinstance(node, (*FUNCTIONS, ast.ClassDef)) and ast.get_docstring(node)
            yield from (each for each in values[1 if documented else 0 :] if isinstance(each, ast.AST))


def label(node):
    """Return the name of a node's label; an assignment has the same with an annotation as without."""
    return type(node.value if isinstance(node, ast.Constant) else node).__name__.replace("AnnAssign", "Assign")


def tree(function):
    """Return the nodes of a function in preorder: label and number of the parent, -1 for the root."""
    found, waiting = [], [(function, -1)]
    while waiting:
        node, parent = waiting.pop()
        waiting += [(child, len(found)) for child in reversed([*children(node)])]
        found.append((label(node), parent))
    return tuple(found)


def functions(node, prefix):
    """Yield qualified name and node of the functions of a module or class, without those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield f"{prefix}.{child.name}", child
        elif not isinstance(child, ast.expr):
            yield from functions(child, f"{prefix}.{child.name}" if isinstance(child, ast.ClassDef) else prefix)


def nodes_of(wheel):
    """Return qualified name -> node and tree of the functions of a wheel, without tests and names that occur twice."""
    found, times = {}, Counter()
    with zipfile.ZipFile(wheel) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old code
        for file in archive.namelist():
            if file.endswith(".py") and "/tests/" not in file:
                try:
                    module = ast.parse(archive.read(file))
                except SyntaxError:  # Python 2, or a template
                    continue
                for name, function in functions(module, file):
                    times[name] += 1
                    found[name] = function
    found = {name: (each, tree(each)) for name, each in found.items() if times[name] == 1}
    return {name: each for name, each in found.items() if FEWEST <= len(each[1]) <= LARGEST}


def trees(wheel):
    """Return qualified name -> tree of the functions of a wheel."""
    return {name: each for name, (_, each) in nodes_of(wheel).items()}


def pairs_of(package, versions, cache):
    """Return the pairs of trees that differ, and the trees of the package's other functions in the new release.

    Of functions with equal trees in one release, one is kept.
    """
    old, new = (trees(fetch(package, version, cache)) for version in versions)
    pairs, seen = [], (set(), set())
    for name in sorted(old.keys() & new.keys()):
        before, after = old[name], new[name]
        if before != after and before not in seen[0] and after not in seen[1]:
            pairs.append((before, after))
            seen[0].add(before)
            seen[1].add(after)
    return pairs, sorted(set(new.values()) - seen[1])


def build(cache, packages):
    """Return the labels and parents of all nodes, and of each tree its size, package, group and release (0 or 1).

    Groups are numbered; functions that are only candidates have -1. Training functions that occur in another part are
    left out.
    """
    found = {part: [pairs_of(name, each, cache) for name, each in some.items()] for part, some in packages.items()}
    held = [[*others, *chain(*pairs)] for part in ("validation", "test") for pairs, others in found[part]]
    held, numbers, rows, nodes = set(chain(*held)), {}, [], []
    for package, (pairs, others) in enumerate(chain(*found.values())):
        train = package < len(packages["train"])
        for pair in pairs:
            if not train or held.isdisjoint(pair):
                rows += [(len(each), package, len(rows), release) for release, each in enumerate(pair)]
                nodes += chain(*pair)
        for each in () if train else others:
            rows.append((len(each), package, -1, 1))
            nodes += each
    nodes = [(numbers.setdefault(name, len(numbers)), parent) for name, parent in nodes]
    return torch.tensor(nodes, dtype=torch.int16), torch.tensor(rows)


def load(cache, packages=None, name="trees"):
    """Return all trees as graphs, and the package, group and release of each `[3, n]`; see `build`.

    Edges join parent and child, and a child and the next child of the same parent, in both directions. `cache` holds
    the wheels, and the trees in NAME.pt; `packages` are those of this file by default.
    """
    file = cache / f"{name}.pt"
    if not file.exists():
        torch.save(build(cache, packages or PACKAGES), file)
    nodes, rows = torch.load(file, weights_only=True)
    sizes = rows[:, 0].tolist()
    labels, parents = nodes.long().T
    graphs = []
    for x, up in zip(one_hot(labels).float().split(sizes), parents.split(sizes), strict=True):
        order = up.argsort(stable=True)[1:]  # without the root
        left, right = order[:-1], order[1:]
        siblings = torch.stack([left, right])[:, up[left] == up[right]]
        edges = torch.cat([torch.stack([up[order], order]), siblings], 1)
        graphs.append(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1)))
    return graphs, rows[:, 1:].T


def instructions(function):
    """Return the nodes and edges of a function's bytecode: names of instructions, and pairs of their numbers.

    Edges join an instruction and the next one, a jump and its target, and a constant that is code (a lambda, say) and
    the first instruction of that code.
    """
    module = compile(ast.Module([function], []), "", "exec")
    waiting = [(next(each for each in module.co_consts if getattr(each, "co_name", "") == function.name), None)]
    names, edges = [], []
    while waiting:
        code, parent = waiting.pop()
        found = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
        place = {each.offset: len(names) + number for number, each in enumerate(found)}
        edges += [(parent, len(names))] * (parent is not None)
        for number, each in enumerate(found, len(names)):
            if number + 1 < len(names) + len(found) and not each.opname.startswith(("RETURN", "RAISE", "JUMP_")):
                edges.append((number, number + 1))
            if each.opcode in dis.hasjrel and each.argval in place:
                edges.append((number, place[each.argval]))
            if hasattr(each.argval, "co_code"):
                waiting.append((each.argval, number))
        names += [each.opname for each in found]
    return tuple(names), tuple(edges)


def graphs_of(sides):
    """Return graphs with one-hot labels, of `(names, edges)`; edges are used in both directions."""
    numbers = {name: number for number, name in enumerate(sorted(set(chain(*(names for names, _ in sides)))))}
    found = []
    for names, edges in sides:
        edges = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
        x = one_hot(torch.tensor([numbers[name] for name in names]), len(numbers)).to(torch.uint8)
        found.append(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1).unique(dim=1)))
    return found


def with_siblings(nodes):
    """Return the names of a tree's nodes, and its edges: parent and child, and a child and the next one."""
    last, edges = {}, []
    for number, (_, parent) in enumerate(nodes[1:], 1):
        edges.append((parent, number))
        if parent in last:
            edges.append((last[parent], number))
        last[parent] = number
    return tuple(name for name, _ in nodes), tuple(edges)


def write_bytecode(cache, folder):
    """Write the functions of the new releases as `source.pt` and `bytecode.pt`, and `bytecode.csv` of their pairs.

    Functions whose tree or bytecode occurred before are left out.
    """
    rows, seen = [], set()
    for part in ("test", "validation", "train"):  # a function in two parts stays in the first
        for package in BYTECODE[part]:
            version = PACKAGES[part][package][1]
            for name, (function, source) in nodes_of(fetch(package, version, cache)).items():
                code = instructions(function)
                if seen.isdisjoint((source, code)):
                    rows.append((f"{package}/{name}", package, part, with_siblings(source), code))
                seen.update((source, code))
    ids, packages, parts, *sides = zip(*rows, strict=True)
    for file, side in zip(("source", "bytecode"), sides, strict=True):
        graphs = graphs_of(side)
        for graph, *about in zip(graphs, ids, packages, parts, strict=True):
            graph.id, graph.project, graph.part = about
        InMemoryDataset.save(graphs, folder / f"{file}.pt")
    write_pairs(folder / "bytecode.csv", zip(ids, ids, strict=True))


def write_releases(cache, folder):
    """Write the trees of both releases as `old.pt` and `new.pt`, and `releases.csv` of their pairs."""
    graphs, (package, group, release) = load(cache)
    about = [(name, part) for part, some in PACKAGES.items() for name in some]
    sides = [], []
    for number, graph in enumerate(graphs):
        graph.x, graph.id = graph.x.to(torch.uint8), f"{about[package[number]][0]}-{number}"
        graph.project, graph.part = about[package[number]]
        sides[release[number]].append(graph)
    for file, side in zip(("old", "new"), sides, strict=True):
        InMemoryDataset.save(side, folder / f"{file}.pt")
    first = [number for number in range(len(graphs)) if group[number] >= 0 and release[number] == 0]
    write_pairs(folder / "releases.csv", ((graphs[i].id, graphs[i + 1].id) for i in first))


def main():
    """Write the data sets of both studies into a folder."""
    cache, folder = folders("python")
    write_bytecode(cache, folder)
    write_releases(cache, folder)


if __name__ == "__main__":
    main()
