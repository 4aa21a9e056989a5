"""Test the documentation: examples run, commands parse, links resolve, and tables agree with each other."""

import functools
import importlib
import itertools
import os
import re
import runpy
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import graphcl
from graphcl import augment, datasets, evaluate, losses, methods, registry
from graphcl.commands import command, summaries, sweep
from graphcl.commands.run import COMMAND as RUN
from graphcl.config.recipes import shipped_configs
from graphcl.errors import InputError
from graphcl.sweep.folder import extended, write_spec
from graphcl.training import diagnostics, mutual_information
from tests.conftest import restored

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEW_RUN = ["--dataset", "synthetic"]
"""Added to `--resume FOLDER`, which alone is refused as the folder does not exist here."""
expand = runpy.run_path(str(ROOT / "docs" / "site" / "tables.py"))["expand"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def commands(page: Path) -> list[list[str]]:
    """Return each command on a page as a list of words, without comments."""
    text = "\n".join(blocks(page, "", "sh"))
    lines = [part for line in text.split("\n") for part in line.split("&&")]
    return [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(python3?|graphcl) ", line)]


def options(page: Path) -> list[str]:
    """Return the command-line options in the text of a page, outside code blocks."""
    return re.findall(r"`(--[^`]+)`", BLOCK.sub("", page.read_text()).replace("\n", " "))


@pytest.fixture
def own_names():
    """Restore the registries after the test."""
    every = (registry.losses, registry.augmentations, registry.encoders, registry.methods)
    every += (registry.evaluators, registry.references, registry.sources)
    assert all(map(len, every))  # imports all modules that register names
    with restored(*every):
        yield


@pytest.fixture(scope="module")
def synthetic():
    return graphcl.load_dataset("synthetic")[::3]


@pytest.fixture
def quick(monkeypatch, synthetic):
    """Use a third of the data set "synthetic", loaded once for all pages, and fewer folds in `svm`."""
    load = graphcl.load_dataset

    def known(source, **others):
        return synthetic if isinstance(source, str) and source == "synthetic" else load(source, **others)

    monkeypatch.setattr(graphcl, "load_dataset", known)
    monkeypatch.setattr(graphcl, "svm", functools.partial(graphcl.svm, folds=2, inner_folds=2))


@pytest.fixture
def embedded(tmp_path):
    """Write the files of `graphcl embed` that docs/vector_index.md reads; they share 50 graphs."""
    h = np.random.default_rng(0).normal(size=(450, 16)).astype(np.float32)
    for day, rows in (("monday", slice(300)), ("tuesday", slice(250, None))):
        np.savez(tmp_path / f"{day}.npz", h=h[rows], id=np.arange(450)[rows].astype(str))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs_as_one_script(page, tmp_path, monkeypatch, own_names, quick, embedded):
    for needed in ("faiss", "rdkit"):
        if f"import {needed}" in page.read_text() or f"from {needed}" in page.read_text():
            pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    exec(compile(source, str(page), "exec"), {"__name__": "__main__"})


@pytest.fixture
def parse(tmp_path, monkeypatch, own_names):
    """Return a function that parses a command like its program, without running the command."""

    def parsed(words: list[str]) -> None:
        words = words if words[0] == "graphcl" else words[2:] if words[1] == "-m" else words[1:]
        if "--help" in words or words[0] == "venv":
            return
        if words[0] == "graphcl.run":
            words = ["graphcl", "run", *words[1:]]
        if words[0] != "graphcl":
            names_of_script(words)
            return
        if words[1] != "sweep":
            module = command(words[1])
            getattr(module, "parse", module.COMMAND.parse)(words[2:])
            return
        found = sweep.parse(words[2:])
        plan = extended(found.out, found.spec, found.whole)
        found.out.mkdir(parents=True, exist_ok=True)
        write_spec(found.out, plan)  # a later command may resume or extend it

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return parsed


def names_of_script(words: list[str]) -> None:
    """Assert that a script exists, and that each option is in the source of a script in its folder."""
    script = ROOT / words[0]
    assert script.is_file(), f"{words[0]} not found"
    sources = script.read_text() + "".join(each.read_text() for each in script.parent.glob("*.py"))
    for word in words[1:]:
        assert not word.startswith("--") or f'"{word}"' in sources, f"{words[0]}: unknown option {word}"


def test_the_commands_of_the_pages_parse(parse, tmp_path):
    for page in PAGES:
        shutil.rmtree(tmp_path / "sweeps", ignore_errors=True)  # pages show sweeps of their own in the same folder
        for text in blocks(page, "yaml"):
            (tmp_path / "study.yaml").write_text(text)
        for words in commands(page):
            try:
                parse([*words, *NEW_RUN] if "--resume" in words and "--dataset" not in words else words)
            except InputError as error:
                pytest.fail(f"{page.name}: {shlex.join(words)}: {error}")


def test_a_wrong_command_fails(parse):
    wrong = {
        "-m graphcl.run --los adnce": "--los", "-m graphcl sweep --loss.temperatur 1 2 --out x": "temperatur",
        "benchmarks/suite.py --mirrors x": "unknown option --mirrors", "benchmarks/sweet.py": "not found",
    }  # fmt: skip
    for words, says in wrong.items():
        with pytest.raises((InputError, AssertionError), match=says):
            parse(["python", *words.split()])


NEEDED = dict.fromkeys(
    ("--towers", "--targets", "--batch-by", "--hard-negatives", "--pair-share", "--best-epoch", "supcon"),
    "--positives pairs.csv",
) | {
    "--target-encoder": "--towers separate --positives pairs.csv",
    "--singles": "--positives group --views.first random4",
    "--evaluation.within": "--eval retrieval",
    "--micro-batch": "--batch-size 4096",
    "--mine-margin": "--hard-negatives 2 --positives pairs.csv",
}
"""Option, or loss -> options without which it would be refused."""


def test_the_options_in_the_text_exist():
    """Options of `graphcl.run` are parsed with their values; other options must occur in the package's source."""
    commands = [command(name).COMMAND for name in summaries()]
    programs = "".join(each.help() for each in commands) + "".join(
        each.read_text() for each in (ROOT / "graphcl").rglob("*.py")
    )
    text = RUN.help(True)
    for option in (option for page in PAGES for option in options(page)):
        key, *values = shlex.split(option)
        if f"  {key.split('.')[0]} " not in text:
            assert re.search(rf"{key}\b", programs), f"no program has {key}"
        elif values and key not in ("--config", "--import"):
            name = "supcon" if "supcon" in values and key == "--loss" else key
            needed = NEEDED.get(name, NEEDED.get(name.partition(".")[0], "")).split()
            RUN.parse([key, *values, *NEW_RUN * (key == "--resume"), *needed])


def slug(heading: str) -> str:
    """Return the anchor of a heading by the rules of GitHub and MkDocs."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(page: Path) -> list[str]:
    return [slug(each) for each in re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.M)]


def test_links_resolve():
    for page in (*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))):
        for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", BLOCK.sub("", page.read_text())):
            path, _, anchor = next(filter(None, target)).partition("#")
            file = Path(os.path.normpath(page.parent / path)) if path else page
            if not path.startswith(("http:", "https:")):
                assert file.exists(), f"{page.name}: {path}"
                assert not anchor or anchor in headings(file), f"{page.name}: {path}#{anchor}"


def test_the_reference_has_every_public_name():
    pages = "\n".join(expand(page.read_text()) for page in (ROOT / "docs" / "reference").glob("*.md"))
    paths = [line.rpartition(".") for line in re.findall(r"^::: (.*)$", pages, re.M)]
    assert [path for path in paths if not hasattr(importlib.import_module(path[0]), path[2])] == []  # gone names
    told = {name for _, _, name in paths} | {"__version__", "losses"}
    for module in (graphcl, losses, augment, methods, datasets, evaluate, diagnostics, mutual_information):
        own = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
        public = getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]
        missing = set(public) - told
        assert not missing, f"add a line `::: module.name` to a page in docs/reference/ for each of {sorted(missing)}"


def test_the_figures_of_pairs_in_the_readme_are_those_of_the_page():
    table = re.search(r"<!-- pairs -->\n(.*?)<!-- end -->", (ROOT / "docs" / "results.md").read_text(), re.S)[1]
    measured = {str(int(float(number) + 0.5)) for number in re.findall(r"\d+\.\d", table)}
    said = re.search(r"\*\*Where training pays(.*?)\*\*Where it does not", PAGES[0].read_text(), re.S)[1]
    figures = re.findall(r"\b\d\d\b", said)
    assert len(figures) > 6
    assert set(figures) <= measured


def test_the_tables_name_only_what_exists():
    for kind in ("methods", "augmentations"):
        page = (ROOT / "docs" / f"{kind}.md").read_text()
        table = "\n".join(line.split(" | ")[0] for line in page.split("\n") if line.startswith("| `"))
        assert table.count("\n") > 5
        assert set(re.findall(r"`(\w+)`", table)) <= set(getattr(registry, kind))


def test_the_map_of_the_founding_papers_is_whole(parse):
    """No loss, method, recipe, sweep or augmentation can vanish from the package, or miss a row, unseen."""
    page = (ROOT / "docs" / "studies" / "founding.md").read_text()
    rows = re.search(r"<!-- map -->\n(.*?)<!-- end -->", page, re.S)[1]
    found = [shlex.split(text) for text in re.findall(r"`((?:graphcl|python) [^`]+)`", rows)]
    assert len(found) > 40
    for words in found:
        parse(words)
    runs = [words for words in found if words[:2] == ["graphcl", "run"]]
    configs = [
        RUN.parse(words[2:]) for words in runs if "--loss" in words or "--config" in words or "--method" in words
    ]
    without_row = {kind: set(getattr(registry, kind)) for kind in ("losses", "methods")}
    for config in configs:
        without_row["losses"].discard(config.loss["name"])
        without_row["methods"].discard(config.method["name"])
    assert without_row == {"losses": {"simsiam"}, "methods": set()}  # that of the method
    for option, names in (
        ("--config", {**shipped_configs(), **shipped_configs("transfer")}),
        ("sweep", shipped_configs("sweeps")),
    ):
        assert {word for words in found for last, word in itertools.pairwise(words) if last == option} >= {*names}
