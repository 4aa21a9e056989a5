"""Test PyG's explainers on this package's encoders: masks act as on PyG's own layers."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity

from graphcl import GIN, GINE
from tests.conftest import small_graphs
from tests.models.test_gin import Reference

GRAPHS = small_graphs(6, edge_attr=True)
BATCH = Batch.from_data_list(GRAPHS)


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.out_channels, 2)

    def forward(self, x, edge_index, batch=None, edge_attr=None):  # captum passes arguments by position
        more = {} if edge_attr is None else {"edge_attr": edge_attr}
        return self.head(self.encoder(x, edge_index, batch=batch, **more))


@pytest.fixture(params=["gin", "gine"])
def models(request):
    """Return our model, PyG's model with the same weights, and the edge attributes that both models need, if any."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = Classifier(GIN(3, 16, 2) if request.param == "gin" else GINE(3, 2, 16, 2)).eval()
        pygs = Classifier(Reference(ours.encoder)).eval()
        pygs.head = ours.head
    return ours, pygs, {} if request.param == "gin" else {"edge_attr": BATCH.edge_attr}


def explainer(model, algorithm):
    config = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
    masks = {"node_mask_type": "attributes", "edge_mask_type": "object"}
    return Explainer(model, algorithm, explanation_type="model", model_config=config, **masks)


def test_gnn_explainer_masks_equal_those_for_pygs_layers(models):
    *both, more = models
    before, found = both[0](BATCH.x, BATCH.edge_index, BATCH.batch, **more), []
    for model in both:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            explain = explainer(model, GNNExplainer(epochs=10))
            found.append(explain(BATCH.x, BATCH.edge_index, batch=BATCH.batch, **more))
    ours, pygs = found
    assert ours.edge_mask.shape == (BATCH.num_edges,)
    assert ours.node_mask.shape == BATCH.x.shape
    assert ours.edge_mask.std() > 0.01
    mask = torch.rand(BATCH.num_edges, generator=torch.Generator().manual_seed(0))
    masked = [
        explainer(model, GNNExplainer()).get_masked_prediction(
            BATCH.x, BATCH.edge_index, edge_mask=mask, batch=BATCH.batch, **more
        )
        for model in both
    ]
    torch.testing.assert_close(*masked, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(masked[0], before, atol=1e-2)
    torch.testing.assert_close(ours.edge_mask, pygs.edge_mask, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours.node_mask, pygs.node_mask, rtol=1e-3, atol=1e-4)
    assert all(0 <= each <= 1 for each in fidelity(explainer(both[0], GNNExplainer()), ours))
    # The explainer has removed its masks, so the compiled layers run again.
    assert torch.equal(both[0](BATCH.x, BATCH.edge_index, BATCH.batch, **more), before)
    assert set(both[0].state_dict()) == {*both[0].encoder.state_dict(prefix="encoder."), "head.weight", "head.bias"}


def test_a_graph_by_itself_and_a_mask_of_edges_that_its_nodes_use():
    """Only one node has non-zero features, so only its outgoing edges may have a positive mask."""
    graph = GRAPHS[0]
    model = Classifier(GIN(3, 16, 1)).eval()
    x = torch.zeros_like(graph.x)
    x[graph.edge_index[0, 0]] = 1
    explanation = explainer(model, GNNExplainer(epochs=5))(x, graph.edge_index)
    sends = graph.edge_index[0] == graph.edge_index[0, 0]
    assert (explanation.edge_mask[sends] > 0).all()
    assert (explanation.edge_mask[~sends] == 0).all()


def test_captums_gradients(models):
    pytest.importorskip("captum", reason="PyG's CaptumExplainer needs captum")
    model, _, more = models
    found = explainer(model, CaptumExplainer("Saliency"))(BATCH.x, BATCH.edge_index, batch=BATCH.batch, **more)
    assert found.edge_mask.abs().sum() > 0
    assert found.node_mask.shape == BATCH.x.shape
