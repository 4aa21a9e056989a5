"""Run every example in a docstring, and check that every public name has a docstring."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import graphcl

MODULES = ["graphcl", *(module.name for module in pkgutil.walk_packages(graphcl.__path__, "graphcl."))]
OPTIONAL = {"graphcl.lightning": ["pytorch_lightning"], "graphcl.graphgym": ["pytorch_lightning", "yacs"]}


def has_example(name):
    return ">>> " in (importlib.util.find_spec(name).loader.get_source(name) or "")


WITH_EXAMPLES = list(filter(has_example, MODULES))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    for needed in OPTIONAL.get(name, []):
        pytest.importorskip(needed, reason=f"{name} is an extra")
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0


def test_there_are_examples():
    assert {"graphcl", "graphcl.losses.formulas.infonce", "graphcl.augment.node_drop"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", [name for name in graphcl.__all__ if name != "__version__"])
def test_public_names_are_documented(name):
    assert len(inspect.getdoc(getattr(graphcl, name)) or "") > 20
