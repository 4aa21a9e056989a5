"""Test losses, methods, training and collectives on 2 and 4 ranks.

The tests report the `CHECKS` in `losses.py`, `methods.py`, `training.py` and `whole.py`. Losses and methods
are compared with one process that has the global batch.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEMS = ["losses", "methods", "training", "whole"]


@pytest.fixture(scope="module")
def errors(request):
    """Return the errors of all checks by size of the group, stem and name, from one process that forks all groups."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    sizes = ",".join({"4" if item.get_closest_marker("several") else "2" for item in items})
    command = [sys.executable, str(Path(__file__).with_name("group.py")), sizes, *STEMS]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=400).stdout)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("size", ["2", pytest.param("4", marks=pytest.mark.several)])
def test_on_ranks(errors, stem, size):
    assert {name: error for name, error in errors[size][stem].items() if error is not None} == {}
