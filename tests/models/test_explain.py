"""Test PyG's explainers on this package's encoders: masks act as on PyG's own layers."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.nn import GINConv, GINEConv, global_add_pool

from graphcl import GIN, GINE
from tests.conftest import small_graphs

BATCH = Batch.from_data_list(small_graphs(6, edge_attr=True))


class Reference(nn.Module):
    """GIN or GINE with the sum readout, made of PyG's layers with the weights of `encoder`."""

    def __init__(self, encoder):
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(each.nn) if each.lin is None else GINEConv(each.nn, edge_dim=each.lin.weight.size(1))
            for each in encoder.convs
        )
        for layer, each in zip(self.convs, encoder.convs, strict=True):
            layer.load_state_dict(each.state_dict(), strict=False)  # the parameters are named as in PyG
        self.norms, self.out_channels = encoder.norms, encoder.out_channels

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        pools, attributes = [], () if edge_attr is None else (edge_attr,)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index, *attributes).relu())
            pools.append(global_add_pool(x, batch))
        return torch.cat(pools, dim=1)


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
    before, pyg = (model(BATCH.x, BATCH.edge_index, BATCH.batch, **more) for model in both)
    torch.testing.assert_close(before, pyg, rtol=1e-4, atol=1e-4)
    found = []
    for model in both:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            explain = explainer(model, GNNExplainer(epochs=10))
            found.append(explain(BATCH.x, BATCH.edge_index, batch=BATCH.batch, **more))
    ours, pygs = found
    assert ours.edge_mask.shape == (BATCH.num_edges,)
    assert ours.edge_mask.std() > 0.01
    torch.testing.assert_close(ours.edge_mask, pygs.edge_mask, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours.node_mask, pygs.node_mask, rtol=1e-3, atol=1e-4)
    # The explainer has removed its masks, so the compiled layers run again.
    assert torch.equal(both[0](BATCH.x, BATCH.edge_index, BATCH.batch, **more), before)


def test_captums_gradients(models):
    pytest.importorskip("captum", reason="PyG's CaptumExplainer needs captum")
    model, _, more = models
    found = explainer(model, CaptumExplainer("Saliency"))(BATCH.x, BATCH.edge_index, batch=BATCH.batch, **more)
    assert found.edge_mask.abs().sum() > 0
