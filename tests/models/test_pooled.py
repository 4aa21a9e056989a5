"""Test `Pooled` with PyG's models and custom modules: outputs, training, error messages."""

import itertools

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.loader import DataLoader, DynamicBatchSampler

from graphcl import GIN, ContrastiveModel, Identity, NodeDrop, Pooled, ResidentLoader, embed, train
from graphcl.config import build_augmentation, make_config
from graphcl.datasets import load_dataset
from graphcl.losses import infonce
from graphcl.methods import TwoViews
from tests.conftest import small_graphs
from tests.datasets.graphs import one_line
from tests.trials import make_method

GRAPHS = small_graphs(12, edge_attr=True)
DATASET = load_dataset(GRAPHS)
BATCH = Batch.from_data_list(GRAPHS)


PNA = {"aggregators": ["sum", "max"], "scalers": ["identity", "linear"], "deg": torch.tensor([0, 10, 10, 5, 5, 3, 2])}
NODES = {
    "gcn": lambda: pyg.GCN(3, 8, 2),
    "gat of edges": lambda: pyg.GAT(3, 8, 2, edge_dim=2),
    "sage": lambda: pyg.GraphSAGE(3, 8, 2, norm="graph_norm"),  # PyG passes `batch` to this norm
    "pna": lambda: pyg.PNA(3, 8, 2, **PNA),
}


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def changed(**attributes):
    other = BATCH.clone()
    other.update(attributes)
    return other


# -- what it computes --------------------------------------------------------------------------------------------------


