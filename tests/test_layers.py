"""Test which packages may import which, and that importing the library loads no heavy optional library."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphcl

PACKAGE = Path(graphcl.__file__).parent

GROUND = {"errors", "arguments", "registry", "version"}
"""Modules that every module may import; they import only each other."""
ALLOWED = {
    "system": set(),
    "graphs": set(),
    "augment": {"graphs"},
    "datasets": {"graphs", "system"},
    "loaders": {"datasets", "graphs", "system"},
    "distributed": {"system"},
    "losses": {"distributed"},
    "models": {"distributed", "graphs", "system"},
    "methods": {"augment", "distributed", "graphs", "losses", "models"},
    "training": {"augment", "distributed", "graphs", "losses", "methods", "models", "system"},
    "evaluate": {"system"},
    "config": {"datasets", "evaluate", "models", "system", "training"},
    "cli": {"config", "datasets", "evaluate", "system"},
    "report": {"augment", "config", "datasets", "evaluate", "system"},
    "experiment": {
        "augment", "config", "datasets", "distributed", "evaluate", "graphs", "loaders", "losses", "methods", "models",
        "report", "system", "training",
    },
    "commands": {
        "cli", "config", "datasets", "distributed", "evaluate", "experiment", "loaders", "models", "report", "sweep",
        "system", "training",
    },
    "sweep": {"cli", "config", "datasets", "evaluate", "experiment", "report", "system"},
}  # fmt: skip
"""Package -> packages that it may import, in addition to `GROUND`."""
ENTRY_POINTS = {"__init__", "__main__", "api", "extend", "run", "estimator", "lightning", "graphgym"}
"""Top-level modules that may import everything; nothing imports them."""

HEAVY = ["sklearn", "scipy", "joblib", "networkx", "matplotlib", "pandas", "pyarrow", "ogb", "lightning"]
HEAVY += ["pytorch_lightning", "yacs", "tensorboard", "wandb", "mlflow"]


def imported(source: str) -> set[str]:
    """Return the names of the packages and top-level modules of graphcl that the code `source` imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        names |= {module.split(".")[1] for module in modules if module.startswith("graphcl.")}
    return names


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_the_table_lists_every_part():
    assert {part(path) for path in PACKAGE.rglob("*.py")} == GROUND | set(ALLOWED) | ENTRY_POINTS


def test_the_table_has_no_circle():
    done: set[str] = set()
    for _ in ALLOWED:
        done |= {name for name, below in ALLOWED.items() if below <= done}
    assert done == set(ALLOWED)


DOORS = {"__init__": {"api"}, "api": {"estimator", "run"}, "graphgym": {"lightning"}}
"""Entry point -> entry points that it may import."""


def test_a_package_imports_only_what_lies_below_it():
    wrong = {}
    for path in PACKAGE.rglob("*.py"):
        own, found = part(path), imported(path.read_text())
        if own in ENTRY_POINTS:
            wrong[path] = (found & ENTRY_POINTS) - DOORS.get(own, set())
        else:
            wrong[path] = found - GROUND - (set() if own in GROUND else ALLOWED[own] | {own})
    assert {str(path): found for path, found in wrong.items() if found} == {}


def test_the_check_sees_a_forbidden_import():
    source = "from graphcl.run import main\nimport graphcl.training.loop"
    assert imported(source) == {"run", "training"}


def test_matplotlib_is_imported_only_where_a_picture_is_drawn():
    for path in PACKAGE.rglob("*.py"):
        if "report" not in path.parts and path.name != "figures.py":
            top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
            drawn = re.findall(r"graphcl\.report\.(?!summary|run_files)\w+", "\n".join(map(ast.unparse, top)))
            assert not drawn, path


def test_losses_and_evaluation_know_nothing_of_graphs():
    for path in [*PACKAGE.glob("losses/**/*.py"), *PACKAGE.glob("evaluate/*.py"), PACKAGE / "graphs" / "segment.py"]:
        assert "torch_geometric" not in path.read_text(), path


def test_importing_the_package_loads_no_heavy_optional_library():
    modules = "graphcl.api, graphcl.experiment.run, graphcl.sweep, graphcl.experiment.record.tracking"
    # PyG's loaders import pandas if it is installed.
    code = f"import sys, torch_geometric.loader; before = {{*sys.modules}}; import {modules}; "
    code += f"print(*[name for name in {HEAVY} if name in sys.modules and name not in before])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_import_and_help_load_no_torch():
    code = """
import sys, graphcl
from graphcl.__main__ import main
from graphcl.run import main as run
run(["--help"])
for words in ([], ["sweep"], ["embed"], ["transfer"], ["export"], ["pack"], ["completion"]):
    main([*words, "--help"])
    assert "torch" not in sys.modules, words
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "statement",
    [
        "from graphcl import load_dataset",
        "from graphcl import *",
        "import graphcl; hasattr(graphcl, 'train')",
        "from graphcl.datasets import load_dataset",
    ],
)
def test_a_broken_dependency_is_named(statement, tmp_path):
    """Python turns an AttributeError of a module's `__getattr__` into "cannot import name", or into nothing."""
    (tmp_path / "torch_geometric.py").write_text("import sys\nsys.no_such_name\n")
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    command, given = [sys.executable, "-c", statement], {**os.environ, "PYTHONPATH": path}
    error = subprocess.run(command, capture_output=True, text=True, env=given).stderr
    assert 'torch_geometric.py", line 2' in error
    assert re.search(r"ImportError: cannot import graphcl\..*'sys' has no attribute 'no_such_name'; a package ", error)


def test_public_names_exist_and_are_sorted():
    assert all(hasattr(graphcl, name) for name in graphcl.__all__)
    assert len(set(graphcl.__all__)) == len(graphcl.__all__)
