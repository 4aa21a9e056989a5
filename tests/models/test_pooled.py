"""Test `Pooled` with PyG's models and custom modules: outputs, training by every method, error messages."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.loader import DataLoader, DynamicBatchSampler

from graphcl import GIN, ContrastiveModel, Identity, NodeDrop, Pooled, ResidentLoader, embed, train
from graphcl.config import build_augmentation, make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError, InputTypeError
from graphcl.experiment.build import make_method
from graphcl.losses import infonce
from graphcl.methods import TwoViews
from tests.conftest import small_graphs
from tests.methods.small import OF_GRAPHS, spec

GRAPHS = small_graphs(12, edge_attr=True)
DATASET = load_dataset(GRAPHS)
BATCH = Batch.from_data_list(GRAPHS)
DEGREES = torch.tensor([0, 10, 10, 5, 5, 3, 2])


class GPS(nn.Module):
    """Custom node encoder that combines attention over each graph with message passing."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.out_channels = out_channels
        self.first = nn.Linear(in_channels, out_channels)
        mlp = nn.Sequential(nn.Linear(out_channels, out_channels), nn.ReLU())
        self.layers = nn.ModuleList([pyg.GPSConv(out_channels, pyg.GINConv(mlp), heads=2)])

    def forward(self, x, edge_index, batch):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        return x


class Own(nn.Module):
    """Minimal custom node encoder."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.map = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.map(x)


NODES = {
    "gcn": lambda: pyg.GCN(3, 8, 2),
    "gin": lambda: pyg.GIN(3, 8, 2),
    "gat": lambda: pyg.GAT(3, 8, 2, edge_dim=2),
    "sage": lambda: pyg.GraphSAGE(3, 8, 2, norm="graph_norm"),
    "pna": lambda: pyg.PNA(3, 8, 2, aggregators=["sum", "max"], scalers=["identity", "linear"], deg=DEGREES),
    "gps": lambda: GPS(3, 8),
}
each_encoder = pytest.mark.parametrize("name", NODES)


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


# -- what it computes --------------------------------------------------------------------------------------------------


@each_encoder
@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
def test_it_is_the_readout_of_each_graph_by_itself(name, readout):
    encoder = seeded(lambda: Pooled(NODES[name](), readout)).eval()
    h, rows = encoder.with_nodes(
        BATCH.x, BATCH.edge_index, BATCH.batch, size=BATCH.num_graphs, edge_attr=BATCH.edge_attr
    )
    assert h.shape == (12, encoder.out_channels)
    assert torch.equal(
        h, encoder(BATCH.x, BATCH.edge_index, BATCH.batch, size=BATCH.num_graphs, edge_attr=BATCH.edge_attr)
    )
    pool = {"sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "max": lambda x: x.max(0).values}[readout]
    for graph, found, part in zip(GRAPHS, h, rows.split(BATCH.ptr.diff().tolist()), strict=True):
        assert torch.allclose(found, pool(part), atol=1e-5)
        alone = encoder(graph.x, graph.edge_index, edge_attr=graph.edge_attr)
        assert torch.allclose(alone[0], found, atol=1e-5)


def test_any_aggregation_of_pyg():
    encoder = Pooled(pyg.GCN(3, 8, 2), pyg.Set2Set(8, processing_steps=2), out_channels=16)
    assert ContrastiveModel(encoder).encode(BATCH).shape == (12, 16)


def differs(encoder, **more):
    """Return True if updating the batch with the attributes `more` changes the embeddings."""
    model = seeded(lambda: ContrastiveModel(encoder())).eval()
    other = BATCH.clone()
    other.update(more)
    return not torch.allclose(model.encode(BATCH), model.encode(other))


@pytest.mark.parametrize(
    ("nodes", "attributes", "weights"),
    [
        pytest.param(lambda: pyg.GCN(3, 8, 2), False, True, id="gcn"),
        pytest.param(lambda: pyg.GIN(3, 8, 2), False, False, id="gin"),
        pytest.param(lambda: pyg.GAT(3, 8, 2), False, False, id="gat"),
        pytest.param(lambda: pyg.GAT(3, 8, 2, edge_dim=2), True, False, id="gat with edge_dim"),
        pytest.param(NODES["pna"], False, False, id="pna"),
        pytest.param(lambda: Own(3, 8), False, False, id="own"),
    ],
)
def test_attributes_and_weights_go_where_they_are_taken(nodes, attributes, weights):
    def encoder():
        return Pooled(nodes(), out_channels=8)

    assert differs(encoder, edge_attr=torch.rand(BATCH.num_edges, 2) * 9) == attributes
    assert differs(encoder, edge_weight=torch.rand(BATCH.num_edges)) == weights


def test_gins_own_edge_weights_come_from_the_batch_in_all_its_passes(monkeypatch):
    monkeypatch.setattr("graphcl.models.contrastive.ONE_PASS", 10**9)
    monkeypatch.setattr(GIN, "one_pass", True)
    weighted = BATCH.clone()
    weighted.edge_weight = torch.rand(BATCH.num_edges)
    model = seeded(lambda: ContrastiveModel(GIN(3, 8, 2))).eval()
    h = model.encode(weighted)
    assert not torch.allclose(h, model.encode(BATCH))
    for found in (*model.encode_views(weighted, weighted), model.encode_nodes(weighted)[0]):
        assert torch.allclose(found, h, atol=1e-5)
    assert torch.allclose(model.encode(BATCH, weighted.edge_weight), h)
    twice = model.encode(weighted, weighted.edge_weight)
    assert torch.allclose(twice, model.encode(BATCH, weighted.edge_weight**2), atol=1e-5)


@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_edge_weights_of_any_kind(kind):
    weighted = BATCH.clone()
    weighted.edge_weight = torch.arange(BATCH.num_edges).to(kind)
    model = seeded(lambda: ContrastiveModel(GIN(3, 8, 2))).eval()
    expected = model.encode(BATCH, weighted.edge_weight.float())
    assert torch.allclose(model.encode(weighted), expected)
    weighted.edge_weight = weighted.edge_weight[:, None]
    with pytest.raises(InputError, match=r"^GIN takes `edge_weight` of shape \[E\], got \[\d+, 1\]\.$"):
        model.encode(weighted)


# -- trained -----------------------------------------------------------------------------------------------------------


@each_encoder
@pytest.mark.parametrize("method", OF_GRAPHS)
def test_every_method_trains_every_encoder(name, method):
    """Train one epoch; the encoder's weights must change. Only GCN accepts the edge weights that AD-GCL needs."""
    config = make_config(
        {"method": spec(method, len(GRAPHS)), **({"views": {"second": "random4"}} if method.startswith("joao") else {})}
    )
    model = seeded(lambda: ContrastiveModel(Pooled(NODES[name]())))
    if method == "ad_gcl" and name != "gcn":
        with pytest.raises(InputError, match=r"^Pooled takes no `edge_weight`; use gin"):
            make_method(config, DATASET, model)
        return
    method = make_method(config, DATASET, model)
    views = build_augmentation(config.views.first), build_augmentation(config.views.second)
    before = [each.clone() for each in model.encoder.parameters()]
    (epoch,) = train(method, ResidentLoader(GRAPHS, 6), *views, epochs=1)
    assert epoch.loss == epoch.loss
    assert any(not torch.equal(old, new) for old, new in zip(before, model.encoder.parameters(), strict=True))
    assert embed(model, ResidentLoader(GRAPHS, 5))[0].shape == (12, 8)


