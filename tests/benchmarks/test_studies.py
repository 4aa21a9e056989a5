"""Check the arithmetic of the studies, and that each of their sweeps can be planned."""

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcl.evaluate import FoldScores
from graphcl.losses import infonce
from graphcl.registry import methods
from graphcl.sweep import make_plan

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
NAMES = ["adaptive", "adnce_weights", "batch_size", "dro", "precision", "recipes", "temperature"]


@pytest.fixture
def studies(monkeypatch):
    """Return a function that imports a study as its command line does; undo its registrations afterwards."""
    monkeypatch.syspath_prepend(str(STUDIES))
    before, loaded = set(methods), set(sys.modules)

    def load(name):
        spec = importlib.util.spec_from_file_location(name, STUDIES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in set(methods) - before:
        for known in (methods._targets, methods._arguments, methods._facts):
            known.pop(name)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(STUDIES)):
            del sys.modules[name]


class PlannedError(Exception):
    """Raised in place of running."""


class Nothing:
    """Results of a sweep that was only planned."""

    def scores(self, **_):
        return []

    untrained = scores

    def markdown(self):
        raise PlannedError


@pytest.mark.parametrize("name", NAMES)
def test_every_sweep_can_be_planned(studies, name, monkeypatch, tmp_path):
    """Plan the first sweep of each study, without running it; every cell must be a valid configuration."""
    module = studies(name)
    import study

    planned = []

    def run(self, part, axes, table=None, of=None, **settings):
        settings = {"epochs": 20, "seeds": [0, 1], **settings}
        planned.append(make_plan({"axes": axes, "settings": settings, "table": table or {}}))
        if len(planned) > 1:
            raise PlannedError
        return Nothing()

    monkeypatch.setattr(study.Study, "run", run)
    monkeypatch.setattr(sys, "argv", [name, "--docs", str(tmp_path)])
    with pytest.raises(PlannedError):
        module.main()
    assert all(plan.cells for plan in planned)


def test_fewer_false_negatives_against_a_loop(studies):
    temperature = studies("temperature")
    generator = torch.Generator().manual_seed(0)
    a, b = torch.nn.functional.normalize(torch.randn(2, 6, 4, generator=generator, dtype=torch.float64), dim=2)
    cosine, out = a @ b.T, torch.rand(6, 6, generator=generator) < 0.4
    out |= torch.eye(6, dtype=torch.bool)
    out[2] = True  # an anchor without negatives
    terms = []
    for table, hidden in ((cosine, out), (cosine.T, out.T)):
        for i in range(6):
            total = sum(math.exp(table[i, j] / 0.3) for j in range(6) if not hidden[i, j])
            terms.append(-math.log(math.exp(table[i, i] / 0.3) / (math.exp(table[i, i] / 0.3) + total)))
    assert float(temperature.nce(cosine, out, 0.3)) == pytest.approx(np.mean(terms))
    own = torch.eye(6, dtype=torch.bool)
    assert torch.allclose(temperature.nce(cosine, own, 0.3), infonce(a, b, temperature=0.3))


def test_combinations_do_not_undo_each_other(studies):
    recipes = studies("recipes")
    found = list(recipes.combinations(["tau 0.1", "tau 0.5", "dcl"]))
    assert found == [("tau 0.1", "dcl"), ("tau 0.5", "dcl")]
    assert recipes.recipe(("scaled",)) == {**recipes.BASE, "evaluation.scale": True}


def test_a_recipe_is_chosen_by_inner_folds_only(studies):
    """One recipe looks best on inner folds and another on test folds; nested choice goes fold by fold."""
    recipes = studies("recipes")
    search = recipes.Search(None)

    def scores(inner, test):
        return [FoldScores(0, tuple(test), (1.0,) * len(test), tuple(inner), len(test), 3)]

    search.known = {
        ("S", ()): scores([70.0, 80.0], [50.0, 60.0]),
        ("S", ("dcl",)): scores([75.0, 71.0], [10.0, 20.0]),
        ("T", ()): scores([60.0, 60.0], [0.0, 0.0]),
        ("T", ("dcl",)): scores([61.0, 61.0], [0.0, 0.0]),
    }
    assert search.nested("S") == (10.0 + 60.0) / 2
    assert max(search.recipes("S"), key=lambda c: search.inner("S", c)) == ()
    assert [search.mean_rank(["S", "T"], c) for c in ((), ("dcl",))] == [1.5, 1.5]
    assert [search.mean_rank(["T"], c) for c in ((), ("dcl",))] == [2, 1]


