"""Test that corrupted and malicious archives raise InputError before any file is written."""

import io
import stat
import zipfile
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcl.datasets.archive as archive
from graphcl.datasets import load_dataset
from graphcl.datasets.archive import tu_files, unpack
from graphcl.errors import InputError


@pytest.mark.parametrize("entry", ["../evil.txt", "TINY/../../evil.txt", "/evil.txt", "C:/evil.txt", "TINY\\evil.txt"])
def test_escaping_paths(entry, refused, tmp_path, write_zip):
    refused("TINY", "leads out of the folder", mirror=write_zip(tmp_path / "m", extra=[(entry, "x")]))
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_special_files(kind, refused, tmp_path, write_zip):
    entry = zipfile.ZipInfo("TINY/TINY_edge_labels.txt")
    entry.external_attr = (kind | 0o777) << 16
    refused("TINY", "link or special file", mirror=write_zip(tmp_path / "m", extra=[(entry, "/etc/passwd")]))


def test_bomb(refused, tmp_path, write_zip):
    bomb = ("TINY/README.txt", bytes(80 * 2**20))
    refused("TINY", "zip bomb", "would unpack to", mirror=write_zip(tmp_path / "m", extra=[bomb]))


def test_too_large(refused, mirror, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 20)
    refused("TINY", "would unpack to", mirror=mirror)


def test_too_many_entries(refused, tmp_path, write_zip):
    many = [(f"TINY/{i}", "") for i in range(1001)]
    refused("TINY", "1005 entries", mirror=write_zip(tmp_path / "m", extra=many))


def test_names_in_messages_are_short_and_on_one_line(refused, tmp_path, write_zip):
    for entry in ("../\n\x1b[2J" + "x" * 5000, "C:\n" + "x" * 5000):
        message = refused("TINY", "leads out", mirror=write_zip(tmp_path / "m", extra=[(entry, "x")]))
        assert message.isprintable()
        assert len(message) < 400
    write_zip(tmp_path / "o", "OTHER", extra=[("a\nb\x1b[2J" + "x" * 5000, "")])
    (tmp_path / "o" / "OTHER.zip").rename(tmp_path / "o" / "TINY.zip")
    message = refused("TINY", "not an archive of TINY", mirror=tmp_path / "o")
    assert message.isprintable()
    assert len(message) < 600


def test_links_in_a_mirror(mirror, root, tmp_path, refused):
    """A symbolic link to an archive is followed, for git-annex; a link to anything else raises InputError."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "TINY.zip").symlink_to(mirror / "TINY.zip")
    assert len(load_dataset("TINY", root, tmp_path / "links")) == 3
    for target in ("/dev/zero", "nowhere", "TINY.zip", str(mirror)):
        (tmp_path / "links" / "TINY.zip").unlink()
        (tmp_path / "links" / "TINY.zip").symlink_to(target)
        with pytest.raises(InputError, match=r"has no TINY\.zip"):
            load_dataset("TINY", tmp_path / "root2", tmp_path / "links")


@pytest.mark.parametrize("percent", range(0, 100, 19))
def test_truncated_anywhere(percent, refused, mirror):
    content = (mirror / "TINY.zip").read_bytes()
    (mirror / "TINY.zip").write_bytes(content[: len(content) * percent // 100])
    refused("TINY", "TINY.zip is", mirror=mirror)


def test_encrypted(refused, mirror):
    content = bytearray((mirror / "TINY.zip").read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    (mirror / "TINY.zip").write_bytes(content)
    refused("TINY", "is encrypted", mirror=mirror)


def test_other_compression(refused, mirror):
    with zipfile.ZipFile(mirror / "TINY.zip", "a", zipfile.ZIP_BZIP2) as zipped:
        zipped.writestr("TINY/TINY_edge_labels.txt", "1\n" * 8)
    refused("TINY", "is packed by method 12", "repack", mirror=mirror)


def test_corrupt(refused, mirror):
    content = bytearray((mirror / "TINY.zip").read_bytes())
    start = content.index(b"TINY/TINY_A.txt") + len("TINY/TINY_A.txt")
    content[start + 4] ^= 0xFF
    (mirror / "TINY.zip").write_bytes(content)
    refused("TINY", "TINY.zip is damaged", mirror=mirror)


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html><html>log in</html>"])
def test_not_a_zip(content, refused, mirror):
    (mirror / "TINY.zip").write_bytes(content)
    refused("TINY", "is not a zip archive", mirror=mirror)


def test_archive_of_another_set(refused, mirror):
    (mirror / "TINY.zip").rename(mirror / "OTHER.zip")
    refused("OTHER", "not an archive of OTHER", "no OTHER_A.txt", "TINY/TINY_A.txt", mirror=mirror)


def test_same_file_twice(refused, tmp_path, write_zip):
    refused("TINY", "TINY_A.txt twice", mirror=write_zip(tmp_path / "m", extra=[("copy/TINY_A.txt", "1, 2\n")]))


def small_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("T/T_A.txt", "1, 2\n2, 1\n" * 9)
        zipped.writestr("T/T_graph_indicator.txt", "1\n1\n")
    return buffer.getvalue()


@settings(deadline=None, max_examples=25)
@given(changes=st.lists(st.tuples(st.integers(0, len(small_zip()) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_changed_bytes_are_read_or_refused(changes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    content = bytearray(small_zip())
    for position, value in changes:
        content[position] = value
    (folder / "T.zip").write_bytes(content)
    try:
        unpack(folder / "T.zip", folder / "out" / "raw", "T.zip", partial(tu_files, name="T"))
    except InputError as error:
        assert "T.zip" in str(error)  # noqa: PT017
    else:
        assert (folder / "out" / "raw" / "T_A.txt").read_text() == "1, 2\n2, 1\n" * 9
    assert {path.name for path in folder.iterdir()} <= {"T.zip", "out"}
