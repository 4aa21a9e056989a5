"""Reference rows equal the results of plain loops over folds, graphs and nodes."""

import math

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score
from torch_geometric.data import Batch, Data

from graphcl import load_dataset, make_config
from graphcl.evaluate import knn, logreg, svm
from graphcl.experiment.trial import Trial
from graphcl.models.batchnorm import calibrate
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.references.statistics import graph_statistics
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs


def graphs(n=7, categories=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    found = []
    for size in range(2, 2 + n):
        pairs = torch.randint(size, (2, 2 * size), generator=generator)
        x = torch.randint(3, (size, 2), generator=generator)
        x[0] = -1 if categories else 0  # masked
        found.append(Data(x=x if categories else x.float(), edge_index=pairs))
    return found


@pytest.mark.parametrize("evaluate", [svm, knn, logreg])
def test_a_constant_embedding_scores_as_a_dummy_classifier(evaluate):
    y = np.random.default_rng(3).choice(3, 90, p=[0.2, 0.5, 0.3])
    folds = StratifiedKFold(10, shuffle=True, random_state=3)
    expected = cross_val_score(DummyClassifier(strategy="most_frequent"), np.zeros((90, 1)), y, cv=folds)
    assert evaluate(np.full((90, 2), 0.3), y, seed=3).accuracy == pytest.approx(100 * expected)


@pytest.mark.parametrize("categories", [False, True])
def test_statistics_by_loops_in_any_batches(categories):
    given = graphs(categories=categories)
    rows = []
    for graph in given:
        degrees = [int((graph.edge_index[1] == node).sum()) for node in range(graph.num_nodes)]
        degree_counts = [sum(min(each, 3) == at for each in degrees) for at in range(4)]
        if categories:
            labels = [(graph.x[:, column] == value).sum().item() for column in range(2) for value in range(3)]
        else:
            labels = [sum(graph.x[:, column].tolist()) for column in range(2)]
        rows.append([graph.num_nodes, graph.num_edges, *labels, *degree_counts])
    expected = torch.tensor([[math.log1p(each) for each in row] for row in rows])
    for batches in ([Batch.from_data_list(given)], [Batch.from_data_list([each]) for each in given]):
        torch.testing.assert_close(graph_statistics(batches, max_degree=3), expected[:, (expected != 0).any(dim=0)])


def test_calibrated_statistics_are_means_over_batches():
    model = ContrastiveModel(GIN(2, hidden_channels=16, num_layers=1))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    batches, hidden = [Batch.from_data_list(graphs(seed=seed)) for seed in range(3)], []
    calibrated = calibrate(model, batches)
    for batch in batches:
        sums = torch.zeros_like(batch.x).index_add(0, batch.edge_index[1], batch.x[batch.edge_index[0]])
        hidden.append(model.encoder.convs[0].nn(batch.x + sums).relu())
    found = calibrated.encoder.norms[0]
    torch.testing.assert_close(found.running_mean, torch.stack([each.mean(dim=0) for each in hidden]).mean(dim=0))
    torch.testing.assert_close(found.running_var, torch.stack([each.var(dim=0) for each in hidden]).mean(dim=0))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_reference_rows_do_not_depend_on_micro_batch():
    """The step that is tried before a run leaves no setting of training on the model."""
    dataset = load_dataset(small_graphs())
    rows = []
    for size in (None, 2):
        config = make_config(
            {"eval": ["knn"], "epochs": 1, "batch_size": 12, "micro_batch": size, "method": "two_views"}
        )
        trial = Trial(make_task(config, dataset), 0, torch.device("cpu"))
        trial.try_step()
        rows.append(trial.run(("untrained", "calibrated")).scores["knn"]["calibrated"])
    assert rows[0] == rows[1]
