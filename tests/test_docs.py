"""Test the documentation: examples run, commands parse, links resolve, and tables agree with each other."""

import functools
import importlib
import os
import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml

import graphcl
from graphcl import augment, datasets, evaluate, losses, methods, registry
from graphcl.__main__ import COMMANDS
from graphcl.cli.commands import PARSERS, SWEEP
from graphcl.cli.run_command import RUN
from graphcl.errors import InputError
from graphcl.sweep import make_plan
from graphcl.training import diagnostics

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
def own_names(monkeypatch):
    """Restore the registries after the test."""
    for each in (registry.losses, registry.augmentations, registry.encoders, registry.methods):
        len(each)  # imports all modules that register names
        for kept in ("_targets", "_arguments", "_facts"):
            monkeypatch.setattr(each, kept, dict(getattr(each, kept)))


@pytest.fixture(scope="module")
def synthetic():
    return graphcl.load_dataset("synthetic")


@pytest.fixture
def quick(monkeypatch, synthetic):
    """Load the data set "synthetic" only once for all pages, and use fewer folds in `svm`."""
    load = graphcl.load_dataset

    def known(source, **others):
        return synthetic if isinstance(source, str) and source == "synthetic" else load(source, **others)

    monkeypatch.setattr(graphcl, "load_dataset", known)
    monkeypatch.setattr(graphcl, "svm", functools.partial(graphcl.svm, folds=2, inner_folds=2))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs_as_one_script(page, tmp_path, monkeypatch, own_names, quick):
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    exec(compile(source, str(page), "exec"), {"__name__": "__main__"})


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Return a function that parses a command like its program, without running the command."""

    def parsed(words: list[str]) -> None:
        words = words if words[0] == "graphcl" else words[2:] if words[1] == "-m" else words[1:]
        if "--help" in words or words[0] == "venv":
            return
        if words[0] in ("graphcl.run", "graphcl.sweep"):
            words = ["graphcl", words[0].removeprefix("graphcl."), *words[1:]]
        if words[0] != "graphcl":
            names_of_script(words)
            return
        module = importlib.import_module(COMMANDS[words[1]][0])
        if words[1] != "sweep":
            PARSERS[words[1]].parse(words[2:])
            return
        found = module.parse(words[2:])
        make_plan(found.spec)
        found.out.mkdir(parents=True, exist_ok=True)
        (found.out / "sweep.yaml").write_text(yaml.safe_dump(found.spec))  # a later command may resume it

    monkeypatch.chdir(tmp_path)
    return parsed


def names_of_script(words: list[str]) -> None:
    """Assert that a script exists, and that each option is in the source of a script in its folder."""
    script = ROOT / words[0]
    assert script.is_file(), f"{words[0]} not found"
    sources = script.read_text() + "".join(each.read_text() for each in script.parent.glob("*.py"))
    for word in words[1:]:
        assert not word.startswith("--") or f'"{word}"' in sources, f"{words[0]}: unknown option {word}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_the_commands_of_a_page_parse(page, parse, tmp_path):
    for text in blocks(page, "yaml"):
        (tmp_path / "study.yaml").write_text(text)
    for words in commands(page):
        try:
            parse([*words, *NEW_RUN] if "--resume" in words and "--dataset" not in words else words)
        except InputError as error:
            pytest.fail(f"{shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-m graphcl.run --los adnce", "--los"),
        ("-m graphcl.sweep --loss.temperatur 0.1 0.2 --out x", "temperatur"),
        ("-m graphcl pack --dataset MUTAG --into x", "--into"),
        ("-m graphcl embed runs/x --datset MUTAG --out h.npz", "datset"),
        ("-m graphcl transfer runs/x --dataset MUTAG --mode probe --layers 5", "layers"),
        ("benchmarks/suite.py --mirrors x", "unknown option --mirrors"),
        ("benchmarks/sweet.py", "not found"),
    ],
)
def test_a_wrong_command_fails(parse, words, reason):
    with pytest.raises((InputError, AssertionError, pytest.fail.Exception), match=reason):
        parse(["python", *words.split()])


@pytest.mark.parametrize("page", [page for page in PAGES if options(page)], ids=name)
def test_the_options_in_the_text_exist(page):
    """Options of `graphcl.run` are parsed with their values; other options must occur in the package's source."""
    programs = "".join(each.read_text() for each in (ROOT / "graphcl").rglob("*.py"))
    text = RUN.help(True)
    for option in options(page):
        key, *values = shlex.split(option)
        if f"  {key.split('.')[0]} " not in text:
            assert re.search(rf"{key}\b", SWEEP.help() + programs), f"{page.name}: no program has {key}"
        elif values and key != "--config":
            RUN.parse([key, *values, *NEW_RUN] if key == "--resume" else [key, *values])


def slug(heading: str) -> str:
    """Return the anchor of a heading by the rules of GitHub and MkDocs."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_links_resolve(page):
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", text):
        path, _, anchor = next(filter(None, target)).partition("#")
        if path.startswith(("http:", "https:")):
            continue
        file = Path(os.path.normpath(page.parent / path)) if path else page
        assert file.exists(), f"{page.name}: {path}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", file.read_text()), re.M)
            assert anchor in [slug(each) for each in headings], f"{page.name}: {path}#{anchor}"


@pytest.mark.parametrize("module", [graphcl, losses, augment, methods, datasets, evaluate, diagnostics])
def test_the_reference_has_every_public_name(module):
    pages = "\n".join(expand(page.read_text()) for page in (ROOT / "docs" / "reference").glob("*.md"))
    told = {line.rsplit(".", 1)[1] for line in re.findall(r"^::: (.*)$", pages, re.M)}
    public = getattr(module, "__all__", None) or [
        name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__
    ]
    missing = set(public) - told - {"__version__", "losses"}
    assert not missing, f"add a line `::: module.name` to a page in docs/reference/ for each of {sorted(missing)}"


def test_the_reference_has_no_name_that_is_gone():
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for path in re.findall(r"^::: (.*)$", expand(page.read_text()), re.M):
            module, name = path.rsplit(".", 1)
            assert hasattr(importlib.import_module(module), name), path


def results(page: Path, mark: str) -> dict[tuple[str, str], str]:
    """Return a dict from (recipe, data set) to cell of the table between `<!-- mark -->` and `<!-- end -->`."""
    table = re.search(rf"<!-- {mark} -->\n(.*?)<!-- end -->", page.read_text(), re.S)[1]
    head, *rows = [
        line.strip("| ").split(" | ") for line in table.split("\n") if line.startswith(("| row", "| `"))
    ] or [[]]
    return {(row[0].strip("`"), dataset): cell for row in rows for dataset, cell in zip(head[1:], row[1:], strict=True)}


def test_the_results_in_the_readme_are_those_of_the_page():
    measured, short = results(ROOT / "docs" / "results.md", "rows"), results(PAGES[0], "results")
    assert short
    assert all(measured[place] == cell for place, cell in short.items())


@pytest.mark.parametrize("kind", ["methods", "augmentations"])
def test_the_tables_name_only_what_exists(kind):
    page = (ROOT / "docs" / f"{kind}.md").read_text()
    table = "\n".join(line.split(" | ")[0] for line in page.split("\n") if line.startswith("| `"))
    assert table.count("\n") > 5
    assert set(re.findall(r"`(\w+)`", table)) <= set(getattr(registry, kind))
