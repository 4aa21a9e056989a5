"""Settings in files: what is read, what cannot be, and that the configurations that come with the package are whole."""

import re
from pathlib import Path

import pytest
import yaml

from graphcl.config import make_config
from graphcl.config_files import parse_value, read_config, shipped_configs
from graphcl.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", 0.7), ("1e-3", 1e-3), ("-2E5", -2e5), ("3", 3), ("true", True), ("[1, 2]", [1, 2]), ("null", None),
     ("adnce", "adnce"), (".inf", float("inf")), ("a: [", "a: [")],
)  # fmt: skip
def test_values_of_the_command_line(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="there is no file or configuration 'adnce/MUTAGG'; did you mean adnce/MUTAG"):
        read_config("adnce/MUTAGG")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="must hold a mapping of settings, got list"):
        read_config(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(InputError, match=r"broken\.yaml is not readable as YAML: "):
        read_config(tmp_path / "broken.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="not readable as YAML"):
        read_config(tmp_path / "binary.yaml")
    with pytest.raises(InputError, match="not readable as YAML"):
        read_config(tmp_path)


HERE = ["IMDB-BINARY", "MUTAG", "NCI1", "PROTEINS"]
ELSEWHERE = ["COLLAB", "DD", "IMDB-MULTI", "REDDIT-BINARY", "REDDIT-MULTI-5K"]
PUBLISHED = ["adnce", "adnce_baseline", "dcl", "flatnce", "graphcl", "infograph", "joao", "joao_v2", "simgrace"]


def test_there_is_a_configuration_for_every_published_row():
    assert sorted(name for name in shipped_configs() if name.split("/")[0] in PUBLISHED) == sorted(
        f"{method}/{name}" for method in PUBLISHED for name in HERE + ELSEWHERE
    )


@pytest.mark.parametrize("name", [name for name in sorted(shipped_configs()) if name.split("/")[0] in PUBLISHED])
def test_configurations_say_their_command_and_give_only_differences(name):
    file = shipped_configs()[name]
    text = file.read_text()
    assert text.split("\n")[0] == f"# python -m graphcl.run --config {name}"
    assert max(map(len, text.split("\n"))) <= 120
    (published,) = re.findall(r"^#.*\bpublished: (.*?)  ", text, re.MULTILINE)
    assert re.fullmatch(r"\d+\.\d+ ± \d+\.\d+|unknown to us|none", published)
    (measured,) = re.findall(r"^#.*\bmeasured: (.+)$", text, re.MULTILINE)
    here = Path(name).name in HERE
    assert re.fullmatch(r"\d+\.\d+ ± \d+\.\d+" if here else "the data set is not here", measured)
    values = yaml.safe_load(file.read_text())
    defaults = make_config({}).model_dump()
    assert all(defaults[key] != value for key, value in values.items())
    assert make_config(values).dataset == Path(name).name


def test_the_recipes_of_our_own_say_how_they_were_chosen():
    own = {name: file.read_text() for name, file in shipped_configs().items() if name.startswith("best/")}
    assert sorted(own) == sorted(f"best/{name}" for name in [*HERE, "default"])
    for name, text in own.items():
        assert text.split("\n")[0].startswith(f"# python -m graphcl.run --config {name}")
        assert "docs/studies/recipes.md" in text
        assert "accuracy on inner folds" in text
        assert re.search(r"\d+\.\d+ ± \d+\.\d+.*untrained", text, re.DOTALL)
    assert "dataset" not in yaml.safe_load(own["best/default"])
