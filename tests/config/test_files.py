"""Settings in files: valid and invalid files."""

import time

import pytest
import yaml

from graphcl.commands.run import COMMAND as RUN
from graphcl.config import make_config, read_config
from graphcl.config.recipes import parse_value
from graphcl.errors import InputError
from tests.memory import peak

HOSTILE = {
    "brackets": ("a: " + "[" * 1_000, "maximum recursion depth"),
    "digits": ("epochs: " + "9" * 100_000, "Exceeds the limit"),
    "date": ("lr: 2020-99-99", "month must be in 1..12"),
    "code": ("lr: !!python/object/apply:os.mkdir [pwned]", "could not determine a constructor"),
    "list": ("- 1\n", "must hold a mapping of settings, got list"),
    "twice": ("lr: 0.1\nloss: {name: dcl}\nlr: 0.2\n", "the key 'lr' is given twice"),
    "twice inside": ("loss: {name: dcl, name: adnce}", "the key 'name' is given twice"),
    "twice as text": ("1: a\n'1': b", "the key '1' is given twice"),
    "JSON": ('{"lr": 0.1, "lr": 0.2}', "the key 'lr' is given twice"),
    "dotted twice": ("loss: {name: adnce, mu: 0.1}\nloss.mu: 0.2", "`loss.mu` is given twice; give it once."),
    "dotted beside a number": ("loss: 3\nloss.mu: 0.2", "`loss.mu` is given beside `loss` 3; give one of them."),
    "binary": ("\udcff\udcfe\0\udc80", "not UTF-8 text: invalid start byte at byte 0"),
    "large": ("#" * (4 * 2**20 + 1), "is larger than 4194304 bytes"),
}


def test_hostile_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, (text, says) in HOSTILE.items():
        (tmp_path / "c.yaml").write_bytes(text.encode(errors="surrogateescape"))
        with peak() as found, pytest.raises(InputError) as caught:
            read_config("c.yaml")
        message = str(caught.value)
        assert message.startswith(("c.yaml ", "`loss.mu` ")), name
        assert says in message, name
        assert message.isprintable(), name
        assert len(message) < 400, name
        assert found[0] < 64 * 2**20, name
        assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"], name


def test_honest_aliases_and_merges(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "views: {first: &v {name: node_drop, ratio: 0.3}, second: *v}\n" + "loss: {<<: {mu: 0.5}, name: adnce}\n"
    )
    config = make_config(read_config(tmp_path / "c.yaml"))
    assert config.views.first == config.views.second == {"name": "node_drop", "ratio": 0.3}
    assert config.loss["mu"] == 0.5


def test_a_name_and_its_arguments_may_stand_beside_each_other(tmp_path):
    text = "loss: adnce\nloss.temperature: 0.1\nviews: {first: node_drop, first.ratio: 0.3}\nevaluation.folds: 3\n"
    (tmp_path / "c.yaml").write_text(text)
    values = read_config(tmp_path / "c.yaml")
    for config in (
        make_config(values),
        make_config(yaml.safe_load(text)),
        RUN.parse(["--config", f"{tmp_path}/c.yaml"]),
    ):
        assert (config.loss["name"], config.loss["temperature"], config.evaluation.folds) == ("adnce", 0.1, 3)
        assert config.views.first == {"name": "node_drop", "ratio": 0.3}
    assert RUN.parse(["--config", f"{tmp_path}/c.yaml", "--loss.temperature", "0.3"]).loss["temperature"] == 0.3


def test_many_mistakes_are_said_at_once():
    many = {f"k{number}": 1 for number in range(20_000)}
    for values in (many, {"evaluation": many}, {"loss": {"name": "infonce", **many}}, {"eval": [*many]}):
        start = time.perf_counter()
        with pytest.raises(InputError) as caught:
            make_config(values)
        assert time.perf_counter() - start < 5
        assert len(str(caught.value)) < 9000


def test_mistakes_are_said_in_few_words(tmp_path):
    texts = {"lr: " + "x" * 10**5: (300, 1), "? " + "k" * 10**5 + "\n: 1": (600, 1), '"a\\nb\\e[2J": 1': (600, 1)}
    texts["\n".join(f"k{number}: 1" for number in range(300))] = 9000, 21
    for text, (most, lines) in texts.items():
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(InputError) as caught:
            make_config(read_config(tmp_path / "c.yaml"))
        assert len(str(caught.value)) < most, text[:20]
        found = str(caught.value).split("\n")
        assert (len(found), all(line.isprintable() for line in found)) == (lines, True), text[:20]


def test_numbers_are_read_as_people_write_them(tmp_path):
    """In YAML 1.1, which PyYAML reads, 010 is 8 and 1:30 is 90."""
    read = [parse_value(text) for text in ("0.7", "1e-3", "-5", "+5", "1.", ".5", "12E3", "inf", "-.inf", "0")]
    assert read == [0.7, 1e-3, -5, 5, 1.0, 0.5, 12e3, float("inf"), -float("inf"), 0]
    assert [parse_value(text) for text in ("010", "1:30", "0x10", "1e", "e5")] == ["010", "1:30", "0x10", "1e", "e5"]
    (tmp_path / "a.yaml").write_text("epochs: 010\n")
    with pytest.raises(InputError, match="`epochs` must be a whole number, got '010'"):
        make_config(read_config(tmp_path / "a.yaml"))
