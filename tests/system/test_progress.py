"""Progress: lines without a terminal, nothing outside commands."""

import re
import threading

from graphcl.system import progress as module
from graphcl.system.progress import progress, showing


def count(total, steps):
    with progress("embedding", total) as update:
        for step in steps:
            update(step)


def test_lines_have_the_count_the_rate_and_the_time_left(monkeypatch, capsys):
    count(10, [5, 5])
    with showing():
        count(10, [5, 5])  # done before the first line is due
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "INTERVAL", 1e-9)
    with showing():
        count(4000, [1000, 3000])
        count(None, [7])
    lines = capsys.readouterr().err.splitlines()
    known = [line for line in lines if re.fullmatch(r"embedding: \d\.\d0k of 4\.00k, .* graphs/s, \S+ left", line)]
    assert [line.split()[1] for line in known][-2:] == ["1.00k", "4.00k"]
    assert lines[-1].startswith("embedding: 7.00 graphs [")


def test_other_ranks_show_nothing(monkeypatch, capsys):
    monkeypatch.setattr(module, "INTERVAL", 1e-9)
    monkeypatch.setenv("RANK", "1")
    with showing():
        count(4, [4])
    assert capsys.readouterr().err == ""


def test_lines_leave_no_threads():
    """Fine-tuning opens one for each epoch, thousands in a command."""
    before = threading.active_count()
    with showing():
        for _ in range(3):
            with progress("embedding", 2) as update:
                update(2)
    assert threading.active_count() == before
