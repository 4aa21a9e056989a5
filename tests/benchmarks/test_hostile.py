"""The table of hostile inputs: a small part of each kind, and that it counts what goes wrong."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from graphcl.errors import InputError
from tests.fuzz import targets

FILE = Path(__file__).parents[2] / "benchmarks" / "hostile.py"


@pytest.fixture
def hostile(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark_hostile", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark_hostile", module)  # for its dataclasses
    spec.loader.exec_module(module)
    monkeypatch.setattr(targets, "TARGETS", {**targets.TARGETS, **module.MORE})
    return module


def test_a_small_part_of_each_kind(hostile, capsys):
    tried = sorted(set(hostile.kinds(None)) - {"tu", "bombs"})  # for which the embedded set is made, in seconds
    assert hostile.main(["--share", "0.001", "--kinds", *tried]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == len(tried)
    assert all(row[4:6] == ["0", "0"] for row in rows)
    assert sum(int(row[1]) for row in rows) > 40


def test_what_goes_wrong_is_counted(hostile, monkeypatch):
    def dies(content, place):
        os._exit(3)

    def refuses(content, place):
        raise InputError("no.")

    broken = {
        "raises": lambda content, place: {}[content],
        "writes": lambda content, place: (place / ".." / "out").write_text(""),
        "dies": dies,
        "refuses": refuses,
        "reads": lambda content, place: None,
    }
    monkeypatch.setattr(targets, "TARGETS", broken)
    count = hostile.tally(iter([(name, b"") for name in broken]), 1)
    assert (count.tracebacks, count.outside, count.refused, count.read) == (2, 1, 1, 1)


def test_a_canary_is_seen(hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "canary").write_text("")
    with pytest.raises(AssertionError):
        hostile.torch_code(b"", tmp_path)


def test_every_line_is_changed_in_turn(hostile):
    files = {"A": b"1, 2\n2, 1\n", "graph_labels": b"1\n"}
    inputs = [content for _, content in hostile.line_by_line(files, len(hostile.LINES))]
    assert len(inputs) == 3 * len(hostile.LINES)
    changed = [each["A"] for each in inputs if each["A"] != files["A"]]
    assert len(set(changed)) == 2 * len(hostile.LINES)
