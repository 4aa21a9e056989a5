"""Atomic writes, and bounded reads of files of unknown origin."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcl.errors import InputError, one_line
from graphcl.system import arrays as arrays_module
from graphcl.system import memory
from graphcl.system.arrays import read_arrays
from graphcl.system.files import claimed, read_json, read_text, write_text
from tests.memory import peak


def test_nothing_is_written_through_links(tmp_path):
    (tmp_path / "precious").write_text("kept")
    for name in ("f", ".f.partial"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    write_text(tmp_path / "f", "new")
    assert [(tmp_path / name).read_text() for name in ("precious", "f")] == ["kept", "new"]


def test_a_failed_write_leaves_the_earlier_file(tmp_path):
    write_text(tmp_path / "f", "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "f", "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", "before")]


def test_a_folder_that_cannot_be_written_is_named_by_the_output(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file/h\.npz'$"), claimed(tmp_path / "file" / "h.npz"):
        raise AssertionError("not reached")


def test_text_is_bounded_and_has_one_kind_of_line_end(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\rc")
    assert read_text(file) == read_text(file, 9) == "a\nb\nc"
    for path, most, says in [(file, 8, r"f is larger than 8 bytes\."), (Path("/dev/zero"), 999, "larger than 999 byt")]:
        with pytest.raises(InputError, match=says):
            read_text(path, most)
    for text in ("", "{", "[" * 10**6, "9" * 10**5, '{"a": }'):
        file.write_text(text)
        with pytest.raises(InputError, match=r"f is not JSON \("):
            read_json(file)
    file.write_bytes(b"a\xff")
    with pytest.raises(InputError, match=r"f is not UTF-8 text: invalid start byte at byte 1\."):
        read_text(file)


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def member(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def header(descr, shape):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


SOUND = npz(h=np.ones(50))
HOSTILE = {
    "damaged": (SOUND[:300] + bytes([SOUND[300] ^ 1]) + SOUND[301:], "Bad CRC-32"),
    "objects": (npz(h=np.array([{}], object)), "allow_pickle=False"),
    "large-header": (member("h.npy", header("<f8", (10**12,)) + bytes(8)), "f.npz cannot be read"),
    "no-array": (member("h.npy", b"text"), "does not hold arrays"),
    "encrypted": (npz(h=np.ones(2)).replace(b"PK\1\2-\3-\0\0\0", b"PK\1\2-\3-\0\1\0"), "cannot be read"),
}


def test_arrays_are_read_or_refused(tmp_path):
    arrays = {"h": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.ones((2, 3))), "e": np.zeros((0, 2))}
    for save in (np.savez, np.savez_compressed):
        (tmp_path / "f.npz").write_bytes(npz(save, **arrays))
        found = read_arrays(tmp_path / "f.npz")
        assert found.keys() == arrays.keys()
        assert all(np.array_equal(found[key], arrays[key]) for key in arrays)
    for name, (content, says) in HOSTILE.items():
        (tmp_path / "f.npz").write_bytes(content)
        with peak() as found, pytest.raises(InputError) as caught:
            read_arrays(tmp_path / "f.npz")
        assert says in str(caught.value), name
        assert "\n" not in str(caught.value), name
        assert found[0] < 32 * 2**20, name


def test_messages_hold_no_control_characters():
    assert str(InputError("no \x1b[2J\ud800 file\nnor \x07")) == "no \\x1b[2J\\ud800 file\nnor \\x07"
    assert one_line("a\n\tb\x00" + "c" * 999, 12) == r"a b\x00cc..."


def test_large_arrays_are_mapped_and_damage_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays_module, "MAPPED", 1000)
    arrays = {"h": np.random.default_rng(0).random((7, 40)), "seeds": np.arange(3), "turned": np.ones((40, 5)).T}
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_arrays(tmp_path / "a.npz")
    for name, each in arrays.items():
        assert np.array_equal(found[name], each)
        assert isinstance(found[name], np.memmap) == (name != "seeds")
    np.savez(tmp_path / "o.npz", h=np.array([None] * 2000))
    with pytest.raises(InputError, match="Python objects"):
        read_arrays(tmp_path / "o.npz")
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match="CRC"):
        read_arrays(tmp_path / "a.npz")


def test_many_rows_are_in_a_file_and_none_is_lost(monkeypatch):
    parts = [torch.rand(count, 3, generator=torch.Generator().manual_seed(count)) for count in (2, 1, 5, 4)]
    for held in (10**6, 20, 0):
        monkeypatch.setattr(memory, "HELD", held)
        rows = memory.Rows()
        for part in parts:
            rows.append(part)
        assert torch.equal(rows.joined(), torch.cat(parts))
        assert (rows._file is None) == (held == 10**6)
