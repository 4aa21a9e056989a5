"""Test that planted sets get their verdict, and what a diagnosis computes."""

import runpy
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphcl import load_dataset, make_config
from graphcl.datasets.synthetic import synthetic_pairs
from graphcl.errors import InputError
from graphcl.extensions.diagnosis.answers import AS_IS
from graphcl.extensions.diagnosis.page import markdown
from graphcl.extensions.diagnosis.run import diagnose, drawn, score_rows
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs

PLANTED = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "diagnose.py"))


@pytest.mark.parametrize("kind", PLANTED["KINDS"])
def test_planted_sets_get_their_verdict(kind):
    """The benchmark runs 20 sets of each kind, with three seeds of the folds; here one set and one seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = PLANTED["verdict"](kind, 0, seeds=[0])
    assert found.kind == kind
    assert found.leak == pytest.approx(0.6 if kind == "leak" else 0, abs=0.03)


def test_controls_that_change_nothing_are_left_out():
    config = make_config({"seeds": [0], "epochs": 1, "evaluation": {"inner_folds": 2}})
    dataset = load_dataset(small_graphs(n=100), features="constant")
    found = diagnose(config, dataset, ["statistics"], ["no edges", "constant features", "sizes only"])
    assert [*found.table] == [AS_IS, "no edges", "sizes only"]
    assert found.unchanged == ("constant features",)
    assert found.answers.kind == "edges"
    assert "features" not in found.answers.gains


def test_a_draw_keeps_the_proportions_of_the_classes():
    dataset = load_dataset([*small_graphs(n=40), *small_graphs(n=20, classes=1)])
    found = drawn(dataset, 30)
    assert (len(found), found.y.bincount().tolist()) == (30, [20, 10])
    assert drawn(dataset, 60) is dataset
    assert not torch.equal(drawn(dataset, 30, seed=1)._data.x, found._data.x)


def test_kernels_of_two_depths_see_edges():
    """Colours of depth 1 tell edges from rings of equal features, and deeper colours are equal to these."""
    edge, ring = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    given = [Data(x=torch.ones(3, 1), edge_index=(edge, ring)[k % 2], y=torch.tensor([k % 2])) for k in range(20)]
    config = make_config({"evaluation": {"inner_folds": 2}})
    found = score_rows(make_task(config, load_dataset(given)), 0, ["wl_oa"], torch.device("cpu"))
    assert found["wl_oa"].score.mean == 100


def test_what_cannot_be_diagnosed():
    nodes = load_dataset("sbm-400", nodes=True)
    with pytest.raises(InputError, match=r"^diagnose takes whole graphs, but sbm-400 is one graph"):
        diagnose(make_config({"method": "grace"}), nodes, ["majority"])
    with pytest.raises(InputError, match=r"^unknown row 'statistic'; did you mean statistics"):
        diagnose(make_config({}), load_dataset(small_graphs()), ["statistic"])
    with pytest.raises(InputError, match=r"pass --eval knn or logreg or retrieval or svm\.$"):
        diagnose(make_config({"eval": ["instance"]}), load_dataset(small_graphs()), ["majority"])


def test_a_diagnosis_by_group_says_that_groups_are_few():
    config = make_config({"seeds": [0], "eval": ["retrieval"]})
    found = diagnose(config, load_dataset(synthetic_pairs(num_groups=30)), ["statistics"], ["no edges"])
    assert found.answers.units == 3
    assert ", one test part of 3 groups (intervals are too narrow, as of fewer than 30)," in markdown(found, "", "")
