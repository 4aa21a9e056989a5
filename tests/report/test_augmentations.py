"""Drawings of augmentations show the actual changes."""

import re

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphcl import AttributeMask, Compose, EdgePerturb, Identity, NodeDrop, Subgraph
from graphcl.config import build_augmentation, check_augmentation
from graphcl.registry import augmentations
from graphcl.report.augmentations import augmentations as draw
from graphcl.report.augmentations import change, layout
from graphcl.report.svg import to_svg
from tests.strategies import seeded

PATH = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def path(features=None):
    x = torch.eye(3)[[0, 1, 0, 1, 0, 2]] if features is None else features
    return Data(x=x, edge_index=torch.cat([PATH, PATH.flip(0)], dim=1))


RING = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))


@pytest.mark.parametrize(("graph", "augmentation", "gone", "masked", "added", "line"), [
    (path(), NodeDrop(0.4), 2, 0, 0, r"2 nodes and \d edges gone"),
    (path(), Subgraph(0.4), 2, 0, 0, r"2 nodes and \d edges? gone"),
    (path(), EdgePerturb(0.4), 0, 0, 2, "2 edges gone, 2 edges new"),
    (path(), Compose([NodeDrop(0.2), AttributeMask(0.4)]), 1, 2, 0, ".* gone, 2 nodes masked"),
    (RING, NodeDrop(0.25), 1, 0, 0, "1 nodes and 2 edges gone"),  # as many directed edges as nodes
])  # fmt: skip
def test_changes_in_the_numbering_of_the_original(graph, augmentation, gone, masked, added, line):
    whole, found = change(graph, Identity()), change(graph, augmentation, seeded(0))
    assert str(whole) == f"{len(whole.nodes)} nodes, {len(whole.kept)} edges; unchanged"
    assert whole.kept == sorted({tuple(sorted(pair)) for pair in graph.edge_index.T.tolist()})
    assert (len(found.gone), len(found.masked), len(found.added)) == (gone, masked, added)
    assert sorted(found.gone + found.nodes) == whole.nodes
    assert sorted(found.kept + found.removed) == whole.kept
    assert not set(found.masked) & set(found.gone)
    assert not set(found.added) & set(whole.kept)
    if gone:  # dropped nodes lose their edges, and no others
        assert set(found.removed) == {pair for pair in whole.kept if set(pair) & set(found.gone)}
    assert re.fullmatch(line, found.difference)


def test_every_registered_augmentation_is_drawn():
    views = {}
    for name in augmentations:
        members = {"members": ["node_drop", "attribute_mask"]} if name in ("compose", "one_of") else {}
        views[name] = build_augmentation(check_augmentation({"name": name, **members}, "here"))
    figure, seen = draw({"a path": path()}, views)
    text = to_svg(figure)
    assert [label for _, label, _ in seen] == list(augmentations)
    for graph, label, found in seen:
        assert graph == "a path"
        for shown in (label, found.difference, found.size):
            assert f">{shown}</text>" in text, label


def test_a_view_does_not_depend_on_the_others():
    one = draw({"a": path()}, {"drop": NodeDrop(0.4)}, seed=3)[1]
    two = draw({"b": path(), "a": path()}, {"mask": AttributeMask(0.4), "drop": NodeDrop(0.4)}, seed=3)[1]
    assert one[0] == two[-1]


@pytest.mark.parametrize("nodes", [1, 2, 40, 160])
def test_layout_of_small_large_and_disconnected_graphs(nodes):
    ends = torch.stack([torch.arange(nodes // 2), torch.arange(nodes // 2) + nodes // 2])
    place = layout(Data(x=torch.ones(nodes, 1), edge_index=torch.cat([ends, ends.flip(0)], dim=1)))
    assert place.shape == (nodes, 2)
    assert np.isfinite(place).all()
    assert len(np.unique(place.round(6), axis=0)) == nodes