@pytest.mark.parametrize(
    "loader",
    [
        pytest.param(lambda: DataLoader(GRAPHS, 6), id="DataLoader"),
        pytest.param(lambda: DataLoader(GRAPHS, 6, follow_batch=["x"], exclude_keys=["y"]), id="follow_batch"),
        pytest.param(
            lambda: DataLoader(GRAPHS, batch_sampler=DynamicBatchSampler(GRAPHS, 60)), id="DynamicBatchSampler"
        ),
        pytest.param(lambda: ResidentLoader(GRAPHS, 6), id="ResidentLoader"),
        pytest.param(lambda: [BATCH], id="list"),
    ],
)
def test_any_loader_of_whole_graphs(loader):
    model = ContrastiveModel(Pooled(pyg.GCN(3, 8, 2)))
    (epoch,) = train(TwoViews(model, infonce), loader(), NodeDrop(0.2), Identity(), epochs=1)
    assert epoch.loss > 0
    assert embed(model, loader())[0].shape == (12, 8)


# -- messages ----------------------------------------------------------------------------------------------------------


def sampled():
    """Return a subgraph as NeighborLoader samples it; NeighborLoader itself needs another library."""
    part = GRAPHS[0].clone()
    part.input_id, part.batch_size = torch.arange(2), 2
    return part


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (sampled, r"whole graphs, got a part of one graph, as a NeighborLoader samples it; use PyG's DataLoader"),
        (lambda: GRAPHS[0], r"expected a .*Batch of whole graphs, got Data; use Batch\.from_data_list"),
        (lambda: Batch.from_data_list([HeteroData(a={"x": torch.ones(2, 3)})]), "heterogeneous graphs are not sup"),
        (lambda: TemporalData(src=torch.arange(2), dst=torch.arange(2)), "whole graphs, got TemporalData"),
        (lambda: (BATCH, BATCH), "whole graphs, got tuple"),
        (lambda: Batch.from_data_list([Data(edge_index=g.edge_index, num_nodes=9) for g in GRAPHS]), "no node feat"),
    ],
    ids=["neighbours", "graph", "hetero", "temporal", "pair", "no features"],
)
def test_a_loader_of_other_objects_is_rejected(given, line):
    model = ContrastiveModel(GIN(3, 8, 2))
    for use in (
        lambda: train(TwoViews(model, infonce), [given()], Identity(), Identity(), epochs=1),
        lambda: embed(model, [given()]),
        lambda: model(given()),
        lambda: model.encode_nodes(given()),
    ):
        with pytest.raises(InputError, match=line) as caught:
            use()
        assert "\n" not in str(caught.value)


