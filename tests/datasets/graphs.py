"""Helpers: graphs with chosen attributes, PyG data sets of given graphs, and one check of messages."""

import os

import pytest
from torch_geometric.data import InMemoryDataset

from graphcl.errors import InputError
from tests.strategies import make_graph, path


def one_line(call, *words, kind=InputError):
    """Assert that `call()` raises an error `kind` of one line that contains all `words`, and return the line."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


class Trap:
    """An object whose pickle, when it is loaded, makes the folder `sprung` in the working directory."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


class Held(InMemoryDataset):
    def __init__(self, graphs, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


class Saved(InMemoryDataset):
    def __init__(self, file):
        super().__init__()
        self.load(str(file))


def graphs_with(more=lambda i: {}, count=7, keys=()):
    """Return path graphs with 2, 3, ... nodes, without edges in graph 3; `more(i)` and `keys` add attributes."""
    graphs = []
    for i in range(count):
        graph = make_graph(i + 2, [] if i == 3 else path(i + 2), i, keys)
        for key, value in more(i).items():
            graph[key] = value
        graphs.append(graph)
    return graphs
