import functools
import gc
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from joblib import cpu_count
from torch_geometric.data import Data, InMemoryDataset

from graphcl.datasets import load_dataset
from graphcl.datasets.sources import objects

# Else each process of a test compiles all modules anew, and rewrites the assertions of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

torch.set_num_threads(1)  # more threads do not help small tensors, and are much slower on a busy machine

# Same examples in each run; `pytest --hypothesis-profile default` draws new examples.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

collect_ignore = ["device"]  # tests/test_device.py runs it in another process
SHARED = Path(__file__).parents[2] / "shared" / "tu"
NO_LABELS = {"COLLAB", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY", "REDDIT-MULTI-5K"}
"""TU sets whose nodes have no labels."""


def pytest_configure() -> None:
    """Stop if the installed entry points, by which the extensions register themselves, are not those of the project."""
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    sections = re.findall(r'^\[project\.entry-points\."(.+)"\]\n((?:\w+ = .+\n)+)', project, re.MULTILINE)
    named = {(group, line.split()[0]) for group, lines in sections for line in lines.splitlines()}
    installed = {(point.group, point.name) for point in metadata.distribution("graphcl").entry_points}
    if not named <= installed:
        command = "rm -rf graphcl.egg-info && pip install --no-deps --no-build-isolation -e ."  # an old one hides it
        pytest.exit(f"entry points of pyproject.toml are not installed: {named - installed}; run: {command}", 3)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude the objects of imports and collected tests, which stay to the end, from garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items) -> None:
    """Begin with the test that takes longest, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_device.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for `pytest -n auto`: one per core, at most eight to limit memory."""
    return min(cpu_count(), 8)


def overriding(base: list[str], *more: str) -> list[str]:
    """Return the arguments `base` without the options that `more` gives too, and `more`."""
    keys = {word.partition("=")[0].replace("_", "-") for word in more if word.startswith("--")}
    kept, keep = list[str](), True
    for word in base:
        keep = word.replace("_", "-") not in keys if word.startswith("--") else keep
        kept += [word] if keep else []
    return [*kept, *more]


def small_graphs(
    n: int = 36, classes: int = 2, labelled: bool = True, edge_attr: bool = False, molecules: bool = False
) -> list[Data]:
    """Return rings and stars with a few random edges, two classes that an encoder can separate.

    Args:
        n: number of graphs.
        classes: number of classes; rings are labelled 1 or more, stars 0.
        labelled: whether the graphs have `y`.
        edge_attr: whether the graphs have `edge_attr [E, 2]`, all ones.
        molecules: whether `x [N, 9]` and `edge_attr [E, 3]` hold category indices, as in OGB's molecules.
    """
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(n):
        size, label = int(torch.randint(6, 12, (), generator=generator)), number % classes
        nodes = torch.arange(size)
        ends = (
            torch.stack([nodes, (nodes + 1) % size]) if label else torch.stack([nodes[1:], torch.zeros_like(nodes[1:])])
        )
        extra = torch.randint(size, (2, 2), generator=generator)
        pairs = torch.cat([ends, extra[:, extra[0] != extra[1]]], dim=1)
        graph = Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=size)
        graph.x = torch.nn.functional.one_hot(torch.randint(3, (size,), generator=generator), 3).float()
        if labelled:
            graph.y = torch.tensor([label])
        if edge_attr:
            graph.edge_attr = torch.ones(graph.num_edges, 2)
        if molecules:
            graph.x, graph.edge_attr = graph.x.repeat(1, 3).long(), torch.zeros(graph.num_edges, 3, dtype=torch.long)
        graphs.append(graph)
    return graphs


@pytest.fixture(autouse=True, scope="session")
def generated_once():
    """Generate the data set "synthetic" once, which takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "synthetic", functools.cache(objects.synthetic))
        yield


@pytest.fixture(autouse=True, scope="session")
def entry_points_once():
    """Read the entry points of the installed packages again only if a folder of `sys.path` has changed."""
    read_all = metadata.entry_points
    read = functools.cache(lambda folders: read_all())

    def entry_points(**given):
        folders = [(path, os.stat(path).st_mtime_ns if os.path.isdir(path) else 0) for path in sys.path]
        return read(tuple(folders)).select(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "entry_points", entry_points)
        yield


@pytest.fixture
def saved_graphs(tmp_path):
    """Return a function that saves `small_graphs` as a .pt file and returns its path."""

    def save(**options) -> str:
        path = tmp_path / "own.pt"
        InMemoryDataset.save(small_graphs(**options), str(path))
        return str(path)

    return save


@pytest.fixture
def inline(monkeypatch):
    """Run the cells of a sweep in a thread of this process, as a worker process takes seconds to start."""
    monkeypatch.setattr("graphcl.system.processes.make_executor", lambda name, workers: ThreadPoolExecutor(1))


@pytest.fixture
def mirror():
    """Return the folder of public TU archives next to the checkout; skip the test if there is none."""
    if not SHARED.is_dir():
        pytest.skip("the public archives are not beside this checkout (../shared/tu)")
    return str(SHARED)


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """Return a function that saves about forty graphs of a data set and returns the path of the file.

    The graphs are from MUTAG for the name MUTAG if its archive is found, else generated.
    """
    files = {}

    def save(name: str) -> str:
        if name not in files:
            files[name] = str(tmp_path_factory.mktemp("few") / f"{name}.pt")
            graphs = small_graphs()
            if name == "MUTAG" and SHARED.is_dir():
                dataset = load_dataset(name, tmp_path_factory.getbasetemp() / "data", str(SHARED))
                graphs = [dataset[i] for i in range(0, len(dataset), len(dataset) // 40)]
            elif name in NO_LABELS:
                for graph in graphs:
                    del graph.x
            InMemoryDataset.save(graphs, files[name])
        return files[name]

    return save


def assert_entries(names, table, place):
    """Assert that `table`, which is in `place`, has one entry for each of `names`."""
    lacking, idle = sorted({*names} - {*table}), sorted({*table} - {*names})
    assert not lacking, f"add {', '.join(lacking)} to {place}, so that the contract tests check it"
    assert not idle, f"remove {', '.join(idle)} from {place}: not registered"


@contextmanager
def restored(*registries):
    """Forget within registries what the block registers."""
    for registry in registries:
        list(registry)  # the first look-up imports its modules
    tables = [each for registry in registries for each in (registry._targets, registry._arguments, registry._facts)]
    before = [dict(each) for each in tables]
    try:
        yield
    finally:
        for each, kept in zip(tables, before, strict=True):
            each.clear()
            each.update(kept)


@pytest.fixture
def offline(monkeypatch):
    """Make any use of the network fail."""

    def refuse(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    for variable in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
