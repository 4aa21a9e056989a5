"""Test which packages may import which, and that importing the library loads no heavy optional library."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.run import main
from tests.conftest import small_graphs

PACKAGE = Path(graphcl.__file__).parent

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
TABLE = re.search(r"<!-- floors -->(.*?)<!-- end -->", PAGE, re.S)[1]
ROWS = [line.split(" | ") for line in TABLE.split("\n") if line.startswith("| `")]
(GROUND, _), *FLOORS, (ENTRY_POINTS, _) = ([set(re.findall(r"`(\w+)`", row[i])) for i in (0, 2)] for row in ROWS)
ALLOWED = {name: below for (name,), below in FLOORS}
"""Package -> packages that it may import, in addition to `GROUND`, by the table of the page."""

HEAVY = ["sklearn", "scipy", "joblib", "networkx", "matplotlib", "pandas", "pyarrow", "ogb", "lightning"]
HEAVY += ["pytorch_lightning", "tensorboard", "wandb", "mlflow"]


parsed = functools.cache(ast.parse)


def imported(source: str) -> set[str]:
    """Return the names of the packages and top-level modules of graphcl that the code `source` imports."""
    names = set()
    for node in ast.walk(parsed(source)):
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


def test_the_files_that_the_page_names_exist():
    root = PACKAGE.parent
    named = {path for path in re.findall(r"`([\w/]+\.(?:py|yaml))[:`]", PAGE) if "NAME" not in path}
    assert len(named) > 30
    known = [f"{path}" for part in (PACKAGE, root / "tests", root / "configs") for path in part.rglob("*.*")]
    assert [path for path in named if not any(each.endswith(f"/{path}") for each in known)] == []


def test_a_package_stands_above_all_that_it_may_import():
    """The table has no circle, and its order is that of the floors."""
    done: set[str] = set()
    for name, below in ALLOWED.items():
        assert below <= done, name
        done.add(name)


DOORS = {"__init__": {"api"}, "api": {"estimator", "run"}}
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


def test_matplotlib_is_imported_inside_functions_only():
    for path in PACKAGE.rglob("*.py"):
        top = [node for node in parsed(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert "matplotlib" not in "\n".join(map(ast.unparse, top)), path


def test_losses_and_evaluation_know_nothing_of_graphs():
    for path in [*PACKAGE.glob("losses/**/*.py"), *PACKAGE.glob("evaluate/*.py"), PACKAGE / "graphs" / "segment.py"]:
        assert "torch_geometric" not in path.read_text(), path


CORE = f"""
import sys
from importlib import metadata
every = metadata.entry_points
def others(**given):
    points = every(**given)
    return [point for point in points if "graphcl.extensions" not in point.value] if given else points
metadata.entry_points = others
sys.modules["graphcl.extensions"] = None
import torch_geometric.loader  # imports pandas if it is installed
before = {{*sys.modules}}
import graphcl.api, graphcl.experiment.run_config, graphcl.sweep, graphcl.experiment.record.progress
print("heavy:", *[name for name in {HEAVY} if name in sys.modules and name not in before], flush=True)
from graphcl import GraphCL, load_dataset, make_config
from graphcl.config import Config
from graphcl.run import main
words = ["--epochs", "1", "--seeds", "0", "--eval", "knn", "--report", "false", "--out", "run"]
assert main(["--dataset", "own.pt", *words]) == 0
dataset = load_dataset("own.pt")
assert GraphCL(epochs=1, batch_size=6).fit(dataset).transform(dataset).shape == (36, 96)
assert make_config({{"dataset": "table.csv"}}).encoder["name"] == "gin"
assert not {{"smiles", "standardise"}} & Config.model_fields.keys()
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Return the finished process of `CORE`, which imports the core without the extensions, and then runs it."""
    folder = tmp_path_factory.mktemp("core")
    InMemoryDataset.save(small_graphs(), str(folder / "own.pt"))
    return subprocess.run([sys.executable, "-c", CORE], capture_output=True, text=True, cwd=folder)


def test_importing_the_package_loads_no_heavy_optional_library(core):
    assert re.findall("^heavy:(.*)", core.stdout) == [""]


def test_import_and_help_load_no_torch():
    code = """
