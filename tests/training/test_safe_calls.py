"""Check that the package, benchmarks and examples call no function that can execute untrusted data."""

import ast
from pathlib import Path

import yaml

from graphcl.config.recipes import _Loader

ROOT = Path(__file__).parents[2]
NEVER = {"eval", "exec", "compile", "__import__", "urlopen", "urlretrieve", "system", "popen", "mktemp", "extractall"}
NEVER |= {"unpack_archive", "execfile", "unsafe_load", "full_load", "load_all", "input"}
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "tarfile", "builtins"}
METHODS = {"eval", "compile", "system"}
"""Allowed as methods, such as `model.eval()`, `re.compile`, `platform.system()`; not of `os` or `builtins`."""
IMPORTED_BY_NAME = {
    "graphcl/__main__.py", "docs/site/hooks.py",  # commands
    "graphcl/commands/__init__.py",
    "graphcl/registry.py", "graphcl/errors.py", "graphcl/losses/__init__.py", "graphcl/evaluate/__init__.py",
    "docs/site/docstrings.py",
    "graphcl/system/optional.py",  # the extras
    "graphcl/system/processes.py",  # modules that the starting process has imported
}  # fmt: skip
"""Files that import a module by name; the names are all known in advance."""
DISASSEMBLED = {"benchmarks/studies/python_graphs.py"}
"""Files that compile functions to read their bytecode, and never run it."""


def unsafe(source, file=""):
    """Yield the unsafe calls in `source`, each as `line: call`."""
    allowed = {"compile"} if file in DISASSEMBLED else set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            owner, _, last = name.rpartition(".")
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            literal = node.args and isinstance(node.args[0], ast.Constant)
            if (
                (last in NEVER - allowed and not (last in METHODS and owner not in ("", "os", "builtins")))
                or (owner in MODULES and not last.startswith("dump"))
                or (name == "torch.load" and given.get("weights_only") != "True")
                or (owner in ("np", "numpy") and given.get("allow_pickle", "False") != "False")
                or (name == "yaml.load" and [ast.unparse(each) for each in node.args[1:]] != ["_Loader"])
                or name == "joblib.load"
                or given.get("shell") == "True"
                or (last == "import_module" and not literal and file not in IMPORTED_BY_NAME)
            ):
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_unsafe_call():
    files = [file for folder in ("graphcl", "benchmarks", "examples", "docs") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        assert [*unsafe(file.read_text(), name)] == [], name
    assert issubclass(_Loader, yaml.SafeLoader)


UNSAFE = (
    "eval(text)", "builtins.eval(text)", "os.system(word)", "pickle.loads(data)", "pickle.Unpickler(file)",
    "joblib.load(path)", "torch.load(path)", "torch.load(path, weights_only=False)",
    "np.load(path, allow_pickle=True)", "yaml.load(text, yaml.Loader)", "yaml.load(text, Loader=_Loader)",
    "subprocess.run(word, shell=True)", "archive.extractall(folder)", "importlib.import_module(config['module'])",
)  # fmt: skip
SAFE = (
    "model.eval()", "torch.load(path, weights_only=True)", "np.load(path)", "pickle.dumps(value)",
    "yaml.load(text, _Loader)", "importlib.import_module('ogb')", "subprocess.run(['git', 'status'])",
)  # fmt: skip


def test_the_check_finds_unsafe_calls_only():
    assert tuple(source for source in UNSAFE + SAFE if [*unsafe(f"def f():\n    return {source}\n")]) == UNSAFE
