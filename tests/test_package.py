"""Test the package metadata: versions of dependencies, extras, shipped packages, and what an index gets."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from graphcl.experiment.record.progress import TRACKERS
from graphcl.version import __version__

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


def test_the_index_gets_no_relative_link(monkeypatch):
    pytest.importorskip("setuptools", "77")  # the least that the build needs; it brings distutils
    from distutils.core import run_setup

    monkeypatch.chdir(ROOT)
    described = run_setup("setup.py", stop_after="init").metadata
    links = re.compile(r'(?:\]\(|(?:src|href)=")(?!#)([^)"\s]+)')
    readme = (ROOT / "README.md").read_text()
    there, here = links.findall(described.long_description), links.findall(readme)
    address = f"{described.project_urls['Source']}/(blob|raw)/v{__version__}/"
    assert len(there) == len(here) > 20
    for link, path in zip(there, here, strict=True):
        assert link == path if path.startswith("https:") else re.sub(address, "", link) == path
    assert links.sub("", described.long_description) == links.sub("", readme)  # nothing else changes


def test_the_files_about_the_project_agree():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archived = json.loads((ROOT / ".zenodo.json").read_text())
    recipe = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "x", (ROOT / "conda" / "recipe.yaml").read_text()))
    assert cited["version"] == recipe["context"]["version"] == __version__
    assert (archived["title"], archived["license"]) == (cited["title"], cited["license"])
    assert f'description = "{archived["description"]}"' in PROJECT.split("\n")
    assert archived["description"] == recipe["about"]["summary"]
    assert set(archived["keywords"]) <= set(listed("keywords"))
    papers = [f"arXiv:{paper['url'].rpartition('/')[2]}" for paper in cited["references"]]
    assert [paper["identifier"] for paper in archived["related_identifiers"]] == papers


def test_the_conda_recipe_needs_what_the_wheel_needs():
    recipe = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "x", (ROOT / "conda" / "recipe.yaml").read_text()))
    names = {"pytorch": "torch", "pytorch_geometric": "torch-geometric", "matplotlib-base": "matplotlib"}
    needed = dict(line.split(" >=") for line in recipe["requirements"]["run"] if line != "python")
    wanted = {name.lower(): bound for name, bound in (line.split(">=") for line in listed("dependencies"))}
    assert {names.get(name, name): bound for name, bound in needed.items()} == wanted


def test_a_wheel_that_no_index_takes_is_refused(tmp_path):
    (tmp_path / "graphcl-0.1.0-cp310-abi3-linux_x86_64.whl").touch()
    done = subprocess.run([ROOT / ".ci" / "dist", "--check", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "refuses the platform of" in done.stderr
