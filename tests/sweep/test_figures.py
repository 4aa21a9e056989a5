"""The figures of a sweep show the numbers of its tables."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from graphcl.sweep import make_plan, make_table
from graphcl.sweep.figures import numeric_axes, write_figures


def record(cell, mean, rng):
    accuracy = rng.normal(mean, 1, 4).tolist()
    scores = {"seed": cell.config.seeds[0], "accuracy": accuracy, "chosen": [1.0] * 4, "folds": 4}
    scores |= {"inner": accuracy, "inner_folds": 2}
    return {"status": "done", "scores": {"svm": scores, "knn": scores}, "metrics": {}, "seconds": {}}


def draw(folder, axes, keep=1.0, **settings):
    plan = make_plan({"axes": axes, "settings": {"seeds": [0, 1], **settings}})
    rng = np.random.default_rng(0)
    cells = [*plan.references, *plan.cells[: int(keep * len(plan.cells))]]
    records = {cell.key: record(cell, 60 + 20 * rng.random(), rng) for cell in cells}
    tables = {name: make_table(plan, records, name) for name in plan.evaluators}
    return plan, tables, write_figures(folder, plan, tables)


def texts(file):
    root = ElementTree.parse(file).getroot()
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_bars_say_the_tables_means(tmp_path):
    axes = {"loss": ["infonce", "dcl"], "dataset": ["MUTAG", "NCI1"]}
    _, tables, names = draw(tmp_path, axes, eval=["svm", "knn"])
    assert names == ["figures/svm.svg", "figures/knn.svg"]
    for name, table in tables.items():
        drawn = texts(tmp_path / "figures" / f"{name}.svg")
        assert {"MUTAG", "NCI1", "infonce", "dcl", f"{name}: gain of training by loss"} <= set(drawn)
        for entry in table.entries.values():
            assert f"{entry.mean:.1f}" in drawn


def test_a_heat_map_where_two_axes_are_numbers(tmp_path):
    axes = {"loss.temperature": [0.5, 0.1], "loss": ["infonce", "dcl"], "batch_size": [32, 64, 128]}
    plan, tables, names = draw(tmp_path, axes)
    assert numeric_axes(plan) == ["loss.temperature", "batch_size"]
    assert names == ["figures/svm.svg", "figures/svm-heat.svg"]
    drawn = texts(tmp_path / "figures" / "svm-heat.svg")
    assert {"infonce, synthetic", "dcl, synthetic", "loss.temperature", "batch_size"} <= set(drawn)
    table = tables["svm"]
    means = [f"{table.entries[(tau, loss, size), 'synthetic'].mean:.1f}"
             for loss in ("infonce", "dcl") for tau in ("0.1", "0.5") for size in ("32", "64", "128")]  # fmt: skip
    cells = [each for each in drawn if each in means]
    assert cells == means  # sorted by value, not in the order on the axis


def test_what_is_not_finished(tmp_path):
    _, _, names = draw(tmp_path, {"loss": ["infonce", "dcl"]}, keep=0.5)
    assert names == ["figures/svm.svg"]
    (tmp_path / "none").mkdir()
    _, _, names = draw(tmp_path / "none", {"loss": ["infonce", "dcl"]}, keep=0)
    assert names == []
    assert not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize("axes", [{"loss": ["infonce", "dcl"]}, {"epochs": [1, 2]}, {"dataset": ["MUTAG", "NCI1"]}])
def test_no_heat_map_elsewhere(axes, tmp_path):
    _, _, names = draw(tmp_path, axes)
    assert names == ["figures/svm.svg"]
