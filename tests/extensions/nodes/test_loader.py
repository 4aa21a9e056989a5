"""Test the loader of sampled neighbours. Most tests need pyg-lib or torch-sparse, which PyG's loader calls."""

import pytest
import torch
import torch_geometric.typing

from graphcl.datasets import load_dataset
from graphcl.extensions.nodes.models import NodeModel, node_gcn
from graphcl.extensions.nodes.task import NeighbourLoader
from graphcl.loaders.resident import ResidentLoader
from graphcl.training.loop import embed
from tests.datasets.graphs import one_line
from tests.methods.small import seeded

COMPILED = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
pytestmark = pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
compiled = pytest.mark.skipif(not COMPILED, reason="neither pyg-lib nor torch-sparse is installed")


@pytest.fixture
def dataset():
    """Return a graph of 400 nodes whose first feature is the number of the node."""
    found = load_dataset("sbm-400", nodes=True)
    found._data.x = torch.cat([torch.arange(400.0)[:, None], found._data.x], dim=1)
    return found


@compiled
def test_a_batch_is_a_part_of_the_graph(dataset):
    edges = {tuple(pair) for pair in dataset[0].edge_index.t().tolist()}
    loader, drawn = NeighbourLoader(dataset, [4, 2], 64, seeded(0)), []
    for number, batch in enumerate(loader):
        nodes, seeds = batch.x[:, 0].long(), loader.batch_sampler.current[number]
        assert nodes[: batch.num_seeds].tolist() == seeds.tolist()
        assert torch.equal(batch.y, dataset.y[nodes])
        found = [tuple(pair) for pair in nodes[batch.edge_index].t().tolist()]
        assert len(found) == len(set(found))
        assert set(found) <= edges
        into = batch.edge_index[1].bincount(minlength=len(nodes))
        assert into[: batch.num_seeds].max() == 4
        assert into.max() == 4
        drawn += seeds.tolist()
    assert len(loader) == 7
    assert sorted(drawn) == [*range(400)]
    first = []
    for seed in (3, 3, 4):  # the global generator draws the neighbours
        torch.manual_seed(seed)
        first.append(next(iter(NeighbourLoader(dataset, [3, 3], 32, seeded(2)))).x)
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])


@compiled
def test_with_all_neighbours_the_rows_are_those_of_the_whole_graph(dataset):
    """The normalised adjacency of two layers needs the degrees of nodes at distance 2, hence three hops."""
    model = NodeModel(node_gcn(dataset.num_features, hidden_channels=8, out_channels=4)).double().eval()
    dataset._data.x = dataset._data.x.double()
    loader = NeighbourLoader(dataset, [400] * 3, 50, seeded(1))
    nodes = torch.arange(50)
    with torch.no_grad():
        rows = model.encode(loader.batch(nodes))
    assert rows.shape == (50, 4)
    whole, _ = embed(model, ResidentLoader(dataset, 1))
    torch.testing.assert_close(rows.float(), whole[:50], rtol=1e-5, atol=1e-6)


def test_without_the_compiled_parts_the_message_names_them(dataset, monkeypatch):
    for name in ("WITH_PYG_LIB", "WITH_TORCH_SPARSE"):
        monkeypatch.setattr(torch_geometric.typing, name, False)
    one_line(lambda: NeighbourLoader(dataset, [3, 3], 32), "`neighbours` needs pyg-lib or torch-sparse")
