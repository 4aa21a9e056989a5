"""Test `graphcl COMMAND`: passed arguments, output, and the exit codes of all commands."""

import errno
import io
import os
import platform
import signal
import subprocess
import sys
import types
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import pytest

from graphcl import __main__ as front
from graphcl import commands
from graphcl.cli import program
from graphcl.errors import InputError, Stopped
from graphcl.system.signals import Stop
from graphcl.version import __version__


def test_every_command_prints_its_help(capsys):
    files = {file.stem for file in Path(commands.__file__).parent.glob("[!_]*.py")}
    assert files - {"blocks", "partition"} == set(commands.COMMANDS)
    for name in commands.summaries():
        assert front.main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: graphcl {name}"), name


def test_arguments_and_exit_code_are_passed_on(monkeypatch):
    given = []
    module = types.SimpleNamespace(main=lambda arguments: given.append(arguments) or 7)
    monkeypatch.setattr(front, "command", {"run": module}.get)
    assert front.main(["run", "--loss", "dcl"]) == 7
    assert front.main(["run"]) == 7
    assert given == [["--loss", "dcl"], []]


def test_what_it_prints(capsys):
    assert front.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed and summary in printed for name, summary in commands.summaries().items())
    assert front.main(["--help", "losses"]) == 0
    assert capsys.readouterr().out.startswith("losses:\n  adnce ")
    assert front.main([]) == 2
    assert capsys.readouterr().out == printed
    assert front.main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphcl {__version__}\n"
    assert front.main(["rnu", "--loss", "dcl"]) == 2
    assert capsys.readouterr().err.startswith("graphcl: unknown command `rnu`; did you mean run? choose from: ")


def test_the_verbose_version_has_what_a_bug_report_needs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "graphcl.graphs._native", types.ModuleType("_native"))
    monkeypatch.setitem(sys.modules, "graphcl.models._gin", None)
    assert front.main(["--version", "--verbose"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    found = dict(line.split(": ", 1) for line in lines)
    assert first == f"graphcl {__version__}"
    for name in ("torch", "torch-geometric", "scipy", "scikit-learn", "numpy"):
        assert found[name] == metadata.version(name)
    assert (found["python"], found["platform"]) == (platform.python_version(), platform.platform())
    assert found["compiled graphs._native"] == "yes"
    assert found["compiled models._gin"].startswith("no (")
    assert {"device", "cores", "threads"} <= found.keys()


@pytest.mark.parametrize(("place", "code", "line"), [("pipe", 0, ""), ("/dev/full", 2, "No space left on device")])
def test_nothing_is_left_to_flush_at_shutdown(place, code, line):
    """With a closed pipe or a full disk, the interpreter raises no error when it flushes stdout at shutdown."""
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


class Failing(io.StringIO):
    """Stream that cannot be written."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(("number", "code"), [(errno.EIO, 0), (errno.ENOSPC, 2)])
def test_a_closed_terminal_or_a_full_log_does_not_end_the_program(number, code, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Failing(number))
    done = []
    with program("nothing was written") as this:
        print("a line")
        done.append("work")
    assert (done, this.code) == (["work"], code)
    assert capsys.readouterr().err == "graphcl: No space left on device.\n" * (code == 2)
    monkeypatch.setattr(sys, "stderr", Failing(number))
    with program("nothing was written") as this:
        print("a line", file=sys.stderr)
        done.append("more")
    assert (done, this.code) == (["work", "more"], code)


@pytest.fixture
def heeding():
    """Heed SIGINT, which shells ignore in background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("listening", "code", "line"),
    [(nullcontext, 130, "\ngraphcl: stopped; all is kept.\n"), (Stop(quiet=True).listening, 75, "")],
)
def test_a_second_quick_interrupt_is_ignored_at_every_call(listening, code, line, capsys, heeding):
    """The second one comes at the n-th call of a function while the first one unwinds."""
    usual, nth, calls = signal.getsignal(signal.SIGINT), 0, []

    def trace(frame, event, argument):
        calls.append(frame)
        if len(calls) == nth:
            signal.raise_signal(signal.SIGINT)

    while nth <= len(calls):
        nth, calls = nth + 1, []
        try:  # not by `suppress`, whose end would be another call
            with program("all is kept") as this, listening():
                sys.settrace(trace)
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:  # after the end of the program, where `graphcl` then ignores it
            pass
        sys.settrace(None)
        assert (this.code, signal.getsignal(signal.SIGINT)) == (code, usual), nth
        assert capsys.readouterr().err == line, nth
    assert nth > 10


EXITS = [
    (InputError("one.\ntwo."), 2, "graphcl: one.\ngraphcl: two.\n"),
    (KeyboardInterrupt(), 130, "\ngraphcl: stopped; nothing was written.\n"),
    (KeyboardInterrupt("all is kept"), 130, "\ngraphcl: stopped; all is kept.\n"),
    (Stopped("saved"), 75, "\ngraphcl: stopped; saved.\n"),
    (Stopped(), 75, ""),
    (OSError(28, "No space left on device", "x/table.md"), 2, "graphcl: No space left on device: x/table.md.\n"),
    (BrokenPipeError(), 0, ""),
    (MemoryError(), 2, "graphcl: out of memory (MemoryError); use smaller batches or a smaller model.\n"),
    (RuntimeError("CPUAllocator: can't allocate memory"), 2,
     "graphcl: out of memory (CPUAllocator: can't allocate memory); use smaller batches or a smaller model.\n"),
]  # fmt: skip


def test_exit_codes_and_messages(capfd):
    for raised, code, message in EXITS:
        with program("nothing was written") as this:
            raise raised
        assert (this.code, capfd.readouterr().err) == (code, message)
