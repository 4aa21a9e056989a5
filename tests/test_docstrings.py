"""Run every example in a docstring, and check that every public name has a docstring."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import graphcl

MODULES = ["graphcl", *(module.name for module in pkgutil.walk_packages(graphcl.__path__, "graphcl."))]
OPTIONAL = {
    "graphcl.estimator": ["rdkit"],
}


def has_example(name):
    return ">>> " in (importlib.util.find_spec(name).loader.get_source(name) or "")


WITH_EXAMPLES = list(filter(has_example, MODULES))
ROOMS = sorted({name.split(".")[1] for name in WITH_EXAMPLES if "." in name})


def failures(name):
    for needed in OPTIONAL.get(name, []):
        pytest.importorskip(needed, reason=f"{name} is an extra")
    return doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE).failed


@pytest.mark.parametrize("room", ROOMS)
def test_the_examples_of_a_package(room):
    assert [name for name in WITH_EXAMPLES if f"{name}.".startswith(f"graphcl.{room}.") and failures(name)] == []


def test_there_are_examples():
    assert {"graphcl.losses.formulas.infonce", "graphcl.augment.node_drop"} <= set(WITH_EXAMPLES)
    assert failures("graphcl") == 0


def test_public_names_are_documented():
    assert [name for name in graphcl.__all__ if len(inspect.getdoc(getattr(graphcl, name)) or "") <= 20] == []
