"""Tests that every registered row and evaluator must pass: known facts, and a run that computes each row."""

import pytest
import torch

from graphcl import load_dataset, make_config
from graphcl.datasets.load import load_targets
from graphcl.datasets.pair_file import with_pairs
from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.evaluate.needs import NEEDS
from graphcl.experiment.scoring import score
from graphcl.references.rows import is_trained, row_labels, without_training
from graphcl.registry import evaluators, references
from graphcl.tasks.task import make_task
from tests.conftest import restored, small_graphs
from tests.experiment.test_retrieval import graphs
from tests.trials import run_seed

TASKS = {evaluators.fact(name, "task") for name in evaluators}
SMALL = {"epochs": 1, "batch_size": 8, "encoder": {"name": "gin", "hidden_channels": 8, "num_layers": 2}}
FOLDS = {"evaluation": {"folds": 3, "inner_folds": 2}}


def rows_of(dataset, **settings):
    config = make_config({**SMALL, **settings})
    return run_seed(config, dataset, 0).scores


def test_facts_are_known():
    needs = {
        "graphs",
        "nodes",
        "columns",
        "numbers",
        "dense",
        "graph.smiles",
        "query.smiles",
        "vectors",
        "module.rdkit",
        "groups",
        "init",
        "batchnorm",
        "trained",
        *TASKS,
    }
    for name in references:
        assert {*references.fact(name, "needs").split()} <= needs.union(TASKS), name
        assert references.fact(name, "task") in {"", *TASKS}, name
    usual = [evaluators.fact(name, "usual") for name in evaluators]
    assert sorted(filter(None, usual)) == ["copies", "groups", "labels", "nodes", "targets"]
    for name in evaluators:
        assert {*evaluators.fact(name, "needs").split(" or ")} <= NEEDS.keys(), name


def test_every_row_is_scored_in_a_run():
    pytest.importorskip("rdkit", reason="rdkit is not installed")
    pairs = rows_of(load_dataset(graphs(y=lambda number, member: number % 2)), eval=["svm", "retrieval"], **FOLDS)
    smiles = [f"C{'C' * size}{'O' * (size % 2)}" for size in range(12)]
    molecules = load_dataset(smiles)
    molecules._data.y, molecules.classes = torch.arange(12) % 2, torch.arange(2)
    molecules.slices["y"] = torch.arange(13)
    small = {"encoder": {"name": "molecule_gine", "hidden_channels": 8, "num_layers": 2}}
    of_molecules = rows_of(molecules, eval=["knn"], **small, **FOLDS)
    nodes = {"encoder": {"name": "node_gcn", "hidden_channels": 8}, "method": "grace"}
    of_nodes = rows_of(load_dataset("sbm-400", nodes=True), eval=["nmi"], evaluation={}, **nodes)
    paired = {"positives": "pairs", "towers": "separate", "target_encoder": "perceptron"}
    smiles = [f"C{'C' * size}{'O' * (size % 3)}" for size in range(40)]
    of_vectors = with_pairs(load_dataset(smiles), [(i, i) for i in range(40)], load_targets(torch.randn(40, 3)))
    of_vectors = rows_of(of_vectors, **small, **paired)
    several = (pairs, of_molecules, of_nodes, of_vectors)
    found = {row for scores in several for each in scores.values() for row in each}
    assert found == {*references} - {"initial"}  # of a run with `init`
    assert "majority" not in pairs["retrieval"]
    assert not {"random", "wl"} & pairs["svm"].keys()


def test_references_need_no_training_and_come_in_the_order_of_tables():
    assert {*without_training()} == {*references} - {
        "trained",
        "bag_trained",
        "wl_sparse",
        "hybrid",
        "descriptors+trained",
    }
    assert list(row_labels(["trained", "unknown", "wl", "majority"])) == ["majority", "wl", "unknown", "trained"]
    assert not is_trained("unknown")


def test_an_evaluator_of_ones_own_is_checked():
    dataset = load_dataset(small_graphs())
    with restored(evaluators):
        evaluators.register("number")(lambda h, y: 1.0)
        with pytest.raises(InputError, match=r"^evaluator `number` must return FoldScores, got float\.$"):
            score(make_task(make_config({"eval": ["number"]}), dataset), "number", torch.zeros(36, 1))
        with pytest.raises(
            InputError, match=r"^evaluator `mine` is registered with an unknown fact 'need'; did you mean"
        ):
            evaluators.register("mine", need="labels")(lambda h, y: 1.0)


def test_lower_is_better_where_the_scores_say_it():
    scores = [FoldScores(0, (value,), (0.0,), (value,), 1, 1, "distance", lower=True) for value in (2.0, 1.0)]
    assert [each.is_error for each in scores] == [True, True]
    assert repr(scores[0]) == "FoldScores(distance 2.00, seed 0)"
    assert FoldScores(0, (1.0,), (0.0,), (1.0,), 1, 1, "rmse").is_error
