"""Test Deep Sets against its equation."""

import pytest
import torch

from graphcl.errors import InputError
from graphcl.models.deep_sets import DeepSets


@pytest.mark.parametrize("readout", ["log_sum", "mean", "sum"])
def test_equals_the_equation_and_ignores_edges(readout):
    encoder = DeepSets(3, hidden_channels=5, num_layers=3, readout=readout).double()
    x, batch = torch.randn(6, 3).double(), torch.tensor([0, 0, 0, 2, 2, 2])
    first, second, third = (module for module in encoder.mlp if isinstance(module, torch.nn.Linear))
    for graph, row in enumerate(encoder(x, torch.tensor([[0, 3], [1, 4]]), batch)):
        bag = getattr(x[batch == graph], readout.removeprefix("log_"))(dim=0)
        bag = bag.sign() * (1 + bag.abs()).log() if readout == "log_sum" else bag
        h = third(second(first(bag).relu()).relu()) if graph != 1 else torch.zeros(5).double()
        torch.testing.assert_close(row, h)
    assert torch.equal(encoder(x, torch.tensor([[], []]).long(), batch), encoder(x, torch.tensor([[0], [5]]), batch))


def test_another_width_is_refused():
    with pytest.raises(InputError, match=r"^DeepSets takes `x` of shape \[N, 3\], got \[2, 4\]\.$"):
        DeepSets(3)(torch.randn(2, 4), torch.zeros(2, 0).long())