def test_it_is_the_readout_of_each_graph_by_itself():
    pools = {"sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "max": lambda x: x.max(0).values}
    for name, readout in itertools.product(NODES, pools):
        encoder = seeded(lambda: Pooled(NODES[name](), readout)).eval()  # noqa: B023, called at once
        given, options = (BATCH.x, BATCH.edge_index, BATCH.batch), {"size": 12, "edge_attr": BATCH.edge_attr}
        h, rows = encoder.with_nodes(*given, **options)
        assert h.shape == (12, encoder.out_channels)
        assert torch.equal(h, encoder(*given, **options))
        for graph, found, part in zip(GRAPHS, h, rows.split(BATCH.ptr.diff().tolist()), strict=True):
            assert torch.allclose(found, pools[readout](part), atol=1e-5), (name, readout)
            alone = encoder(graph.x, graph.edge_index, edge_attr=graph.edge_attr)
            assert torch.allclose(alone[0], found, atol=1e-5), (name, readout)
    encoder = Pooled(pyg.GCN(3, 8, 2), pyg.Set2Set(8, processing_steps=2), out_channels=16)
    assert ContrastiveModel(encoder).encode(BATCH).shape == (12, 16)


def test_attributes_and_weights_go_where_they_are_taken():
    uses = {"gcn": {"edge_weight"}, "gat of edges": {"edge_attr"}}
    for name, make in (NODES | {"gat": lambda: pyg.GAT(3, 8, 2)}).items():
        model = seeded(lambda: ContrastiveModel(Pooled(make()))).eval()  # noqa: B023, called at once
        h = model.encode(BATCH)
        values = {"edge_attr": torch.rand(BATCH.num_edges, 2) * 9, "edge_weight": torch.rand(BATCH.num_edges)}
        found = {key for key, value in values.items() if not torch.allclose(model.encode(changed(**{key: value})), h)}
        assert found == uses.get(name, set()), name


def test_gins_own_edge_weights_come_from_the_batch_in_all_its_passes(monkeypatch):
    monkeypatch.setattr("graphcl.models.contrastive.ONE_PASS", 10**9)
    monkeypatch.setattr(GIN, "one_pass", True)
    weighted = changed(edge_weight=torch.rand(BATCH.num_edges))
    model = seeded(lambda: ContrastiveModel(GIN(3, 8, 2))).eval()
    h = model.encode(weighted)
    assert not torch.allclose(h, model.encode(BATCH))
    for found in (*model.encode_views(weighted, weighted), model.encode_nodes(weighted)[0]):
        assert torch.allclose(found, h, atol=1e-5)
    assert torch.allclose(model.encode(BATCH, weighted.edge_weight), h)
    twice = model.encode(weighted, weighted.edge_weight)
    assert torch.allclose(twice, model.encode(BATCH, weighted.edge_weight**2), atol=1e-5)
    whole = torch.arange(BATCH.num_edges)
    assert torch.allclose(model.encode(changed(edge_weight=whole)), model.encode(BATCH, whole.float()))
    one_line(lambda: model.encode(changed(edge_weight=whole[:, None])), "GIN takes `edge_weight` of shape [E], got [")


# -- trained -----------------------------------------------------------------------------------------------------------


def test_methods_with_wishes_of_their_own_train_an_encoder():
    """InfoGraph needs rows of nodes, SimGRACE copies the encoder, AD-GCL needs edge weights, which only GCN takes."""
    for name, method in [("gat of edges", "infograph"), ("pna", "simgrace"), ("gcn", "ad_gcl")]:
        config = make_config({"method": method})
        model = seeded(lambda: ContrastiveModel(Pooled(NODES[name]())))  # noqa: B023, called at once
        before = [each.clone() for each in model.encoder.parameters()]
        views = build_augmentation(config.views.first), build_augmentation(config.views.second)
        (epoch,) = train(make_method(config, DATASET, model), ResidentLoader(GRAPHS, 6), *views, epochs=1)
        assert epoch.loss == epoch.loss
        assert any(not torch.equal(old, new) for old, new in zip(before, model.encoder.parameters(), strict=True))
    other = ContrastiveModel(Pooled(NODES["pna"]()))
    one_line(lambda: make_method(config, DATASET, other), "Pooled takes no `edge_weight`; use gin")


def test_any_loader_of_whole_graphs():
    for loader in (
        DataLoader(GRAPHS, 6),
        DataLoader(GRAPHS, 6, follow_batch=["x"], exclude_keys=["y"]),
        DataLoader(GRAPHS, batch_sampler=DynamicBatchSampler(GRAPHS, 60)),
        ResidentLoader(GRAPHS, 6),
        [BATCH],
    ):
        model = ContrastiveModel(Pooled(pyg.GCN(3, 8, 2)))
        (epoch,) = train(TwoViews(model, infonce), loader, NodeDrop(0.2), Identity(), epochs=1)
        assert epoch.loss > 0, loader
        assert embed(model, loader)[0].shape == (12, 8), loader
    # an encoder without the argument `parts` takes two passes
    h1, h2 = model.eval().encode_views(BATCH, changed(x=2 * BATCH.x))
    assert torch.equal(h1, model.encode(BATCH))
    assert torch.equal(h2, model.encode(changed(x=2 * BATCH.x)))


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_loader_of_batches_and_labels_is_unpacked():
    pairs = [(graph, float(number)) for number, graph in enumerate(GRAPHS)]
    model = seeded(lambda: ContrastiveModel(GIN(3, 8, 2)))
    method = TwoViews(model, infonce)
    one_line(
        lambda: train(method, DataLoader(pairs, 6), NodeDrop(0.2), Identity(), epochs=1), "got Tensor; of a loader of"
    )
    for loader in (DataLoader(pairs, 6), [*DataLoader(pairs, 6)]):
        (epoch,) = train(
            method, loader, NodeDrop(0.2), Identity(), unpack=lambda item: item[0], schedule="cosine", epochs=1
        )
        assert epoch.loss > 0
        h, y = embed(model, loader, unpack=lambda item: item[0])
        assert torch.equal(h, embed(model, DataLoader(GRAPHS, 6))[0])
        assert y.tolist() == BATCH.y.tolist()


def test_a_loader_of_other_objects_is_rejected():
    part = GRAPHS[0].clone()  # as NeighborLoader samples it, which needs another library
    part.input_id, part.batch_size = torch.arange(2), 2
    model = ContrastiveModel(GIN(3, 8, 2))
    for given, line in [
        (part, "whole graphs, got a part of one graph, as a NeighborLoader samples it; use PyG's DataLoader"),
        (GRAPHS[0], "Batch of whole graphs, got Data; use Batch.from_data_list"),
        (Batch.from_data_list([HeteroData(a={"x": torch.ones(2, 3)})]), "heterogeneous graphs are not sup"),
        (TemporalData(src=torch.arange(2), dst=torch.arange(2)), "whole graphs, got TemporalData"),
        (
            (BATCH, BATCH, BATCH),
            "whole graphs, got tuple; of a loader of (batch, y), pass unpack=lambda item: item[0].",
        ),
        (Batch.from_data_list([Data(edge_index=g.edge_index, num_nodes=9) for g in GRAPHS]), "no node feat"),
    ]:
        one_line(lambda: train(TwoViews(model, infonce), [given], Identity(), Identity(), epochs=1), line)  # noqa: B023
        for use in (lambda: embed(model, [given]), lambda: model(given), lambda: model.encode_nodes(given)):  # noqa: B023
            one_line(use, line)
    assert model.encode(changed(input_id=torch.arange(12))).shape == (12, 16)  # whole graphs may have that attribute


def encoder_of(name, forward, out_channels=3):
    """Return an instance of an encoder class `name` with the given `forward`, a function without `self`."""
    return type(name, (nn.Module,), {"out_channels": out_channels, "forward": staticmethod(forward)})()


NAMED = encoder_of("Named", lambda features, adjacency, batch: pyg.global_add_pool(features, batch))
OF_NODES = encoder_of("OfNodes", lambda x, edge_index: x)
OWN = encoder_of("Own", lambda x, edge_index: x, None)
WITHOUT_EDGES = encoder_of("WithoutEdges", lambda x: x)
PAIR = encoder_of("Pair", lambda x, edge_index, batch=None: (x, x))
WRONG = [
    (lambda: WITHOUT_EDGES, "WithoutEdges.forward takes no `edge_index` and no `batch`; a graph encoder is called"),
    (lambda: OF_NODES, "OfNodes.forward takes no `batch`; a graph", "wrap a node encoder as Pooled(node_encoder)."),
    (lambda: PAIR, "Pair must return a tensor [B, H], one row per graph, got tuple."),
    (lambda: encoder_of("Flat", lambda x, edge_index, batch: x.sum(1)),
     "Flat must return one row per graph, got [", "] for 12 graphs; ", "Pooled(Flat(...)"),
    (lambda: encoder_of("Wide", NAMED.forward, 7), "Wide returns rows of width 3, not 7; pass `out_channels=`."),
    (lambda: nn.Linear, "an encoder must be a torch.nn.Module, got the class Linear; make an instance."),
    (lambda: encoder_of("Sizeless", NAMED.forward, None),
     "Sizeless has no `out_channels`; set it in its __init__, `self.out_channels = 64`, or pass it: "
     "ContrastiveModel(encoder, out_channels=64)."),
    (lambda: Pooled(WITHOUT_EDGES), "WithoutEdges.forward takes no `edge_index`; a graph encoder"),
    (lambda: Pooled(PAIR), "Pair must return a tensor [N, H], one row per node, got tuple."),
    (lambda: Pooled(NAMED), "Named must return one row per node, got [12, 3] for", "row per graph needs no `Pooled"),
    (lambda: Pooled(OWN), "Own has no `out_channels`; pass it, as in Pooled(Own(...), out_channels=64)."),
    (lambda: Pooled(OWN, out_channels=5), "Pooled returns rows of width 3, not 5; pass `out_channels=`."),
    (lambda: Pooled(OF_NODES, "median"), "`readout` must be 'sum', 'mean', 'max' or an Aggregation", "'median'"),
]  # fmt: skip
PROJECTORS = [
    ({"projection": 0}, "`projection` must be at least 1, got 0."),
    ({"projection": 3, "projector": "none"}, "`projection` must be the encoder's width 16 with projector none, got 3."),
    ({"projector": "deep"}, "`projector` must be 'mlp', 'elu', 'linear', 'residual' or 'none', got 'deep'."),
]


def test_encoders_and_projectors_of_a_wrong_form_get_one_line():
    for make, *says in WRONG:
        one_line(lambda: ContrastiveModel(make()).encode(BATCH), *says)  # noqa: B023, called at once
    for options, says in PROJECTORS:
        one_line(lambda: ContrastiveModel(GIN(3, 8, 2), **options), says)  # noqa: B023, called at once
    of_width = ContrastiveModel(GIN(3, 16, 2), out_channels=8)
    one_line(lambda: of_width.project_views(BATCH, BATCH), "GIN returns rows of width 32, not 8; pass `out_channels=`.")
    anything = encoder_of("Anything", lambda *args, **kwargs: pyg.global_add_pool(args[0], kwargs["batch"]))
    for encoder in (anything, NAMED):  # other signatures are accepted
        assert ContrastiveModel(encoder).encode(BATCH).shape == (12, 3)


# -- summaries ---------------------------------------------------------------------------------------------------------


def test_pygs_summary():
    pytest.importorskip("tabulate", reason="PyG's summary needs tabulate")
    for encoder, shown in (
        (GIN(3, 16, 2), ["(encoder)GIN", "(1)BatchNorm1d", "[12, 32]"]),
        (Pooled(pyg.GCN(3, 8, 2)), ["(nodes)GCN", "(readout)SumAgg", "[12, 8]"]),
    ):
        model = ContrastiveModel(encoder)
        text = pyg.summary(model, BATCH)
        assert all(each in text for each in [*shown, f"{sum(each.numel() for each in model.parameters()):,}"]), text
        assert "_messages" not in text
