"""Test `PerGraph`, which applies a transform of single graphs, and what can be registered as an augmentation."""

import random
import re

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
from graphcl.augment import Augmentation
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputTypeError
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


def double(graph):
    graph.x = graph.x.double()
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
        (T.RandomJitter(0.1), "the transform RandomJitter(0.1) fails on graph 0 of a batch (AssertionError); use"),
        (lambda graph: None, "the transform <lambda> must return a Data, got NoneType."),
        (lambda graph: Batch.from_data_list([graph]), "must return a Data, got DataBatch."),
        (lambda graph: Data(num_nodes=0), "leaves graph 0 of a batch without nodes."),
        (lambda graph: graph.update({"a": torch.rand(3)} if graph.y else {}), "cannot be batched ("),
        (T.ToDense(), "the transform ToDense() removes `edge_index`, which encoders need"),
        (double, "the transform double changes the dtype of `x` from float32 to float64"),
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
    one_line(
        lambda: two_views(batch(), "identity", lambda batch: batch), "`second` must take (batch, generator), which"
    )
    assert two_views(batch(), lambda batch, generator: batch, "identity")[0].num_graphs == 8


class Abstract(Augmentation):
    pass


class Uncallable:
    pass


def of_batch(batch, generator=None):
    return batch


def of_graph(data):
    return data


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (T.RandomJitter, "got PyG's RandomJitter, a transform of single graphs; register a function that returns"),
        (T.RandomJitter(0.1), "got RandomJitter(0.1); register a function without arguments that returns it."),
        (NodeDrop(0.1), "got NodeDrop(ratio=0.1); register a function"),
        (of_batch, "but of_batch takes `batch`; derive a class from Augmentation, or return PerGraph(function)"),
        (of_graph, "but of_graph takes `data`; derive"),
        (Abstract, "but Abstract does not define `decide`; see"),
        (Uncallable, "but Uncallable does not define"),
    ],
)  # fmt: skip
def test_what_cannot_make_views_is_refused_at_registration(target, says):
    with restored(augmentations):
        start = "augmentation `mine` must be a class of augmentations or a function that returns one, "
        with pytest.raises(InputTypeError, match="^" + re.escape(start + says)):
            augmentations.register("mine")(target)
        assert "mine" not in augmentations


def test_every_augmentation_of_the_library_is_exported():
    for target in augmentations.registered("graphcl").values():
        assert getattr(graphcl, target.__name__).__name__ == target.__name__
        assert target.__name__ in graphcl.__all__
