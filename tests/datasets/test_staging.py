"""Test the preparation of a data set by concurrent and killed processes, and on full and read-only disks."""

import multiprocessing
import os
import signal
import subprocess
import time

import pytest

import graphcl.datasets.tu as tu
from graphcl.datasets import load_dataset
from graphcl.datasets.staging import staged
from graphcl.errors import InputError
from tests.conftest import SHARED

fork = multiprocessing.get_context("fork")  # a new interpreter would take seconds to import torch


def child(work, *args):
    """Start a process that calls `work`, and return the process; its exit code is 0 on success."""

    def body():
        try:
            work(*args)
        except BaseException:
            os._exit(1)
        os._exit(0)  # skips pytest's exit handlers

    process = fork.Process(target=body)
    process.start()
    return process


def until(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


@pytest.fixture
def stops(monkeypatch, tmp_path):
    """Return `(monkeypatch, stop, begun)`: `stop` creates the file `begun`, then waits until the process is killed."""
    begun = tmp_path / "begun"

    def stop(*args):
        begun.write_text("")
        time.sleep(60)

    return monkeypatch, stop, begun


def test_two_processes_prepare_a_set_once(mirror, root, tmp_path, monkeypatch):
    name, place = ("PROTEINS", SHARED) if (SHARED / "PROTEINS.zip").is_file() else ("TINY", mirror)
    check = tu.check_text

    def noted(*args):
        (tmp_path / f"prepared-{os.getpid()}").write_text("")
        check(*args)

    monkeypatch.setattr(tu, "check_text", noted)
    children = [child(load_dataset, name, root, place) for _ in range(2)]
    [process.join(60) for process in children]
    assert [process.exitcode for process in children] == [0, 0]
    assert len(list(tmp_path.glob("prepared-*"))) == 1
    assert os.listdir(root) == [name]
    assert len(load_dataset(name, root)) == (1113 if name == "PROTEINS" else 3)


def test_a_killed_process_leaves_nothing_that_is_used(mirror, root, stops):
    monkeypatch, stop, begun = stops
    with monkeypatch.context() as patch:
        patch.setattr(tu, "check_text", stop)
        killed = child(load_dataset, "TINY", root, mirror)
        until(begun.exists)
        left = sorted(path.name for path in root.iterdir())
        assert len(left) == 2  # the lock file and the hidden folder
        assert all(name.startswith(".TINY") for name in left)
        waits = child(load_dataset, "TINY", root, mirror)
        time.sleep(0.1)
        assert waits.is_alive()
        os.kill(waits.pid, signal.SIGKILL)
        os.kill(killed.pid, signal.SIGKILL)
        killed.join(), waits.join()
    assert len(load_dataset("TINY", root, mirror)) == 3
    assert os.listdir(root) == ["TINY"]


def test_a_waiting_process_continues_when_the_other_is_killed(mirror, root, stops, capfd):
    monkeypatch, stop, begun = stops
    with monkeypatch.context() as patch:
        patch.setattr(tu, "check_text", stop)
        killed = child(load_dataset, "TINY", root, mirror)
        until(begun.exists)
    waits = child(load_dataset, "TINY", root, mirror)
    told = ""

    def said():
        nonlocal told
        told += capfd.readouterr().err
        return "another process is preparing TINY; waiting for it" in told

    until(said)
    os.kill(killed.pid, signal.SIGKILL)
    waits.join(20)
    killed.join()
    assert waits.exitcode == 0
    assert os.listdir(root) == ["TINY"]


def test_a_lock_that_nobody_holds_does_not_block(mirror, root):
    root.mkdir()
    (root / ".TINY.lock").write_text("")
    assert len(load_dataset("TINY", root, mirror)) == 3
    assert os.listdir(root) == ["TINY"]


def test_a_lock_that_is_a_link_is_not_followed(mirror, root, tmp_path):
    root.mkdir()
    (root / ".TINY.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"\.TINY\.lock is a link, and nothing is written through it"):
        load_dataset("TINY", root, mirror)
    assert not (tmp_path / "precious").exists()


def test_folders_of_sets_with_longer_names_are_kept(root):
    left = [".A-0123456789ab", ".A-b-0123456789ab", ".A-0123456789ab-0123456789ab", ".A-file"]
    for name in left:
        (root / name).mkdir(parents=True)
    with staged("A", root):
        pass
    assert sorted(path.name for path in root.iterdir()) == sorted(left[1:])


def test_loading_without_locks(mirror, root, monkeypatch):
    """Test a file system without locks, such as some network file systems."""
    import graphcl.datasets.staging as staging

    def no_locks(*args, **options):
        raise NotImplementedError

    monkeypatch.setattr(staging.FileLock, "acquire", no_locks)
    assert len(load_dataset("TINY", root, mirror)) == 3


@pytest.fixture
def small_disk(tmp_path):
    """Yield the mount point of a disk of 64 kB; skip the test if mounting is not permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("may not mount a disk here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(small_disk, tmp_path, write_zip):
    graphs = 4000
    many = {
        "A": "".join(f"{2 * i + 1}, {2 * i + 2}\n" for i in range(graphs)),
        "graph_indicator": "".join(f"{i + 1}\n" * 2 for i in range(graphs)),
        "graph_labels": "1\n" * graphs,
        "node_labels": None,
    }
    write_zip(tmp_path / "m", **many)
    for free in (64, 24, 4):  # free kB; the disk becomes full while unpacking or while processing
        with (small_disk / "filler").open("wb") as file:
            file.write(bytes(1024 * (64 - free)))
        with pytest.raises(InputError) as caught:
            load_dataset("TINY", small_disk / "data", tmp_path / "m")
        assert "No space left on device" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert os.listdir(small_disk) == ["filler"]


def test_a_disk_that_may_not_be_written_to(small_disk, mirror):
    load_dataset("TINY", small_disk, mirror)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert len(load_dataset("TINY", small_disk)) == 3  # the cache can be read
    with pytest.raises(InputError, match=r"cannot prepare TINY under `data_root` .*Read-only file system"):
        load_dataset("TINY", small_disk / "new", mirror)