def test_graphs_may_have_an_attribute_of_that_name():
    graphs = [graph.clone() for graph in GRAPHS]
    for number, graph in enumerate(graphs):
        graph.input_id = torch.tensor([number])
    assert ContrastiveModel(GIN(3, 8, 2)).encode(Batch.from_data_list(graphs)).shape == (12, 16)


class Encoder(nn.Module):
    """Base class of encoders that each break one requirement."""

    out_channels = 3

    def forward(self, x, edge_index, batch):
        return pyg.global_add_pool(x, batch)


class WithoutEdges(Encoder):
    def forward(self, x):
        return x


class OfNodes(Encoder):
    def forward(self, x, edge_index):
        return x


class Pair(Encoder):
    def forward(self, x, edge_index, batch=None):
        return x, x


class Flat(Encoder):
    def forward(self, x, edge_index, batch=None):
        return x.sum(1)


class Wide(Encoder):
    out_channels = 7


@pytest.mark.parametrize(
    ("encoder", "line"),
    [
        (WithoutEdges, r"^WithoutEdges\.forward takes no `edge_index` and no `batch`; a graph encoder is called"),
        (OfNodes, r"^OfNodes\.forward takes no `batch`; .*wrap a node encoder as Pooled\(node_encoder\)\.$"),
        (Pair, r"^Pair must return a tensor \[B, H\], one row per graph, got tuple\.$"),
        (
            Flat,
            r"^Flat must return one row per graph, got \[\d+\] for 12 graphs; .*Pooled\(Flat\(\.\.\.\)",
        ),
        (Wide, r"^Wide returns rows of width 3, not 7; pass `out_channels=`\.$"),
        (lambda: Encoder, r"^an encoder must be a torch\.nn\.Module, got the class Encoder; make an instance\.$"),
        (lambda: Pooled(WithoutEdges()), r"^WithoutEdges\.forward takes no `edge_index`; a graph encoder"),
        (lambda: Pooled(Pair()), r"^Pair must return a tensor \[N, H\], one row per node, got tuple\.$"),
        (
            lambda: Pooled(Encoder()),
            r"^Encoder must return one row per node, got \[12, 3\] for \d+ nodes; .*row per graph needs no `Pooled",
        ),
        (
            lambda: Pooled(Own(3, 8)),
            r"^Own has no `out_channels`; pass it, as in Pooled\(Own\(\.\.\.\), out_channels=64\)\.$",
        ),
        (lambda: Pooled(Own(3, 8), out_channels=5), r"^Pooled returns rows of width 8, not 5; pass `out_channels=`\.$"),
        (lambda: Pooled(OfNodes(), "median"), r"^`readout` must be 'sum', 'mean', 'max' or an Aggregation .*'median'"),
    ],
)
def test_an_encoder_of_a_wrong_form_gets_one_line(encoder, line):
    with pytest.raises(InputError, match=line):
        ContrastiveModel(encoder()).encode(BATCH)


def test_a_forward_with_keyword_arguments_is_accepted():
    class Anything(Encoder):
        def forward(self, *args, **kwargs):
            return pyg.global_add_pool(args[0], kwargs["batch"])

    assert ContrastiveModel(Anything()).encode(BATCH).shape == (12, 3)
    with pytest.raises(InputTypeError):
        ContrastiveModel(OfNodes())


def test_edges_may_have_another_name():
    class Named(Encoder):
        def forward(self, features, adjacency, batch):
            return pyg.global_add_pool(features, batch)

    assert ContrastiveModel(Named()).encode(BATCH).shape == (12, 3)


# -- summaries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("model", "given", "shown"),
    [
        (lambda: ContrastiveModel(GIN(3, 16, 2)), (BATCH,), ["(encoder)GIN", "(1)BatchNorm1d", "[12, 32]"]),
        (lambda: ContrastiveModel(Pooled(pyg.GCN(3, 8, 2))), (BATCH,), ["(nodes)GCN", "(readout)SumAgg", "[12, 8]"]),
        (lambda: GIN(3, 16, 2), (BATCH.x, BATCH.edge_index, BATCH.batch), ["(0)BatchNorm1d", "[12, 32]"]),
    ],
    ids=["model", "pooled", "gin"],
)
def test_pygs_summary(model, given, shown, training):
    pytest.importorskip("tabulate", reason="PyG's summary needs tabulate")
    model = model().train(training)
    before = [each.clone() for each in model.state_dict().values()]
    text = pyg.summary(model, *given)
    assert all(each in text for each in shown), text
    assert "_messages" not in text
    assert f"{sum(each.numel() for each in model.parameters()):,}" in text
    assert model.training == training
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
