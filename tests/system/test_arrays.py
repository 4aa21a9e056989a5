"""PyTorch files of unknown origin: files by `torch.save` are read, other files are refused with one line."""

import zipfile

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphcl.datasets.sources.paths import read_graphs
from graphcl.errors import InputError
from graphcl.system.arrays import read_torch_file
from tests.memory import peak


def saved(path, value, **options):
    torch.save(value, path, **options)
    return path


HONEST = {
    "numbers": {"a": 1, "b": [2.5, None, True, "text", b"bytes", (1, {2})]},
    "state": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict(),
    "kinds": [torch.ones(2, 3).to(kind) for kind in (torch.half, torch.bfloat16, torch.bool, torch.complex128)],
    "views": [torch.arange(10)[2:7], torch.arange(12).view(3, 4).t(), torch.ones(1).expand(1000, 1000)],
    "shared": [torch.ones(3)] * 3,
    "sparse": torch.eye(3).to_sparse(),
}


def test_what_torch_saves_is_read(tmp_path):
    for name, value in HONEST.items():
        found = read_torch_file(saved(tmp_path / name, value), "")
        (tmp_path / name).write_bytes(b"")  # the content does not follow the file
        assert str(found) == str(value), name


def test_a_graph_may_occur_several_times(tmp_path):
    graph = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]), y=1, name="a")
    large = Data(x=torch.rand(200_000, 10), edge_index=torch.tensor([[0], [1]]))  # 8 MB
    for graphs in ([graph] * 3000, [large] * 8, [large, graph] * 10):
        saved(tmp_path / "f.pt", graphs)
        found = read_graphs(tmp_path / "f.pt")
        assert len(found) == len(graphs)
        assert all(torch.equal(one.x, other.x) for one, other in zip(found[-5:], graphs[-5:], strict=True))


def rewritten(path, change):
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, change(name, content))


def lying_storage(path):
    """Write a file whose record holds 4 numbers, although its pickle claims 5 * 10^8."""
    many = b"J" + (5 * 10**8).to_bytes(4, "little")
    rewritten(
        saved(path, torch.ones(4)),
        lambda name, content: content.replace(b"K\x04t", many + b"t").replace(b"K\x04\x85", many + b"\x85"),
    )


def program(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("f/data.pkl", "f/constants.pkl", "f/code/__torch__.py"):
            archive.writestr(name, b"N.")


def flip(path):
    """Flip one bit of the numbers in a file."""
    content = saved(path, torch.full((100,), 7.0)).read_bytes()
    place = content.index(torch.full((100,), 7.0).numpy().tobytes())
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


HOSTILE = {
    "flipped": (flip, "does not match its checksum"),
    "lying-storage": (lying_storage, "resiz"),
    "old": (lambda path: saved(path, [1], _use_new_zipfile_serialization=False), "File is not a zip file"),
    "program": (program, "a TorchScript program"),
}


def test_what_is_refused_and_takes_no_memory(tmp_path):
    for name, (make, says) in HOSTILE.items():
        make(tmp_path / name)
        with peak() as found, pytest.raises(InputError) as caught:
            read_torch_file(tmp_path / name, "save it again")
        assert f"{name}' is not a PyTorch file, or is corrupted (" in str(caught.value)
        assert says in str(caught.value), name
        assert str(caught.value).isprintable(), name
        assert found[0] < 32 * 2**20, name


def test_nothing_that_is_named_is_imported_or_called(tmp_path):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    code = b"cevil_module\nrun\n(tR."
    rewritten(saved(tmp_path / "f.pt", [1]), lambda name, content: code if name.endswith("data.pkl") else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        with pytest.raises(InputError, match=r"holds pickled code \(evil_module.run\), which is never run; save it"):
            read_torch_file(tmp_path / "f.pt", "save it again")
    assert not (tmp_path / "pwned").exists()
