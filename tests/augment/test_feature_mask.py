"""Test masking of feature columns: whole columns, drawn for each graph, and messages."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.augment import FeatureMask, apply
from graphcl.errors import InputError
from tests.strategies import make_batch, path, seeded, typical_batch

PATH = torch.tensor([[0, 1], [1, 0]])


def test_a_graph_loses_whole_columns():
    batch = Batch.from_data_list([Data(x=torch.rand(4, 50) + 1, edge_index=PATH) for _ in range(20)])
    view = FeatureMask(0.3)(batch, seeded(0))
    masks = []
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        mask = after.x[0] != 0
        assert torch.equal(after.x, before.x * mask)
        masks.append(mask)
    masks = torch.stack(masks).float()
    assert masks.mean().item() == pytest.approx(0.7, abs=0.08)
    assert (masks != masks[0]).any(), "all graphs lose the same columns"


def test_edges_and_nodes_stay():
    batch = make_batch((5, path(5)), (3, path(3)))
    view = FeatureMask(0.9)(batch, seeded(0))
    assert torch.equal(view.edge_index, batch.edge_index)
    assert torch.equal(view.node_id, batch.node_id)


def test_categories_are_refused():
    graph = Data(x=torch.tensor([[1], [2]]), edge_index=PATH)
    with pytest.raises(InputError, match=r"^feature_mask needs floating-point node features `x`, got torch\.int64"):
        FeatureMask()(graph)


def test_only_the_given_graphs_are_masked():
    batch = typical_batch()
    given = torch.arange(batch.num_graphs) % 2 == 0
    decision = FeatureMask(0.9).decide(batch, seeded(0), graphs=given)
    assert torch.equal(decision.masked, given[batch.batch].nonzero().flatten())
    view = apply(batch, decision)
    others = ~given[batch.batch]
    assert torch.equal(view.x[others], batch.x[others])
