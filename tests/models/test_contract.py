"""Tests that every registered encoder must pass: rows of graphs, order of nodes and edges, independence of graphs."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch

from graphcl.models import contrastive
from graphcl.models.gin import GIN
from graphcl.models.interface import accepts, make_encoder, takes_categories
from graphcl.registry import encoders
from tests.conftest import restored
from tests.extensions.molecules.test_encoder import molecules

DENSE = [name for name in sorted(encoders) if encoders.fact(name, "form") == "dense"]
"""Encoders that return a dense matrix."""


def columns(name, batch):
    """Return a batch with the columns that an encoder takes, and their numbers."""
    if name == "molecule_gin":
        batch.x, batch.edge_attr = (
            batch.x[:, :2] % torch.tensor([119, 3]),
            batch.edge_attr[:, :2] % torch.tensor([4, 3]),
        )
        return batch, (2, 2)
    if not takes_categories(name):
        batch.x, batch.edge_attr = batch.x.double(), batch.edge_attr.double()
    return batch, (9, 3)


def call(encoder, graph, size=None):
    attr = {"edge_attr": graph.edge_attr} if accepts(encoder, "edge_attr") else {}
    return encoder(graph.x, graph.edge_index, graph.batch, size=size, **attr)


@pytest.mark.parametrize("name", DENSE)
def test_an_encoder(name):
    batch, widths = columns(name, Batch.from_data_list(molecules()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(name, {"hidden_channels": 16}, *widths).double().eval()
    rows, sparse = call(encoder, batch), batch.clone()
    # zeros for empty graphs, at the ends and between
    sparse.batch = 2 * batch.batch + 1
    h = call(encoder, sparse, 2 * batch.num_graphs + 3)
    assert h.shape == (2 * batch.num_graphs + 3, encoder.out_channels)
    assert (h[::2] == 0).all()
    torch.testing.assert_close(h[1:-2:2], rows)
    # the order of nodes and edges does not matter
    nodes, edges, moved = torch.randperm(batch.num_nodes), torch.randperm(batch.num_edges), batch.clone()
    moved.x, moved.batch, moved.edge_attr = batch.x[nodes], batch.batch[nodes], batch.edge_attr[edges]  # unsorted
    moved.edge_index = nodes.argsort()[batch.edge_index[:, edges]]
    torch.testing.assert_close(call(encoder, moved, batch.num_graphs), rows)
    # in evaluation mode, other graphs in the batch change nothing
    for graph, row in zip(batch.to_data_list(), rows, strict=True):
        graph.batch = None
        torch.testing.assert_close(call(encoder, graph)[0], row)


def test_the_encoder_of_the_guide_passes():
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    (code,) = re.findall(r"```python\n(from torch import nn\n.*?)\n\nmodel = ", page, re.S)
    with restored(encoders):
        exec(code, {})
        test_an_encoder("mean_gcn")


@pytest.mark.parametrize("name", DENSE)
def test_two_views_in_one_pass_are_two_passes(name, monkeypatch):
    """Compare embeddings, gradients and BatchNorm's running statistics, which are updated by view 1 first."""
    monkeypatch.setattr(GIN, "one_pass", True)
    graphs = molecules(6), molecules(8)[2:]
    (view1, widths), (view2, _) = (columns(name, Batch.from_data_list(some)) for some in graphs)
    outcomes = []
    for limit, training in itertools.product((10**9, 0), (True, False)):
        monkeypatch.setattr(contrastive, "ONE_PASS", limit)
        torch.manual_seed(0)
        encoder, passes = make_encoder(name, {"hidden_channels": 8, "num_layers": 2}, *widths), []
        model = contrastive.ContrastiveModel(encoder).double().train(training)
        encoder.register_forward_pre_hook(lambda *_: passes.append(1))  # noqa: B023, called in this step
        h1, h2 = model.encode_views(view1, view2)
        assert len(passes) == (1 if limit and accepts(encoder, "parts") else 2)
        (h1.square().sum() + h2.sin().sum()).backward()
        outcomes.append([h1, h2, *(each.grad for each in encoder.parameters()), *encoder.buffers()])
    for one, two in zip(outcomes[:2], outcomes[2:], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10)
