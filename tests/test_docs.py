"""What the documentation says is so: its examples run, its commands are understood, its links lead somewhere."""

import argparse
import contextlib
import functools
import importlib
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml

import graphcl
from graphcl import (
    augment,
    command_line,
    datasets,
    diagnostics,
    embedding,
    evaluate,
    losses,
    methods,
    registry,
    transfer,
)
from graphcl.__main__ import COMMANDS
from graphcl.errors import InputError
from graphcl.sweep import command, make_plan

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def commands(page: Path) -> list[list[str]]:
    """The words of each command, without its comment."""
    text = "\n".join(blocks(page, "", "sh"))
    lines = [part for line in text.split("\n") for part in line.split("&&")]
    return [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(python3?|graphcl) ", line)]


def options(page: Path) -> list[str]:
    """Options that the text names, `--like this`."""
    return re.findall(r"`(--[^`]+)`", BLOCK.sub("", page.read_text()).replace("\n", " "))


@pytest.fixture
def own_names(monkeypatch):
    """What a page registers is forgotten after it."""
    for each in (registry.losses, registry.augmentations, registry.encoders, registry.methods):
        len(each)  # so that everything of the package is there
        for kept in ("_targets", "_arguments", "_facts"):
            monkeypatch.setattr(each, kept, dict(getattr(each, kept)))


@pytest.fixture(scope="module")
def synthetic():
    return graphcl.load_dataset("synthetic")


@pytest.fixture
def quick(monkeypatch, synthetic):
    """The embedded set is made once for all pages, and the SVM scores on fewer folds."""
    load = graphcl.load_dataset

    def known(source, **others):
        return synthetic if isinstance(source, str) and source == "synthetic" else load(source, **others)

    monkeypatch.setattr(graphcl, "load_dataset", known)
    monkeypatch.setattr(graphcl, "svm", functools.partial(graphcl.svm, folds=2, inner_folds=2))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, own_names, quick):
    """As one script, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    exec(compile(source, str(page), "exec"), {"__name__": "__main__"})


def test_there_is_python_to_run():
    assert len([page for page in PAGES if blocks(page, "python")]) >= 7


class UnderstoodError(Exception):
    """A command's words were parsed."""


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Parses a command as its program does, and goes no further."""
    original = argparse.ArgumentParser.parse_args

    def parse_args(parser, *given, **others):
        original(parser, *given, **others)
        raise UnderstoodError

    def parsed(words: list[str]) -> None:
        words = ["-m", *words] if words[0] == "graphcl" else words[1:]
        if words[:2] == ["-m", "graphcl"]:  # the same programs through the one door
            words = ["-m", COMMANDS[words[2]][0].removesuffix(".__main__"), *words[3:]]
        if words[0] != "-m":
            names_of_script(words)
        elif "--help" in words or words[1] == "venv":
            return
        elif words[1] == "graphcl.run":
            command_line.parse(words[2:])
        elif words[1] == "graphcl.commands.embed":
            embedding.parse(words[2:])
        elif words[1] == "graphcl.commands.transfer":
            transfer.parse(words[2:])
        elif words[1] == "graphcl.sweep":
            found = command.parse(words[2:])
            make_plan(found.spec)
            found.out.mkdir(parents=True, exist_ok=True)
            (found.out / "sweep.yaml").write_text(yaml.safe_dump(found.spec))  # for a command that goes on with it
        else:
            program = importlib.import_module(words[1])
            with contextlib.suppress(UnderstoodError):
                pytest.fail(f"{shlex.join(words)} was not understood: {program.main(words[2:])}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    return parsed


def names_of_script(words: list[str]) -> None:
    """Scripts are not run, as studies register losses: an option must stand in the script, or in one beside it."""
    script = ROOT / words[0]
    assert script.is_file(), f"there is no {words[0]}"
    sources = script.read_text() + "".join(each.read_text() for each in script.parent.glob("*.py"))
    for word in words[1:]:
        assert not word.startswith("--") or f'"{word}"' in sources, f"{words[0]} takes no {word}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_the_commands_of_a_page_are_understood(page, parse, tmp_path):
    for text in blocks(page, "yaml"):
        (tmp_path / "study.yaml").write_text(text)
    for words in commands(page):
        try:
            parse(words)
        except InputError as error:
            pytest.fail(f"{shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-m graphcl.run --los adnce", "--los"),
        ("-m graphcl.sweep --loss.temperatur 0.1 0.2 --out x", "temperatur"),
        ("-m graphcl.commands.pack --dataset MUTAG --into x", "not understood: 2"),
        ("-m graphcl embed runs/x --datset MUTAG --out h.npz", "datset"),
        ("-m graphcl transfer runs/x --dataset MUTAG --mode probe --layers 5", "layers"),
        ("benchmarks/suite.py --mirrors x", "takes no --mirrors"),
        ("benchmarks/sweet.py", "there is no"),
    ],
)
def test_a_wrong_command_is_seen(parse, words, reason):
    with pytest.raises((InputError, AssertionError, pytest.fail.Exception), match=reason):
        parse(["python", *words.split()])


@pytest.mark.parametrize("page", [page for page in PAGES if options(page)], ids=name)
def test_the_options_in_the_text_are_understood(page):
    """Those of `graphcl.run` with their values, if there are any; others by their names in some program."""
    programs = "".join(each.read_text() for each in (ROOT / "graphcl").rglob("*.py"))
    text = command_line.help_text()
    for option in options(page):
        key, *values = shlex.split(option)
        if f"  {key.split('.')[0]} " not in text:
            assert re.search(rf"{key}\b", command.HELP + programs), f"{page.name}: no program has {key}"
        elif values and key != "--config":
            command_line.parse([key, *values])


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs make it."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name)
def test_links_lead_somewhere(page):
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
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    told = {line.rsplit(".", 1)[1] for line in re.findall(r"^::: (.*)$", pages, re.M)}
    public = getattr(module, "__all__", None) or [
        name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__
    ]
    missing = set(public) - told - {"__version__", "losses"}
    assert not missing, f"add a line `::: module.name` to a page in docs/reference/ for each of {sorted(missing)}"


def test_the_reference_has_no_name_that_is_gone():
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for path in re.findall(r"^::: (.*)$", page.read_text(), re.M):
            module, name = path.rsplit(".", 1)
            assert hasattr(importlib.import_module(module), name), path


def test_the_table_of_losses():
    """It says what the registry says."""
    shared = {"negatives", "symmetric", "engine", "reduction"}
    gathers = {"gather_negatives": "negatives", "global_statistics": "statistics", "local": "nothing"}
    page = (ROOT / "docs" / "losses.md").read_text()
    found = {}
    for line in page.split("\n"):
        if match := re.match(r"\| `(\w+)` \| .* \| (.*) \| (\S+) \| (\S+) \| (\S+) \| (\w+) \| `(\w+)` \|$", line):
            name, own, *rest = match.groups()
            found[name] = [set(re.findall(r"`(\w+)`", own)), *rest]
    expected = {}
    for name in registry.losses:
        arguments, facts = registry.losses.arguments(name), registry.losses.facts(name)
        has = ("queue" in arguments.tensors, "weight" in arguments.tensors, "engine" in arguments.defaults)
        marks = ["yes" if each else "-" for each in has]
        own = set(arguments.defaults) - shared
        expected[name] = [own, *marks, gathers[facts["gathering"]], facts["method"]]
    assert found == expected
    assert f"| {len(found)}, from 500 rows" in PAGES[0].read_text()


def test_the_published_rows_are_those_of_the_configurations():
    page = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page.partition("<!-- end -->")[0], re.M)
    for recipe, cells in rows:
        for dataset, cell in zip(["MUTAG", "PROTEINS", "NCI1", "IMDB-BINARY"], cells.split(" | "), strict=True):
            head = (ROOT / "configs" / recipe / f"{dataset}.yaml").read_text()
            assert f"measured: {cell.split(' (')[0]}\n" in head, f"{recipe}/{dataset}"
    assert len(rows) >= 8
    for row in re.findall(r"^\| `(?:graphcl|adnce)` .*$", PAGES[0].read_text(), re.M):
        assert row in page


@pytest.mark.parametrize("kind", ["methods", "augmentations"])
def test_the_tables_of_methods_and_augmentations(kind):
    page = (ROOT / "docs" / f"{kind}.md").read_text()
    table = "\n".join(line.split(" | ")[0] for line in page.split("\n") if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", table)) == set(getattr(registry, kind))
