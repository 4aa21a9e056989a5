"""Test the package metadata: oldest versions of dependencies, extras, and shipped packages."""

import re
from pathlib import Path

import pytest
from packaging.version import Version

from graphcl.experiment.record.progress import TRACKERS

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()


def listed(key: str) -> list[str]:
    """Return the first list named `key` in pyproject.toml, without tomllib, which Python 3.10 lacks."""
    found = re.search(rf"^{key} = \[(.*?)\]$", PROJECT, re.M | re.S)
    return re.findall(r'"([^"]+)"', found[1])


def test_the_oldest_constraints_are_the_lower_bounds():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    needed, tools = (dict(each.split(">=") for each in listed(key) if ">=" in each) for key in ("dependencies", "dev"))
    assert needed.keys() <= pinned.keys() <= needed.keys() | tools.keys()
    for name, version in pinned.items():
        assert Version(version) == Version((needed | tools)[name]), name


@pytest.mark.parametrize("name", TRACKERS)
def test_every_tracker_has_the_extra_that_its_message_names(name):
    assert [each.split(">=")[0] for each in listed(name)] == [name]


def test_every_package_is_shipped():
    packages = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "graphcl").rglob("__init__.py")}
    assert {"graphcl.configs", *packages} == set(listed("packages"))
