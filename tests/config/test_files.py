"""Settings in files: valid and invalid files."""

import pytest

from graphcl.config import make_config, read_config
from graphcl.config.files import parse_value
from graphcl.errors import InputError
from tests.memory import peak


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", 0.7), ("1e-3", 1e-3), ("-2E5", -2e5), ("3", 3), ("true", True), ("[1, 2]", [1, 2]), ("null", None),
     ("adnce", "adnce"), (".inf", float("inf")), ("+-inf", "+-inf"), ("a: [", "a: [")],
)  # fmt: skip
def test_values_of_the_command_line(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def laughs(mapping=False):
    """Return a short YAML text whose nested aliases expand to 10^9 entries."""
    first = "{x: 1}" if mapping else "[1]"
    lines = [f"a0: &a0 {first}"]
    for number in range(1, 10):
        ten = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {{<<: [{ten}]}}" if mapping else f"a{number}: &a{number} [{ten}]")
    return "\n".join(lines)


HOSTILE = {
    "aliases": (laughs(), "its aliases unfold to too much"),
    "merges": (laughs(mapping=True), "its aliases unfold to too much"),
    "itself": ("a: &a [*a]", "its aliases unfold to too much"),
    "brackets": ("a: " + "[" * 100_000, "maximum recursion depth"),
    "deep": ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
    "digits": ("epochs: " + "9" * 100_000, "Exceeds the limit"),
    "date": ("lr: 2020-99-99", "month must be in 1..12"),
    "no-number": ("lr: !!int ''", "index out of range"),
    "code": ("lr: !!python/object/apply:os.mkdir [pwned]", "could not determine a constructor"),
    "NUL": (r'dataset: "a\0b"', "a text holds a NUL character"),
    "control": ("lr: \x07", "special characters are not allowed"),
    "list": ("- 1\n", "must hold a mapping of settings, got list"),
    "half": ("a: [\n", "is not readable as YAML: "),
    "binary": ("\udcff\udcfe\0\udc80", "not UTF-8 text: invalid start byte at byte 0"),
    "large": ("#" * (4 * 2**20 + 1), "is larger than 4194304 bytes"),
}


@pytest.mark.parametrize(("text", "says"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(text, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_bytes(text.encode(errors="surrogateescape"))
    with peak() as found, pytest.raises(InputError) as caught:
        read_config("c.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("c.yaml ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert found[0] < 64 * 2**20
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_honest_aliases_and_merges(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "views: {first: &v {name: node_drop, ratio: 0.3}, second: *v}\n" + "loss: {<<: {mu: 0.5}, name: adnce}\n"
    )
    config = make_config(read_config(tmp_path / "c.yaml"))
    assert config.views.first == config.views.second == {"name": "node_drop", "ratio": 0.3}
    assert config.loss["mu"] == 0.5


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_marks_and_line_ends_of_other_systems(start, end, tmp_path):
    (tmp_path / "c.yaml").write_bytes(f"{start}lr: 0.5{end}epochs: 3{end}".encode())
    assert read_config(tmp_path / "c.yaml") == {"lr": 0.5, "epochs": 3}


SAID = {
    "long-value": ("lr: " + "x" * 10**6, 300, 1),
    "long-key": ("? " + "k" * 10**5 + "\n: 1", 600, 1),
    "lines-in-a-key": ('"a\\nb\\e[2J": 1', 600, 1),
    "many-keys": ("\n".join(f"k{number}: 1" for number in range(300)), 9000, 21),
    "other-keys": ("null: 1\n1: 2\n2020-01-01: 3", 1500, 3),
    "infinite": ("lr: 1e999", 100, 1),
}


@pytest.mark.parametrize(("text", "most", "lines"), SAID.values(), ids=SAID)
def test_mistakes_are_said_in_few_words(text, most, lines, tmp_path):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        make_config(read_config(tmp_path / "c.yaml"))
    assert len(str(caught.value)) < most
    assert len(str(caught.value).split("\n")) == lines
    assert str(caught.value).replace("\n", "").isprintable()
