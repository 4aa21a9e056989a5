"""Drawings of augmentations show the actual changes."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphcl import AttributeMask, Compose, EdgePerturb, Identity, NodeDrop, OneOf, Subgraph
from graphcl.config import build_augmentation, check_augmentation
from graphcl.registry import augmentations
from graphcl.report.augmentations import augmentations as draw
from graphcl.report.augmentations import change, layout, node_kinds
from graphcl.report.svg import to_svg

PATH = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def path(features=None):
    x = torch.eye(3)[[0, 1, 0, 1, 0, 2]] if features is None else features
    return Data(x=x, edge_index=torch.cat([PATH, PATH.flip(0)], dim=1))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_original():
    found = change(path(), Identity())
    assert (found.nodes, found.kept) == ([0, 1, 2, 3, 4, 5], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    assert (found.gone, found.masked, found.removed, found.added) == ([], [], [], [])
    assert str(found) == "6 nodes, 5 edges; unchanged"


@pytest.mark.parametrize("augmentation", [NodeDrop(0.4), Subgraph(0.4)])
def test_dropped_nodes_lose_their_edges(augmentation):
    found = change(path(), augmentation, seeded())
    assert (len(found.gone), len(found.nodes)) == (2, 4)
    assert sorted(found.gone + found.nodes) == [0, 1, 2, 3, 4, 5]
    assert set(found.removed) == {pair for pair in change(path(), Identity()).kept if set(pair) & set(found.gone)}
    assert found.difference == f"2 nodes and {len(found.removed)} edges gone"


def test_moved_edges():
    found = change(path(), EdgePerturb(0.4), seeded())
    assert (len(found.removed), len(found.added), len(found.kept)) == (2, 2, 3)
    assert all(abs(u - v) != 1 for u, v in found.added)
    assert found.difference == "2 edges gone, 2 edges new"


def test_masked_nodes_in_the_numbering_of_the_original():
    found = change(path(), Compose([NodeDrop(0.2), AttributeMask(0.4)]), seeded())
    assert (len(found.gone), len(found.masked)) == (1, 2)
    assert not set(found.masked) & set(found.gone)
    assert found.difference.endswith("gone, 2 nodes masked")


def test_as_many_directed_edges_as_nodes():
    ring = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    found = change(ring, NodeDrop(0.25), seeded())
    assert (len(found.gone), len(found.removed), len(found.kept)) == (1, 2, 2)


@pytest.mark.parametrize("name", list(augmentations))
def test_every_registered_augmentation_is_drawn(name):
    members = {"members": ["node_drop", "attribute_mask"]} if name in ("compose", "one_of") else {}
    view = build_augmentation(check_augmentation({"name": name, **members}, "here"))
    figure, seen = draw({"a path": path()}, {name: view})
    text = to_svg(figure)
    ((graph, label, found),) = seen
    assert (graph, label) == ("a path", name)
    assert f">{name}</text>" in text
    assert f">{found.difference}</text>" in text
    assert f">{found.size}</text>" in text


def test_a_view_does_not_depend_on_the_others():
    one = draw({"a": path()}, {"drop": NodeDrop(0.4)}, seed=3)[1]
    two = draw({"b": path(), "a": path()}, {"mask": AttributeMask(0.4), "drop": NodeDrop(0.4)}, seed=3)[1]
    assert one[0] == two[-1]


def test_kinds_of_nodes():
    assert node_kinds(path()).tolist() == [0, 1, 0, 1, 0, 2]
    assert node_kinds(path(torch.rand(6, 2))) is None
    assert node_kinds(path(torch.ones(6, 1))) is None


@pytest.mark.parametrize("nodes", [1, 2, 40, 200])
def test_layout_of_small_large_and_disconnected_graphs(nodes):
    ends = torch.stack([torch.arange(nodes // 2), torch.arange(nodes // 2) + nodes // 2])
    graph = Data(x=torch.ones(nodes, 1), edge_index=torch.cat([ends, ends.flip(0)], dim=1))
    place = layout(graph)
    assert place.shape == (nodes, 2)
    assert np.isfinite(place).all()
    assert len(np.unique(place.round(6), axis=0)) == nodes
    figure, _ = draw({"a graph": graph}, {"pool": OneOf([NodeDrop(0.5)])})
    assert "a graph" in to_svg(figure)
