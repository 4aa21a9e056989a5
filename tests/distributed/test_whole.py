"""What 2 and 4 processes do together; the checks are in `whole.py`."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("ranks_whole", Path(__file__).with_name("whole.py"))
whole = importlib.util.module_from_spec(spec)
spec.loader.exec_module(whole)


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.several)])
@pytest.mark.parametrize("name", whole.CHECKS)
def test_whole(group, name, size):
    assert group("whole", size)[name] is None
