"""Test `PerGraph`, which applies a transform of single graphs."""

import random

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data

import graphcl
from graphcl import (
    GIN,
    Compose,
    ContrastiveModel,
    NodeDrop,
    OneOf,
    PerGraph,
    ResidentLoader,
    TwoViews,
    train,
    two_views,
)
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.registry import augmentations
from tests.conftest import restored, small_graphs
from tests.datasets.graphs import one_line
from tests.strategies import seeded
from tests.trials import try_settings

GRAPHS = small_graphs(8, edge_attr=True)


def batch():
    return Batch.from_data_list([graph.clone() for graph in GRAPHS])


def noisy(graph):
    """Draw from all global generators, and change the graph in place."""
    graph.x += torch.randn_like(graph.x) + random.random() + np.random.rand()
    return graph


def test_each_graph_is_transformed_by_itself():
    whole = batch()
    transform = T.Compose([T.AddSelfLoops(attr="edge_attr"), T.Constant(), T.LocalDegreeProfile()])
    view = PerGraph(transform)(whole)
    for found, graph in zip(view.to_data_list(), GRAPHS, strict=True):
        expected = transform(graph.clone())
        assert all(torch.as_tensor(found[key] == value).all() for key, value in expected)
        assert found.keys() == expected.keys()
    one = PerGraph(T.AddSelfLoops())(GRAPHS[0])
    assert one.edge_index.size(1) == GRAPHS[0].num_edges + GRAPHS[0].num_nodes
    mask = torch.arange(8) < 3
    view = PerGraph(noisy)(whole, graphs=mask)
    changed = [not torch.equal(a.x, b.x) for a, b in zip(view.to_data_list(), GRAPHS, strict=True)]
    assert changed == mask.tolist()
    assert torch.equal(whole.x, batch().x)


def test_draws_come_from_the_generator_and_leave_the_global_ones():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    views = [PerGraph(noisy)(batch(), seeded(seed)).x for seed in (0, 0, 1)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_training():
    model = ContrastiveModel(GIN(3, 8, 2))
    views = PerGraph(noisy), Compose([PerGraph(T.AddSelfLoops(attr="edge_attr")), NodeDrop(0.2)])
    for loader in (ResidentLoader(GRAPHS, 3), [batch()]):
        (epoch,) = train(TwoViews(model, "infonce"), loader, *views, epochs=1, generator=seeded(0))
        assert epoch.loss == epoch.loss
    with restored(augmentations):
        augmentations.register("noise")(lambda ratio=0.1: PerGraph(noisy))
        try_settings(make_config({"views": {"second": "noise"}}), load_dataset(GRAPHS))


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (lambda graph: None, "the transform <lambda> must return a Data, got NoneType."),
        (lambda graph: Batch.from_data_list([graph]), "must return a Data, got DataBatch."),
        (lambda graph: Data(num_nodes=0), "leaves a graph without nodes."),
        (
            lambda graph: graph.update({"a": torch.rand(3)} if graph.y else {}),
            "leaves graphs with different attributes",
        ),
    ],
)
def test_a_transform_that_does_not_fit_gets_a_line(transform, says):
    one_line(lambda: PerGraph(transform)(batch()), says)


def test_other_arguments_get_a_line():
    says = "`transform` must be a function of a Data, or a PyG transform, got "
    one_line(lambda: PerGraph(T.Constant), says, "make an instance: Constant(...)")
    one_line(lambda: PerGraph(None), says + "None")
    one_line(lambda: OneOf([PerGraph(noisy), NodeDrop(0.1)])(batch()), "PerGraph has no decision")
    one_line(
        lambda: two_views(batch(), T.Constant(), "identity"), "got PyG's Constant; wrap it: PerGraph(Constant(...))."
    )
    assert two_views(batch(), lambda batch, generator: batch, "identity")[0].num_graphs == 8


def test_every_augmentation_of_the_library_is_exported():
    for target in augmentations.registered("graphcl").values():
        assert getattr(graphcl, target.__name__).__name__ == target.__name__
        assert target.__name__ in graphcl.__all__
