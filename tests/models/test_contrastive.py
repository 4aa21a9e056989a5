"""Test the encoding of two views in one pass, and the width of the projector."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.models import contrastive as module
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE
from tests.datasets.graphs import one_line
from tests.strategies import seeded


def views():
    generator = seeded(0)

    def graph(n):
        x, attr = (torch.randn(rows, 4, dtype=torch.float64, generator=generator) for rows in (n, 2 * n))
        return Data(x=x, edge_index=torch.randint(n, (2, 2 * n), generator=generator), edge_attr=attr)

    return [Batch.from_data_list([graph(n) for n in sizes]) for sizes in ([5, 3, 7], [4, 3, 1])]


def outcome_of(encoder, monkeypatch, one_pass, training):
    monkeypatch.setattr(module, "ONE_PASS", 10**9 if one_pass else 0)
    monkeypatch.setattr(GIN, "one_pass", True)
    torch.manual_seed(0)
    model = ContrastiveModel(encoder()).double().train(training)
    passes = []
    model.encoder.register_forward_pre_hook(lambda *_: passes.append(1))
    view1, view2 = views()
    h1, h2 = model.encode_views(view1, view2)
    assert torch.equal(view2.edge_index, views()[1].edge_index)  # the views stay as they are
    (h1.square().sum() + h2.sin().sum()).backward()
    grads = [each.grad for each in model.encoder.parameters()]
    return len(passes), [h1, h2, *grads, *model.encoder.buffers()]


@pytest.mark.parametrize("encoder", [lambda: GIN(4, 8, 2), lambda: GINE(4, 4, 8, 2)], ids=["gin", "gine"])
def test_two_views_in_one_pass_are_two_passes(encoder, monkeypatch):
    """Compare embeddings, gradients and BatchNorm's running statistics, which are updated by view 1 first."""
    for training in (True, False):
        passes, ours = outcome_of(encoder, monkeypatch, True, training)
        two, reference = outcome_of(encoder, monkeypatch, False, training)
        assert (passes, two) == (1, 2)
        for got, expected in zip(ours, reference, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


def test_an_encoder_without_parts_takes_two_passes():
    class Mean(torch.nn.Module):
        out_channels = 4

        def forward(self, x, edge_index, batch):
            return torch.zeros(3, 4, dtype=x.dtype).index_add(0, batch, x)

    (view1, view2), model = views(), ContrastiveModel(Mean())
    h1, h2 = model.encode_views(view1, view2)
    assert torch.equal(h1, model.encode(view1))
    assert torch.equal(h2, model.encode(view2))


def test_invalid_projectors_are_rejected():
    for options, says in [
        ({"projection": 0}, "`projection` must be at least 1, got 0."),
        (
            {"projection": 3, "projector": "none"},
            "`projection` must be the encoder's width 96 with projector none, got 3.",
        ),
        ({"projector": "deep"}, "`projector` must be 'mlp', 'elu', 'linear', 'residual' or 'none', got 'deep'."),
    ]:
        one_line(lambda: ContrastiveModel(GIN(3), **options), says)  # noqa: B023, called at once
