"""Test the model of encoder and projector, and the encoding of two views in one pass."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.models import contrastive as module
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN, GINE


def views():
    generator = torch.Generator().manual_seed(0)

    def graph(n):
        edges = torch.randint(n, (2, 2 * n), generator=generator)
        return Data(
            x=torch.randn(n, 4, dtype=torch.float64, generator=generator),
            edge_index=edges,
            edge_attr=torch.randn(2 * n, 2, dtype=torch.float64, generator=generator),
        )

    return [Batch.from_data_list([graph(n) for n in sizes]) for sizes in ([5, 3, 7], [4, 3, 1])]


def outcome_of(encoder, monkeypatch, one_pass, training=True):
    monkeypatch.setattr(module, "ONE_PASS", 10**9 if one_pass else 0)
    monkeypatch.setattr(GIN, "one_pass", True)
    torch.manual_seed(0)
    model = ContrastiveModel(encoder()).double().train(training)
    passes = []
    model.encoder.register_forward_pre_hook(lambda *_: passes.append(1))
    h1, h2 = model.encode_views(*views())
    (h1.square().sum() + h2.sin().sum()).backward()
    grads = [each.grad for each in model.encoder.parameters()]
    return len(passes), [h1, h2, *grads, *model.encoder.buffers()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("encoder", [lambda: GIN(4, 8, 2), lambda: GINE(4, 2, 8, 2)], ids=["gin", "gine"])
def test_two_views_in_one_pass_are_two_passes(encoder, training, monkeypatch):
    """Compare embeddings, gradients and BatchNorm's running statistics, which are updated by view 1 first."""
    passes, ours = outcome_of(encoder, monkeypatch, True, training)
    two, reference = outcome_of(encoder, monkeypatch, False, training)
    assert (passes, two) == (1, 2)
    for got, expected in zip(ours, reference, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


def test_an_encoder_without_parts_takes_two_passes(monkeypatch):
    class Mean(torch.nn.Module):
        out_channels = 4

        def forward(self, x, edge_index, batch):
            return torch.zeros(3, 4, dtype=x.dtype).index_add(0, batch, x)

    monkeypatch.setattr(module, "ONE_PASS", 10**9)
    view1, view2 = views()
    model = ContrastiveModel(Mean())
    h1, h2 = model.encode_views(view1, view2)
    assert torch.equal(h1, model.encode(view1))
    assert torch.equal(h2, model.encode(view2))


def test_the_views_stay_as_they_are():
    view1, view2 = views()
    before = [view2.edge_index.clone(), view2.batch.clone()]
    ContrastiveModel(GIN(4, 8, 2)).double().encode_views(view1, view2)
    assert torch.equal(view2.edge_index, before[0])
    assert torch.equal(view2.batch, before[1])


@pytest.mark.parametrize("width", [0, -1])
def test_a_projection_of_no_width_is_rejected(width):
    with pytest.raises(InputError, match=rf"^`projection` must be at least 1, got {width}\.$"):
        ContrastiveModel(GIN(3), projection=width)
