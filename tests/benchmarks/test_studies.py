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
NAMES = [
    "adaptive", "adnce_weights", "batch_size", "dro", "leaderboard", "precision", "published", "recipes", "temperature",
]  # fmt: skip


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

    untrained = pick = scores
    done = ()

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


def test_a_recipe_keeps_its_number_of_epochs(studies, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["published", "--finished", "--out", str(tmp_path)])
    found = studies("study").Study("published")

    def epochs(**axes):
        return {cell.config.epochs for cell in found.run("part", axes).plan.cells}

    assert epochs(recipe=["best"], dataset=["MUTAG"]) == {60}
    assert epochs(loss=["dcl"]) == {20}


def test_published_figures_are_read_from_the_headers(studies):
    rows = studies("published").published_rows("joao")
    assert (rows["MUTAG"], rows["IMDB-BINARY"], len(rows)) == ("87.35 ± 1.02", "70.21 ± 3.08", 8)


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


def test_a_recipe_is_chosen_by_its_mean_rank(studies):
    """The first set prefers recipe 1, the second and third recipe 0; ties share the better rank."""
    recipes = studies("recipes")
    inner = np.array([[70.0, 80.0, 61.0], [75.0, 71.0, 60.0], [70.0, 60.0, 59.0]])
    assert recipes.ranks(inner).tolist() == pytest.approx([4 / 3, 5 / 3, 8 / 3])
    assert recipes.left_out(inner) == [0, 0, 0]
    assert recipes.left_out(inner[:, :2])[1] == 1
    assert recipes.recipe(("log_sum",)) == {**recipes.BASE, "encoder.readout": "log_sum"}


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


def test_few_labels_pretrains_by_the_recipe_of_the_set(studies, monkeypatch, tmp_path):
    few = studies("few_labels")
    monkeypatch.setattr(few, "run", lambda config, **settings: make_plan({"settings": {"recipe": config, **settings}}))
    monkeypatch.setattr(few, "transfer", lambda settings: None)
    given = argparse.Namespace(out=tmp_path, data_root="datasets", mirror=None, seeds=1, rates=[0.1])
    few.measure("PROTEINS", given)
