"""A training across 2 and 4 processes goes on where it stopped; the checks are in `training.py`."""

import pytest


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.several)])
def test_training(group, size):
    wrong = {name: each for name, each in group("training", size).items() if each is not None}
    assert not wrong
