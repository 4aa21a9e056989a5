"""Methods across 2 and 4 processes equal one with the whole batch; the checks are in `methods.py`."""

import pytest

from graphcl.registry import methods


@pytest.mark.parametrize("name", methods)
def test_two_ranks(group, name):
    """Values, gradients, parameters, and what a method keeps: the queue, the bank, the odds, running statistics."""
    assert group("methods", 2)[name] is None


@pytest.mark.several
def test_four_ranks(group):
    wrong = {name: each for name, each in group("methods", 4).items() if each is not None}
    assert not wrong
