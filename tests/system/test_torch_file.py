"""PyTorch files that claim what they do not hold: refused before PyTorch reads them."""

import io
import zipfile

import pytest
import torch
from torch import nn
from torch_geometric.data import InMemoryDataset

from graphcl.errors import InputError
from graphcl.system.files import read_plain
from graphcl.system.torch_file import UnsoundFileError, check_torch_file
from tests.conftest import small_graphs
from tests.fuzz.watch import peak


def saved(path, value, **options):
    torch.save(value, path, **options)
    return path


HONEST = {
    "numbers": {"a": 1, "b": [2.5, None, True, "text", b"bytes", (1, {2})]},
    "state": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict(),
    "kinds": [torch.ones(2, 3).to(kind) for kind in (torch.half, torch.bfloat16, torch.bool, torch.complex128)],
    "new-kinds": [torch.ones(5).to(torch.uint16), torch.ones(5).to(torch.float8_e5m2)],
    "views": [torch.arange(10)[2:7], torch.arange(12).view(3, 4).t(), torch.ones(1).expand(1000, 1000)],
    "shared": [torch.ones(3)] * 3,
    "empty": [torch.empty(0), torch.empty(0, 5), [], {}],
    "parameter": nn.Parameter(torch.ones(3)),
    "sparse": torch.eye(3).to_sparse(),
    "graphs": small_graphs(30, edge_attr=True),
}


@pytest.mark.parametrize("value", HONEST.values(), ids=HONEST)
def test_what_torch_saves_passes(value, tmp_path):
    check_torch_file(saved(tmp_path / "f.pt", value))


def test_a_saved_data_set_passes(tmp_path):
    InMemoryDataset.save(small_graphs(), str(tmp_path / "f.pt"))
    check_torch_file(tmp_path / "f.pt")


def parts(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, change=lambda name, content: content, packing=zipfile.ZIP_STORED):
    entries = parts(path)
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in entries.items():
            archive.writestr(name, change(name, content))


def lying_storage(path):
    """Four numbers in the record, 5 10^8 in the pickle."""
    many = b"J" + (5 * 10**8).to_bytes(4, "little")
    rewritten(
        saved(path, torch.ones(4)),
        lambda name, content: content.replace(b"K\x04t", many + b"t").replace(b"K\x04\x85", many + b"\x85"),
    )


def laughs(depth, width=10):
    value = [0]
    for _ in range(depth):
        value = [value] * width
    return value


def itself():
    value = []
    value.append(value)
    return value


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def twice(path):
    with zipfile.ZipFile(saved(path, [1]), "a") as archive:
        archive.writestr("F/DATA.pkl", b"N.")  # PyTorch's reader does not look at the case


def behind(path):
    """Another archive behind the first: readers may differ in which of them they see."""
    content = saved(path, [1]).read_bytes()
    path.write_bytes(content + content)


HOSTILE = {
    "lying-storage": (lying_storage, "a storage claims 2000000000 bytes, its record has 16"),
    "expanded": (lambda path: saved(path, torch.ones(1).expand(10**10)), "its tensors claim 40000000000 bytes"),
    "expanded-often": (lambda path: saved(path, [torch.ones(1).expand(10**7)] * 9), "its tensors claim 360000000"),
    "deflated": (lambda path: rewritten(saved(path, torch.zeros(10**6)), packing=zipfile.ZIP_DEFLATED), "compressed"),
    "laughs": (lambda path: saved(path, laughs(30)), "lists within lists without end"),
    "itself": (lambda path: saved(path, itself()), "lists within lists without end"),
    "nested": (lambda path: saved(path, nested(300)), "lists within lists without end"),
    "meta": (lambda path: saved(path, torch.ones(10**9, device="meta")), "tensors of the kind _rebuild_meta"),
    "old": (lambda path: saved(path, [1], _use_new_zipfile_serialization=False), "no zip archive"),
    "twice": (twice, "its entries are not those of one saved object"),
    "behind": (behind, "it does not end as a zip archive does"),
    "empty": (lambda path: path.write_bytes(b""), "no zip archive"),
    "no-pickle": (lambda path: rewritten(saved(path, [1]), lambda name, content: b""), "EOFError"),
}


@pytest.mark.parametrize(("make", "says"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_refused_and_takes_no_memory(make, says, tmp_path):
    path = tmp_path / "f.pt"
    make(path)
    with peak() as found, pytest.raises(UnsoundFileError) as caught:
        check_torch_file(path)
    assert says in str(caught.value)
    assert found[0] < 32 * 2**20
    with pytest.raises(InputError, match=r"cannot be read as a PyTorch file: it is none, or damaged \("):
        read_plain(path, "save it again")


def test_truncated_at_every_percent(tmp_path):
    content = saved(tmp_path / "f.pt", HONEST["state"]).read_bytes()
    for percent in range(100):
        (tmp_path / "f.pt").write_bytes(content[: len(content) * percent // 100])
        with pytest.raises(UnsoundFileError):
            check_torch_file(tmp_path / "f.pt")


def test_a_compiled_program_is_refused(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("f/data.pkl", "f/constants.pkl", "f/code/__torch__.py"):
            archive.writestr(name, b"N.")
    (tmp_path / "f.pt").write_bytes(file.getvalue())
    with pytest.raises(UnsoundFileError, match="a TorchScript program"):
        check_torch_file(tmp_path / "f.pt")


def test_nothing_that_is_named_is_imported_or_called(tmp_path):
    """The look at a pickle is no unpickling: a module that it names would be imported by that."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    code = b"cevil_module\nrun\n(tR."
    rewritten(saved(tmp_path / "f.pt", [1]), lambda name, content: code if name.endswith("data.pkl") else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        check_torch_file(tmp_path / "f.pt")
        with pytest.raises(InputError, match=r"holds pickled code \(evil_module.run\), which is never run"):
            read_plain(tmp_path / "f.pt", "save it again")
    assert not (tmp_path / "pwned").exists()
