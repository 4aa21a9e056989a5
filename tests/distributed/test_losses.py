"""Losses across 2 and 4 processes equal those of one with the whole batch; the checks are in `losses.py`."""

import pytest

from graphcl.registry import losses


@pytest.mark.parametrize("name", [*losses, "a_wrong_gradient_is_noticed"])
def test_two_ranks(group, name):
    """Value, gradients and trained parameters, to 1e-9."""
    assert group("losses", 2)[name] is None


@pytest.mark.several
def test_four_ranks(group):
    wrong = {name: each for name, each in group("losses", 4).items() if each is not None}
    assert not wrong