import sys, graphcl
from graphcl.__main__ import main
from graphcl.run import main as run
run(["--help"])
assert "numpy" not in sys.modules
for words in ([], ["sweep"], ["embed"], ["transfer"], ["export"], ["pack"]):
    main([*words, "--help"])
    assert "torch" not in sys.modules, words
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_broken_dependency_is_named(tmp_path):
    """Python turns an AttributeError of a module's `__getattr__` into "cannot import name", or into nothing."""
    (tmp_path / "torch_geometric.py").write_text("import sys\nsys.no_such_name\n")
    statements = [
        "from graphcl import load_dataset",
        "from graphcl import *",
        "import graphcl; hasattr(graphcl, 'train')",
    ]
    statements += ["from graphcl.datasets import load_dataset"]
    code = f"import traceback\nfor each in {statements}:\n    try: exec(each)\n    except: traceback.print_exc()\n"
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    command, given = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path}
    error = subprocess.run(command, capture_output=True, text=True, env=given).stderr
    assert error.count('torch_geometric.py", line 2') == 4
    line = r"^ImportError: cannot import graphcl\..*'sys' has no attribute 'no_such_name'; a package "
    assert len(re.findall(line, error, re.MULTILINE)) == 4


def test_public_names_exist_and_are_sorted():
    assert all(hasattr(graphcl, name) for name in graphcl.__all__)
    assert len(set(graphcl.__all__)) == len(graphcl.__all__)


KINDS = {
    "pairs": ({"relation", "targets"}, set(), set()),
    "groups": ({"groups"}, set(), set()),
    "towers": ({"towers", "target_encoder"}, {"TwoTowers"}, {"separate"}),
    "nodes": (set(), {"NodeModel", "NodeDataset"}, {"nodes"}),
    "sparse rows": (set(), {"SparseRows", "WLSparse"}, {"sparse"}),
}
"""Kind of what is trained -> attributes of a data set or of settings, names and texts by which code asks for it."""


def asks(source, attributes, names, texts):
    """Return whether the code `source` asks for a kind."""
    tree = parsed(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in attributes:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner in ("dataset", "data", "config", "settings", "self"):
                return True
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Constant) and node.value in texts and id(node) not in docs:
            return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_few_files_ask_what_is_trained(kind):
    """Outside the tasks and the subject's own folder, at most six files name a kind."""
    files = [path for path in PACKAGE.rglob("*.py") if not {"tasks", "extensions"} & {*path.relative_to(PACKAGE).parts}]
    found = [str(path.relative_to(PACKAGE)) for path in files if asks(path.read_text(), *KINDS[kind])]
    assert len(found) <= 6, found


def test_the_check_of_kinds_sees_a_question():
    assert asks("if dataset.relation is None:\n    pass", *KINDS["pairs"])
    assert asks("rows == 'nodes'", *KINDS["nodes"])
    assert not asks('"""nodes"""\nloader.relation', *KINDS["nodes"])


def test_the_core_trains_without_the_extensions(core):
    """No module of the core imports one, and settings, a run and the estimator need none."""
    assert core.returncode == 0, core.stderr
    assert "trained encoder" in core.stdout


def test_few_calls_lead_from_the_command_to_the_loss(saved_graphs, tmp_path):
    """The stack of our own functions at the formula of the loss, from `main`."""
    stacks = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith("losses/formulas/infonce.py"):
            stack, own = frame, []
            while stack is not None:
                if str(PACKAGE) in stack.f_code.co_filename:
                    own.append(f"{Path(stack.f_code.co_filename).stem}.{stack.f_code.co_name}")
                stack = stack.f_back
            stacks.add(tuple(reversed(own)))

    sys.setprofile(watch)
    try:
        words = ["--dataset", saved_graphs(), "--epochs", "1", "--seeds", "0", "--eval", "none", "--report", "false"]
        assert main([*words, "--out", str(tmp_path / "run")]) == 0
    finally:
        sys.setprofile(None)
    assert stacks
    assert max(map(len, stacks)) <= 9, stacks  # eight, and the formula
