"""Test the preparation of a data set by concurrent, killed and failing processes."""

import multiprocessing
import os
import signal
import time
from unittest.mock import Mock

import pytest

from graphcl.datasets import cache, load_dataset
from graphcl.datasets.sources import tu
from graphcl.errors import InputError

fork = multiprocessing.get_context("fork")  # a new interpreter would take seconds to import torch


def child(*args):
    """Start a process that loads a set, and return the process; its exit code is 0 on success."""
    process = fork.Process(target=load_dataset, args=args)
    process.start()
    return process


def seen(root):
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


def test_after_a_killed_process_the_next_prepares_the_set_once(mirror, root, tmp_path, monkeypatch):
    read = tu.read_texts

    def noted(*args):
        (tmp_path / f"prepared-{os.getpid()}").touch()
        return read(*args)

    with monkeypatch.context() as patch:
        patch.setattr(tu, "read_texts", lambda *args: ((tmp_path / "begun").touch(), time.sleep(60)))
        killed = child("TINY", root, mirror)
        while not (tmp_path / "begun").exists():
            assert killed.is_alive()
            time.sleep(0.01)
    monkeypatch.setattr(tu, "read_texts", noted)
    waiting = [child("TINY", root, mirror) for _ in range(2)]
    time.sleep(0.3)
    assert [each.is_alive() for each in waiting] == [True, True]
    assert [name.startswith(".TINY.partial-") for name in seen(root)] == [True]
    os.kill(killed.pid, signal.SIGKILL)
    [each.join(60) for each in (killed, *waiting)]
    assert [each.exitcode for each in waiting] == [0, 0]
    assert len(list(tmp_path.glob("prepared-*"))) == 1
    assert seen(root) == ["TINY"]


def test_a_failure_leaves_nothing(mirror, root, monkeypatch):
    for error in (KeyboardInterrupt("key"), OSError(28, "No space left on device")):
        monkeypatch.setattr(tu, "read_texts", Mock(side_effect=error))
        with pytest.raises((KeyboardInterrupt, InputError), match=r"key|No space left on device"):
            load_dataset("TINY", root, mirror)
        assert seen(root) == []


def test_places_without_locks_or_permission(mirror, root, tmp_path, monkeypatch):
    """Test a file system without locks, such as some network file systems, and a cache that is only readable."""
    with monkeypatch.context() as patch:
        patch.setattr(cache.FileLock, "acquire", Mock(side_effect=NotImplementedError))
        assert len(load_dataset("TINY", root, mirror)) == 3
    (root / ".TINY.lock").mkdir()  # a lock cannot be taken
    assert len(load_dataset("TINY", root)) == 3
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot prepare TINY in"):
        load_dataset("TINY", tmp_path / "file", mirror)
