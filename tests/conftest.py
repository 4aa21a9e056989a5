from pathlib import Path

import pytest
import torch
from hypothesis import settings
from joblib import cpu_count
from torch_geometric.data import Data, InMemoryDataset

from graphcl.datasets import load_dataset

torch.set_num_threads(1)  # small tensors gain nothing from more, and lose much beside another busy program

# The same examples at each run; `pytest --hypothesis-profile default` draws others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

SHARED = Path(__file__).parents[2] / "shared" / "tu"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`pytest -n auto`: a worker a core, and no more than eight, as each of them takes memory for itself."""
    return min(cpu_count(), 8)


def small_graphs(n: int = 36, classes: int = 2, labelled: bool = True, edge_attr: bool = False) -> list[Data]:
    """Rings and stars with a few random edges: two classes that an encoder tells apart."""
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
        graphs.append(graph)
    return graphs


@pytest.fixture
def saved_graphs(tmp_path):
    """Saves small graphs as a .pt file, as a user would, and gives its path."""

    def save(**options) -> str:
        path = tmp_path / "own.pt"
        InMemoryDataset.save(small_graphs(**options), str(path))
        return str(path)

    return save


@pytest.fixture
def mirror():
    """The folder with the public archives, where it lies beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("the public archives are not beside this checkout (../shared/tu)")
    return str(SHARED)


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """Saves forty graphs of a data set that is beside the checkout, or small made-up ones, and gives the path."""
    files = {}

    def save(name: str) -> str:
        if name not in files:
            files[name] = str(tmp_path_factory.mktemp("few") / f"{name}.pt")
            if (SHARED / f"{name}.zip").is_file():
                dataset = load_dataset(name, tmp_path_factory.getbasetemp() / "data", str(SHARED))
                graphs = [dataset[i] for i in range(0, len(dataset), len(dataset) // 40)]
            else:
                graphs = small_graphs()
            InMemoryDataset.save(graphs, files[name])
        return files[name]

    return save
