"""Build pairs of syntax trees from small wheels."""

import ast
import sys
import zipfile
from pathlib import Path

import pytest

from graphcl import load_dataset

BODY = "\n    ".join(f"if values[{i}] > {i}: total += values[{i}]" for i in range(3))
SAME = f"def same(values):\n    {BODY}\n"


@pytest.fixture
def graphs(monkeypatch):
    """Return the module `python_graphs`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "studies"))
    import python_graphs

    yield python_graphs
    del sys.modules["python_graphs"]


def test_a_tree_has_no_names_docstrings_or_annotations(graphs):
    def tree(text):
        return graphs.tree(ast.parse(text).body[0])

    plain = tree("def f(a, b=1):\n    x = a + b\n    return x")
    assert plain == tree('def g(c: int, d: int = 2) -> int:\n    """Doc."""\n    y: int = c + d\n    return y')
    assert plain != tree("def f(a, b=1):\n    x = a - b\n    return x")
    assert plain != tree("def f(a, b='1'):\n    x = a + b\n    return x")
    assert plain[:3] == (("FunctionDef", -1), ("arguments", 0), ("arg", 1))


def test_pairs_are_changed_functions_and_candidates_are_the_others(graphs, monkeypatch, tmp_path):
    def wheel(package, version, *functions):
        folder = tmp_path / f"{package}-{version}"
        folder.mkdir()
        with zipfile.ZipFile(folder / "a.whl", "w") as archive:
            archive.writestr("m.py", "\n".join(functions))
            archive.writestr("m/tests/m.py", "\n".join(functions))

    def changed(name, *more):
        return f"def {name}(values):\n    {BODY}\n    " + "\n    ".join(("return total", *more))

    shared = changed("shared", "pass"), changed("shared", "pass", "pass")
    own = [f"class A:\n  def own(self, values):\n    {BODY}\n    return {value}" for value in ("1", "None, 1")]
    twice = [changed("twice"), changed("twice", "1")]
    wheel("one", 1, SAME, shared[0], own[0], *twice, "def small(): pass")
    wheel("one", 2, SAME, shared[1], own[1], *twice, "def small(): return")
    wheel("two", 1, SAME, shared[0], changed("f", "print()"))
    wheel("two", 2, SAME, shared[1], changed("f", "print()", "print()"))
    monkeypatch.setattr(graphs, "PACKAGES", {"train": {"one": (1, 2)}, "validation": {}, "test": {"two": (1, 2)}})
    for _ in range(2):  # built, and read again
        found, (package, group, release) = graphs.load(tmp_path)
        # `shared` is left out of training, as the test package has it; `same` is only a candidate
        assert package.tolist() == [0, 0, 1, 1, 1, 1, 1]
        assert release.tolist() == [0, 1, 0, 1, 0, 1, 1]
        assert group.tolist() == [0, 0, 2, 2, 4, 4, -1]
    up, down = found[0].edge_index.chunk(2, dim=1)
    nodes = found[0].num_nodes
    assert (up == down.flip(0)).all()
    assert len(up.T[: nodes - 1, 1].unique()) == nodes - 1  # each node but the root has one parent
    assert (up.T[: nodes - 1, 0] < up.T[: nodes - 1, 1]).all()
    siblings = up.T[nodes - 1 :].tolist()
    assert [1, 4] in siblings  # the arguments and the first statement
    assert [2, 3] in siblings  # the arguments `self` and `values`
    assert [3, 4] not in siblings


def test_bytecode_follows_jumps_and_code_in_constants(graphs):
    def flow(text):
        names, edges = graphs.instructions(ast.parse(text).body[0])
        return names, [sorted(b for a, b in edges if a == i) for i in range(len(names))]

    names, after = flow("def f(x):\n    if x:\n        return x + 1\n    return 2")
    for i, name in enumerate(names):
        jump = "JUMP" in name
        assert len(after[i]) == (0 if name.startswith("RETURN") else 1 + jump), name
        assert after[i][:1] in ([], [i + 1])
    assert sum("JUMP" in name for name in names) == 1

    names, after = flow("def f(x):\n    return lambda: x")
    assert sum(name.startswith("RETURN_") for name in names) == 2
    outer = next(i for i, name in enumerate(names) if name == "LOAD_CONST")
    assert len(after[outer]) == 2  # the next instruction and the first of the lambda


def test_source_and_bytecode_of_a_function_are_a_pair(graphs, monkeypatch, tmp_path):
    for package in ("one", "two"):
        (tmp_path / f"{package}-2").mkdir()
        with zipfile.ZipFile(tmp_path / f"{package}-2" / "a.whl", "w") as archive:
            more = "    return -total\n" if package == "one" else "    return 1, total\n"
            archive.writestr("m.py", f"{SAME}{more}" + f"class A:\n  def f(values):\n    {BODY}\n    return values\n")
    monkeypatch.setattr(graphs, "PACKAGES", {"train": {"one": (1, 2)}, "validation": {}, "test": {"two": (1, 2)}})
    monkeypatch.setattr(graphs, "BYTECODE", {"train": ["one"], "validation": [], "test": ["two"]})
    graphs.write_bytecode(tmp_path, tmp_path)
    pairs = (tmp_path / "bytecode.csv").read_text().split()
    assert len(pairs) == len(set(pairs)) == 4  # `A.f` of `two` only, as training functions of other parts are left out
    source, code = (load_dataset(tmp_path / f"{name}.pt") for name in ("source", "bytecode"))
    assert [each.part for each in source] == [each.part for each in code] == ["test", "test", "train"]
    assert pairs[1:] == [f"{each},{each}" for each in source.ids.tolist()]
    assert source.num_features != code.num_features
