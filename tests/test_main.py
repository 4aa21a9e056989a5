"""`graphcl COMMAND`: what it passes on, what it prints, and the exit codes that all commands share."""

import io
import os
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

from graphcl import __main__ as front
from graphcl.config.entry_point import entry_point
from graphcl.errors import InputError, Stopped
from graphcl.version import __version__


@pytest.mark.parametrize("name", sorted(front.COMMANDS))
def test_every_command_prints_its_help(name, capsys):
    assert front.main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: graphcl ")


def test_arguments_and_exit_code_are_passed_on(monkeypatch):
    given = []
    module = types.SimpleNamespace(main=lambda arguments: given.append(arguments) or 7)
    monkeypatch.setattr(front.importlib, "import_module", lambda name: {"graphcl.run": module}[name])
    assert front.main(["run", "--loss", "dcl"]) == 7
    assert front.main(["run"]) == 7
    assert given == [["--loss", "dcl"], []]


def test_what_it_prints(capsys):
    assert front.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed and summary in printed for name, (_, summary) in front.COMMANDS.items())
    assert front.main([]) == 2
    assert capsys.readouterr().out == printed
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphcl {__version__}\n"
    assert front.main(["rnu", "--loss", "dcl"]) == 2
    assert capsys.readouterr().err.startswith("graphcl: unknown command `rnu`; did you mean run? choose from: ")


def test_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["graphcl", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("graphcl", run_name="__main__")
    assert capsys.readouterr().out.startswith("usage: graphcl COMMAND ...")


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_reader_that_is_gone_is_not_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Gone())
    assert front.main(["--help"]) == 0


@pytest.mark.parametrize(("place", "code", "line"), [("pipe", 0, ""), ("/dev/full", 2, "No space left on device")])
def test_nothing_is_left_to_flush_at_shutdown(place, code, line):
    """In a process of its own, because the interpreter flushes stdout when it ends, and would complain."""
    if place == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    elif Path(place).exists():
        writer = os.open(place, os.O_WRONLY)
    else:
        pytest.skip(f"no {place}")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    try:
        command = [sys.executable, "-m", "graphcl", "--help"]
        found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, text=True, timeout=100)
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (code, f"graphcl: {line}.\n" if line else "")


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (InputError("one.\ntwo."), 2, "graphcl: one.\ngraphcl: two.\n"),
        (KeyboardInterrupt(), 130, "\ngraphcl: stopped; nothing was written.\n"),
        (KeyboardInterrupt("all is kept"), 130, "\ngraphcl: stopped; all is kept.\n"),
        (Stopped("saved"), 75, "\ngraphcl: stopped; saved.\n"),
        (Stopped(), 75, ""),
        (OSError(28, "No space left on device", "x/table.md"), 2, "graphcl: No space left on device: x/table.md.\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_exit_codes_and_messages(raised, code, message, capfd):
    @entry_point("nothing was written")
    def main(arguments):
        raise raised

    assert main([]) == code
    assert capfd.readouterr().err == message