def test_a_recipe_that_lacks_a_seed_is_chosen_among_the_seeds_that_all_have(studies):
    recipes = studies("recipes")
    search = recipes.Search(None)

    def scores(**by_seed):
        return [FoldScores(int(s[1:]), (test,), (1.0,), (inner,), 1, 3) for s, (inner, test) in by_seed.items()]

    search.known = {
        ("S", ()): scores(s5=(70.0, 50.0), s6=(70.0, 60.0)),
        ("S", ("dcl",)): scores(s6=(80.0, 20.0)),  # the cell of seed 5 failed
    }
    assert search.nested("S") == 20.0


def test_the_lead_is_tested_fold_by_fold_over_the_mean_of_temperatures(studies, monkeypatch):
    """Temperatures of one seed share its folds, so they must not count as repetitions."""
    batch_size = studies("batch_size")
    tested = []
    test = batch_size.paired_test
    monkeypatch.setattr(batch_size, "paired_test", lambda *pair: tested.append(pair) or test(*pair))

    def scores(dataset, budget, loss, temperature, batch):
        if batch == 8:  # nothing finished
            return []
        seeds = (0, 1) if temperature == 0.1 and loss == "dcl" else (0, 1, 2)
        value = 10 * temperature + (loss == "dcl")
        return [FoldScores(seed, (value, value + seed + 1), (1.0,) * 2, (value,) * 2, 2, 2) for seed in seeds]

    text = batch_size.gaps(["PROTEINS"], scores)
    mine, base = tested[batch_size.LOSSES[1:].index("dcl") * (len(batch_size.BATCHES) - 1)]
    assert [each.seed for each in mine] == [each.seed for each in base] == [0, 1]
    assert mine[0].accuracy == pytest.approx((8 / 3 + 1, 8 / 3 + 2))
    assert base[1].accuracy == pytest.approx((8 / 3, 8 / 3 + 2))
    assert "| dcl | - | **+1.00 (0.00)**" in text


def test_tables_of_a_page_are_replaced_and_its_text_kept(studies, tmp_path, monkeypatch):
    study = studies("study")
    monkeypatch.setattr(sys, "argv", ["x", "--docs", str(tmp_path)])
    one = study.Study("page")
    one.keep(None, table="| old |")
    page = tmp_path / "page.md"
    page.write_text(page.read_text() + "Words.\n")
    one.keep(None, table="| new |")
    assert "| new |" in page.read_text()
    assert "| old |" not in page.read_text()
    assert page.read_text().endswith("Words.\n")


def test_table_of_few_labels(studies, tmp_path):
    """Only finished sets are in the table; the gain is the difference of the means."""
    few = studies("few_labels")

    def score(seed, accuracy):
        return vars(FoldScores(seed, accuracy, (1.0,) * 3, (50.0,) * 3, 3, 1, "acc"))

    per_seed = [
        {"untrained": score(seed, (50.0, 60.0, 70.0)), "trained": score(seed, (52.0, 65.0, 75.0))} for seed in (0, 1)
    ]
    (tmp_path / "MUTAG-0.1").mkdir()
    (tmp_path / "MUTAG-0.1" / "result.json").write_text(json.dumps({"scores": {"finetune": {"per_seed": per_seed}}}))
    given = argparse.Namespace(out=tmp_path, sets=["MUTAG", "DD"], rates=[0.01, 0.1])
    head, _, line = few.table(given).splitlines()
    assert head.startswith("| data set | labels |")
    assert line.startswith("| MUTAG | 10 % | 60.00 ± 0.00 (2) | 64.00 ± 0.00 (2) | +4.00 (")
