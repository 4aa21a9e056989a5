"""Test the preparation of a data set by concurrent, killed and failing processes."""

import multiprocessing
import os
import signal
import time

import pytest

from graphcl.datasets import load_dataset, staging
from graphcl.datasets.tu.load import _Reader
from graphcl.errors import InputError

fork = multiprocessing.get_context("fork")  # a new interpreter would take seconds to import torch


def child(*args):
    """Start a process that loads a set, and return the process; its exit code is 0 on success."""

    def body():
        try:
            load_dataset(*args)
        except BaseException:
            os._exit(1)
        os._exit(0)  # skips pytest's exit handlers

    process = fork.Process(target=body)
    process.start()
    return process


def seen(root):
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


def test_two_processes_prepare_a_set_once(mirror, root, tmp_path, monkeypatch):
    process = _Reader.process

    def noted(self):
        (tmp_path / f"prepared-{os.getpid()}").write_text("")
        time.sleep(0.3)
        process(self)

    monkeypatch.setattr(_Reader, "process", noted)
    children = [child("TINY", root, mirror) for _ in range(2)]
    [each.join(60) for each in children]
    assert [each.exitcode for each in children] == [0, 0]
    assert len(list(tmp_path.glob("prepared-*"))) == 1
    assert seen(root) == ["TINY"]


def test_a_killed_process_leaves_nothing_that_is_used(mirror, root, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_Reader, "process", lambda self: ((tmp_path / "begun").write_text(""), time.sleep(60)))
        killed = child("TINY", root, mirror)
        while not (tmp_path / "begun").exists():
            assert killed.is_alive()
            time.sleep(0.01)
    waits = child("TINY", root, mirror)
    time.sleep(0.3)
    assert waits.is_alive()
    assert [name.startswith(".TINY.partial-") for name in seen(root)] == [True]
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(), waits.join(60)
    assert waits.exitcode == 0
    assert seen(root) == ["TINY"]


def test_a_failure_leaves_nothing(mirror, root, monkeypatch):
    for error in (KeyboardInterrupt(), InputError("line"), OSError(28, "No space left on device")):

        def fail(self, error=error):
            raise error

        monkeypatch.setattr(_Reader, "process", fail)
        with pytest.raises((KeyboardInterrupt, InputError), match=r"line|No space left on device|^$"):
            load_dataset("TINY", root, mirror)
        assert seen(root) == []


def test_places_without_locks_or_permission(mirror, root, tmp_path, monkeypatch):
    """Test a file system without locks, such as some network file systems, and a cache that is only readable."""

    def no_locks(*args, **options):
        raise NotImplementedError

    with monkeypatch.context() as patch:
        patch.setattr(staging.FileLock, "acquire", no_locks)
        assert len(load_dataset("TINY", root, mirror)) == 3
    (root / ".TINY.lock").mkdir()  # a lock cannot be taken
    assert len(load_dataset("TINY", root)) == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot prepare TINY in"):
        load_dataset("TINY", tmp_path / "file", mirror)
