"""Test the model of two kinds of graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl import GIN, GINE, ListedPairs, Loss, ResidentLoader, TwoViews, embed, load_dataset, train
from graphcl.datasets.pair_file import make_relation
from graphcl.evaluate import rank_queries
from graphcl.models.batchnorm import calibrate
from graphcl.models.wrapper import Tower, TwoTowers

pytestmark = pytest.mark.filterwarnings("ignore:graph 0 of own has edges in one direction only")  # expected


def measured_twice(count=160):
    """Return graphs that hold a number in one column, and graphs that hold it in three other columns."""
    draw = torch.Generator().manual_seed(0)
    value = torch.rand(count, 2, generator=draw)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    one = [Data(x=torch.cat([each, each * 0]).view(-1, 1)[:3] + 0.1, edge_index=ring) for each in value]
    two = [Data(x=torch.cat([1 - each, each]).view(1, 4)[:, :3].repeat(2, 1), edge_index=ring[:, :0]) for each in value]
    return load_dataset(one), load_dataset(two)


def test_two_encoders_learn_one_space_of_graphs_with_other_columns():
    queries, targets = measured_twice()
    relation = make_relation([(i, i, (i + 1) % 100) for i in range(100)], range(160), range(160))
    torch.manual_seed(0)
    model = TwoTowers(Tower(GIN(1, 16, 2), 8), Tower(GIN(3, 16, 2), 8))
    sampler = ListedPairs(relation, 20, True, torch.Generator().manual_seed(0))
    loader = ResidentLoader(queries, batch_sampler=sampler, targets=targets)

    def recall():
        held = []
        for role, data in (("query", queries), ("target", targets)):
            # running statistics of batches of 20 leave recalls between 12 and 100, by seed
            tower = calibrate(model.role(role), ResidentLoader(data[:100], 100))
            held.append(embed(tower, ResidentLoader(data[100:], 60))[0])
        groups = torch.arange(60).repeat(2)
        asked = rank_queries(torch.cat(held), groups, torch.arange(60), torch.arange(60, 120))
        return asked.percent()["recall_at_10"]

    before = recall()
    train(TwoViews(model, Loss("infonce", temperature=0.1)), loader, "identity", "identity", epochs=40, lr=0.003)
    assert recall() > max(60, before + 20)


def test_weights_and_known_negatives_enter_the_loss():
    queries, targets = measured_twice(8)
    columns = {"query": [0, 1, 2], "target": [0, 1, 2], "negative": [3, 4, 5], "weight": [1, 2, 3]}
    sampler = ListedPairs(make_relation(columns, range(8), range(8)), 3)
    loader = ResidentLoader(queries, batch_sampler=sampler, targets=targets)
    torch.manual_seed(0)
    method = TwoViews(TwoTowers(Tower(GIN(1, 8, 1), 8), Tower(GIN(3, 8, 1), 8)), Loss("infonce", symmetric=False))
    (first, second) = next(iter(loader))
    first.pair_weight = sampler.weights[0]
    z1, z2 = method.model.encode_views(first, second)
    cosine = torch.nn.functional.cosine_similarity(z1[:, None], z2[None], dim=2) / 0.2
    terms = [-(row[i] - row.logsumexp(0)) for i, row in enumerate(cosine)]
    expected = sum(w * term for w, term in zip([1, 2, 3], terms, strict=True)) / 6
    torch.testing.assert_close(method(first, second).loss, expected)
    (epoch,) = train(method, loader, "identity", "identity", epochs=1, optimizer="sgd", lr=1e-9)
    assert abs(epoch.loss - expected.item()) < 1e-4


def test_a_tower_passes_attributes_weights_and_the_number_of_graphs_to_its_encoder():
    edges = torch.tensor([[0, 1], [1, 0]])
    of_edges = {"edge_attr": torch.tensor([[1.0], [2.0]]), "edge_weight": torch.tensor([0.5, 3.0])}
    graphs = [Data(x=torch.ones(2, 3), edge_index=edges, **of_edges), Data(x=torch.ones(1, 3), edge_index=edges[:, :0])]
    graphs[1].update({name: each[:0] for name, each in of_edges.items()})
    batch = Batch.from_data_list(graphs)
    model = TwoTowers(Tower(GINE(3, 1, 8, 1), 4), Tower(GIN(3, 8, 1), 4)).eval()
    for role in ("query", "target"):
        tower = model.role(role).encoder
        known = of_edges if role == "query" else {"edge_weight": of_edges["edge_weight"]}
        h = tower.encoder(batch.x, edges, batch.batch, size=2, **known)
        torch.testing.assert_close(model.role(role).encode(batch), tower.projector(h))
