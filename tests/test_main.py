"""The front door: each command is handed its words, and nothing else is loaded."""

import importlib
import io
import os
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

from graphcl import __main__ as front
from graphcl.version import __version__


@pytest.mark.parametrize("name", sorted(front.COMMANDS))
def test_every_command_prints_its_help(name, capsys):
    try:
        code = front.main([name, "--help"])
    except SystemExit as stop:  # argparse's way
        code = stop.code
    assert not code
    assert "usage:" in capsys.readouterr().out


def test_words_and_code_are_passed_on(monkeypatch):
    given = []
    module = types.SimpleNamespace(main=lambda words: given.append(words) or 7)
    monkeypatch.setattr(front.importlib, "import_module", lambda name: {"graphcl.run": module}[name])
    assert front.main(["run", "--loss", "dcl"]) == 7
    assert front.main(["run"]) == 7
    assert given == [["--loss", "dcl"], []]


def test_what_it_says(capsys):
    assert front.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed and summary in printed for name, (_, summary) in front.COMMANDS.items())
    assert front.main([]) == 2
    assert capsys.readouterr().out == printed
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphcl {__version__}\n"
    assert front.main(["rnu", "--loss", "dcl"]) == 2
    assert capsys.readouterr().err.startswith("graphcl: `rnu` is no command; did you mean run? choose from: ")
    assert front.main(["--dataset", "MUTAG"]) == 2
    assert "`--dataset` is no command" in capsys.readouterr().err


def test_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["graphcl", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("graphcl", run_name="__main__")
    assert capsys.readouterr().out.startswith("usage: graphcl COMMAND ...")


def test_nobody_reads_the_help(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert front.main(["--help"]) == 0


@pytest.mark.parametrize(("place", "code", "line"), [("pipe", 0, ""), ("/dev/full", 2, "No space left on device")])
def test_what_is_left_to_be_written_at_the_end(place, code, line):
    """In a process of its own: Python itself writes out the buffer when it ends, and complained."""
    if place == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    elif Path(place).exists():
        writer = os.open(place, os.O_WRONLY)
    else:
        pytest.skip(f"there is no {place}")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    try:
        words = [sys.executable, "-m", "graphcl", "--help"]
        found = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, env=environment, text=True, timeout=100)
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (code, f"graphcl: {line}.\n" if line else "")


@pytest.mark.parametrize("name", sorted(front.COMMANDS))
def test_a_reader_that_goes_away_is_no_mistake(name, monkeypatch, capsys):
    """As with `| head`: the work is done, only nobody listens."""
    module = importlib.import_module(front.COMMANDS[name][0])
    inner = {"embed": "_run", "pack": "write_on_disk", "show": "show_run", "sweep": "_run"}.get(name, name)

    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(module, inner, gone)
    words = {
        "embed": ["e.pt", "--dataset", "synthetic", "--out", "nowhere.npz"],
        "pack": ["--dataset", "synthetic", "--out", "nowhere"],
        "show": ["nowhere"],
        "sweep": ["--loss", "infonce", "dcl", "--out", "nowhere"],
        "transfer": ["e.pt", "--dataset", "synthetic", "--mode", "probe"],
    }
    assert front.main([name, *words.get(name, [])]) == 0
    assert capsys.readouterr() == ("", "")
