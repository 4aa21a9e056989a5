"""The targets on honest, kept and drawn inputs, and proof that the harness notices one that does not keep its word."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphcl.errors import InputError
from tests.fuzz import targets
from tests.fuzz.targets import CORPUS, TARGETS, run, seeds
from tests.fuzz.watch import peak

MOST = 400 * 2**20
each_target = pytest.mark.parametrize("target", TARGETS)
TOKENS = [
    b"\0",
    b"\xff",
    b"-1",
    b"9" * 30,
    b"1e999",
    b"nan",
    b"\r",
    b"\n",
    b",",
    b"[",
    b"{",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!",
]
TOKENS += [b"\xef\xbb\xbf", b"\xed\xa0\x80", b"0x", b"1_0", b"\\", b"T", b"Q", b".", b"R", b"b", b"(", b"t", b"s", b"u"]


@st.composite
def inputs(draw, target):
    """An honest input with a few changes; now and then any bytes."""
    content = bytearray(draw(st.sampled_from(seeds(target)) | st.binary(max_size=60)))
    for _ in range(draw(st.integers(1, 4))):
        at, many = draw(st.integers(0, len(content))), draw(st.sampled_from([0, 1, 4, 40]))
        content[at : at + many] = draw(st.sampled_from(TOKENS) | st.binary(max_size=4))
    return bytes(content)


@each_target
def test_honest_inputs_are_read(target):
    assert [run(target, content) for content in seeds(target)] == [None] * len(seeds(target))


@each_target
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_drawn_inputs_are_read_or_refused(target, data):
    with peak() as found:
        run(target, data.draw(inputs(target)))
    assert found[0] < MOST


@each_target
def test_kept_inputs_are_read_or_refused(target):
    """What coverage-guided fuzzing found worth keeping, and what once went wrong."""
    kept = sorted((CORPUS / target).iterdir())
    assert kept
    with peak() as found:
        for file in kept:
            run(target, file.read_bytes())
    assert found[0] < MOST


def test_the_corpus_is_small_and_of_known_targets():
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert sum(file.stat().st_size for file in CORPUS.rglob("*")) < 400_000


BROKEN = {
    "another-error": (lambda content, place: {}[content], KeyError),
    "several-lines": (lambda content, place: _raise("one\ntwo"), AssertionError),
    "an-empty-line": (lambda content, place: _raise(""), AssertionError),
    "a-file-outside": (lambda content, place: Path(place, "..", "out").write_text(""), AssertionError),
    "a-folder-outside": (lambda content, place: Path(place, "..", "out").mkdir(), AssertionError),
    "through-a-link": (lambda content, place: _write_through(place), AssertionError),
    "a-program": (lambda content, place: subprocess.run(["true"], check=True), AssertionError),
    "a-system-call": (lambda content, place: os.system("true"), AssertionError),
}


def _raise(message):
    raise InputError(message)


def _write_through(place):
    Path(place, "link").symlink_to(place.parent / "out")
    Path(place, "link").write_text("")


@pytest.mark.parametrize("broken", BROKEN)
def test_the_harness_notices(broken, monkeypatch):
    target, error = BROKEN[broken]
    monkeypatch.setitem(targets.TARGETS, "broken", target)
    with pytest.raises(error):
        run("broken", b"content")


def test_the_harness_passes_a_refusal(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "fine", lambda content, place: _raise("`lr` must be in (0, inf)."))
    assert run("fine", b"") == "`lr` must be in (0, inf)."
