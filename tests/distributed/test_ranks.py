"""Test losses, methods, training and collectives on 2 and 4 ranks.

The tests report the `CHECKS` in `losses.py`, `methods.py`, `training.py` and `whole.py`. Losses and methods
are compared with one process that has the global batch.
"""

import pytest

from graphcl.registry import losses
from tests.methods.small import OF_GRAPHS

NAMES = {"losses": [*losses, "a_wrong_gradient_is_detected"], "methods": OF_GRAPHS}
CASES = [(stem, name) for stem, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("stem", "name"), CASES)
def test_on_two_ranks(group, stem, name):
    """Compare value, gradients, parameters and the method's state (queue, bank, probabilities, statistics) to 1e-9."""
    assert group(stem, 2)[name] is None


@pytest.mark.parametrize("stem", ["training", "whole"])
def test_all_on_two_ranks(group, stem):
    assert {name: each for name, each in group(stem, 2).items() if each is not None} == {}


@pytest.mark.several
@pytest.mark.parametrize("stem", ["losses", "methods", "training", "whole"])
def test_all_on_four_ranks(group, stem):
    assert {name: each for name, each in group(stem, 4).items() if each is not None} == {}
