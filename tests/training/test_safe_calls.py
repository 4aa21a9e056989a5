"""Check that the package, benchmarks and examples call no function that can execute untrusted data."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file for folder in ("graphcl", "benchmarks", "examples", "docs") for file in (ROOT / folder).rglob("*.py")
)
NEVER = {"eval", "exec", "compile", "__import__", "urlopen", "urlretrieve", "system", "popen", "mktemp", "extractall"}
NEVER |= {"unpack_archive", "execfile", "unsafe_load", "full_load", "load_all", "input"}
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "tarfile", "builtins"}
METHODS = {"eval", "compile", "system"}
"""Allowed as methods, such as `model.eval()`, `re.compile`, `platform.system()`; not of `os` or `builtins`."""
IMPORTED_BY_NAME = {
    "graphcl/__main__.py": "of the commands",
    "graphcl/cli/tab_completion.py": "of the commands",
    "graphcl/system/optional.py": "of the extras",
    "graphcl/registry.py": "of the package",
    "graphcl/system/processes.py": "of modules that the starting process has imported",
    "graphcl/losses/__init__.py": "of the package",
    "graphcl/evaluate/__init__.py": "of the package",
    "graphcl/experiment/record/tracking/tracker.py": "of the trackers",
    "docs/site/docstrings.py": "of the package",
    "docs/site/hooks.py": "of the commands",
}
"""Files that import a module by name, and the names, which are all known in advance."""


def unsafe(source, file=""):
    """Return the unsafe calls in `source`, each as `line: reason`."""
    return [f"{node.lineno}: {reason}" for node in ast.walk(ast.parse(source)) for reason in _faults(node, file)]


def _faults(node, file):
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func)
    owner, _, last = name.rpartition(".")
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if last in NEVER and not (last in METHODS and owner not in ("", "os", "builtins")):
        yield name
    if owner in MODULES and not last.startswith("dump"):
        yield name
    if name == "torch.load" and given.get("weights_only") != "True":
        yield "torch.load without weights_only=True"
    if owner in ("np", "numpy") and last in ("load", "fromfile") and given.get("allow_pickle", "False") != "False":
        yield f"{name} with pickles"
    if name == "yaml.load" and [ast.unparse(each) for each in node.args[1:]] != ["_Loader"]:
        yield "yaml.load without our safe loader"
    if owner == "joblib" and last == "load":
        yield name
    if given.get("shell") == "True":
        yield f"{name} through a shell"
    by_name = last == "import_module" and not (node.args and isinstance(node.args[0], ast.Constant))
    if by_name and file not in IMPORTED_BY_NAME:
        yield "import of a module by a computed name"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_unsafe_call(path):
    assert unsafe(path.read_text(), path.relative_to(ROOT).as_posix()) == []


def test_the_yaml_loader_is_safe():
    import yaml

    from graphcl.config.files import _Loader

    assert issubclass(_Loader, yaml.SafeLoader)


UNSAFE = (
    "eval(text)", "exec(text)", "__import__(name)", "builtins.eval(text)", "os.system(word)", "os.popen(word)",
    "pickle.load(file)", "pickle.loads(data)", "pickle.Unpickler(file)", "marshal.loads(data)", "joblib.load(path)",
    "torch.load(path)", "torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)",
    "yaml.load(text, yaml.Loader)", "yaml.load(text, Loader=_Loader)", "yaml.unsafe_load(text)",
    "subprocess.run(word, shell=True)", "archive.extractall(folder)", "tarfile.open(path)", "urlopen(url)",
    "importlib.import_module(config['module'])", "shutil.unpack_archive(path)", "tempfile.mktemp()",
)  # fmt: skip
SAFE = (
    "model.eval()", "re.compile(rule)", "torch.compile(model)", "torch.load(path, weights_only=True)",
    "np.load(path)", "yaml.safe_load(text)", "yaml.load(text, _Loader)", "importlib.import_module('ogb')",
    "subprocess.run(['git', 'status'])", "platform.system()", "pickle.dumps(value)",
)  # fmt: skip


@pytest.mark.parametrize("source", UNSAFE + SAFE)
def test_the_check_finds_unsafe_calls_only(source):
    assert bool(unsafe(f"def f():\n    return {source}\n")) == (source in UNSAFE)
