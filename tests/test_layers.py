"""Who may import whom, and what importing the package costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphcl

PACKAGE = Path(graphcl.__file__).parent

# Each room, and the rooms it may import; every room may import those that are free.
FREE = {"errors", "arguments", "registry", "version", "files", "torch_file", "native", "ranks", "_native", "_gin"}
ALLOWED = {
    "errors": set(),
    "version": set(),
    "arguments": set(),
    "registry": set(),
    "files": set(),
    "torch_file": set(),
    "segment": set(),
    "aggregate": {"segment"},
    "stack": {"aggregate", "global_norm"},
    "losses": set(),
    "optional": set(),
    "evaluate": {"optional"},
    "native": set(),
    "ranks": set(),
    "global_norm": set(),
    "memory": set(),
    "restrict": {"segment"},
    "batching": {"restrict", "segment"},
    "augment": {"batching", "segment"},
    "datasets": {"batching", "optional", "segment"},
    "gin": {"aggregate", "stack"},
    "molecule": {"aggregate", "gin"},
    "model": {"batching"},
    "pooled": {"model"},
    "saved": {"model"},
    "diagnostics": {"losses"},
    "information": {"losses"},
    "methods": {"augment", "batching", "losses", "model", "segment"},
    "randomness": set(),
    "stopping": set(),
    "checkpoint": {"stopping"},
    "stream": {"augment", "batching", "randomness"},
    "processes": {"stopping"},
    "training": {"augment", "checkpoint", "diagnostics", "global_norm", "losses", "methods", "stream"},
    "train": {"augment", "batching", "checkpoint", "methods", "model", "training"},
    "lightning": {"augment", "batching", "methods", "stream", "training"},
    "config": {"evaluate", "model"},
    "config_files": set(),
    "tracking": {"config", "train"},
    "command_line": {"config", "config_files", "datasets", "evaluate", "stopping"},
    "report": {"config", "datasets", "evaluate"},
    "run_folder": {"checkpoint", "config", "config_files", "evaluate", "saved", "stopping", "train"},
    "pack": {"command_line", "datasets"},
    "pca": set(),
    "snapshot": {"augment", "losses", "methods", "stream"},
    "experiment": {
        "augment",
        "checkpoint",
        "config",
        "datasets",
        "evaluate",
        "global_norm",
        "losses",
        "methods",
        "model",
        "optional",
        "pca",
        "saved",
        "snapshot",
        "train",
    },
    "embedding": {"command_line", "config", "config_files", "datasets", "experiment", "model", "saved", "train"},
    "estimator": {"config", "datasets", "embedding", "experiment", "model", "saved", "train"},
    "finetune": {"datasets", "evaluate", "model", "train"},
    "transfer": {
        "command_line",
        "config",
        "config_files",
        "datasets",
        "embedding",
        "evaluate",
        "experiment",
        "finetune",
        "memory",
        "model",
        "report",
        "run_folder",
        "saved",
        "train",
    },
    "__main__": {"command_line"},  # it imports a command's module by name when the command is given
    "viz": {"augment", "config", "config_files", "evaluate", "optional", "pca", "report", "snapshot"},
    "show": {"command_line", "config", "config_files", "datasets", "report", "viz"},
    "run": {
        "checkpoint",
        "command_line",
        "config",
        "datasets",
        "diagnostics",
        "evaluate",
        "experiment",
        "losses",
        "memory",
        "methods",
        "processes",
        "report",
        "run_folder",
        "stopping",
        "tracking",
        "train",
        "viz",
    },
    "graphgym": {
        "augment",
        "config",
        "datasets",
        "diagnostics",
        "experiment",
        "lightning",
        "losses",
        "methods",
        "model",
    },
    "sweep": {
        "command_line",
        "config",
        "config_files",
        "datasets",
        "evaluate",
        "experiment",
        "memory",
        "report",
        "train",
        "viz",
    },
}

HEAVY = ["sklearn", "scipy", "joblib", "networkx", "matplotlib", "pandas", "pyarrow", "ogb", "lightning"]
HEAVY += ["pytorch_lightning", "yacs", "tensorboard", "wandb", "mlflow"]


def rooms_imported(source: str) -> set[str]:
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


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_what_lies_below_it(path):
    if path == PACKAGE / "__init__.py":
        return  # the public names come from everywhere
    own = room(path)
    assert rooms_imported(path.read_text()) <= ALLOWED[own] | FREE | {own}


def test_the_check_sees_a_forbidden_import():
    assert rooms_imported("from graphcl.run import main\nimport graphcl.train") == {"run", "train"}


def test_pictures_are_imported_only_where_one_is_drawn():
    """Not at the head of any module outside of their room, so that nothing waits for matplotlib."""
    for path in PACKAGE.rglob("*.py"):
        if room(path) != "viz" and path.name != "figures.py":
            top = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
            assert "viz" not in rooms_imported("\n".join(map(ast.unparse, top))), path


def test_losses_and_evaluation_know_nothing_of_graphs():
    for path in [*PACKAGE.glob("losses/*.py"), *PACKAGE.glob("evaluate/*.py"), PACKAGE / "segment.py"]:
        assert "torch_geometric" not in path.read_text(), path


def test_importing_the_package_loads_no_heavy_optional_library():
    modules = "graphcl, graphcl.run, graphcl.sweep, graphcl.tracking"
    # PyG's loaders import pandas themselves where it is installed.
    code = f"import sys, torch_geometric.loader; before = {{*sys.modules}}; import {modules}; "
    code += f"print(*[name for name in {HEAVY} if name in sys.modules and name not in before])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_public_names_exist_and_are_sorted():
    assert all(hasattr(graphcl, name) for name in graphcl.__all__)
    assert len(set(graphcl.__all__)) == len(graphcl.__all__)
