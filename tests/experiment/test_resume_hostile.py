"""`--resume` of an untrusted folder: one message, no write outside it, no code executed, no excess memory."""

import io
import json
import os
import shutil

import numpy as np
import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl.run import main
from tests.conftest import small_graphs
from tests.memory import peak


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a finished run of one seed."""
    place = tmp_path_factory.mktemp("run")
    InMemoryDataset.save(small_graphs(), str(place / "own.pt"))
    words = ["--epochs", "1", "--seeds", "0", "--eval", "knn", "--report", "false"]
    assert main(["--dataset", str(place / "own.pt"), *words, "--out", str(place / "run")]) == 0
    return place / "run"


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def refused(folder, capfd, *expected):
    capfd.readouterr()
    with peak() as found:
        assert main(["--resume", str(folder)]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("graphcl: ")
    assert err.strip().isprintable()
    for each in expected:
        assert each in err, err
    assert found[0] < 100 * 2**20


@pytest.mark.parametrize("name", [".lock", "checkpoints", "metrics.jsonl", "metrics.csv"])
def test_nothing_is_written_or_removed_through_links(name, folder, tmp_path, capfd):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".a.partial").write_text("kept")
    (precious / "step-000000001.pt").write_text("kept")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious if name == "checkpoints" else precious / "step-000000001.pt")
    refused(folder, capfd, f"{name} is a link, and nothing is written through it; remove it.")
    assert {file.name: file.read_text() for file in precious.iterdir()} == {
        ".a.partial": "kept",
        "step-000000001.pt": "kept",
    }


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def bomb(name):
    file = io.BytesIO()
    np.savez_compressed(file, seeds=[0], h=np.zeros((1, 10**8), np.uint8))
    return lambda folder: (folder / name).write_bytes(file.getvalue())


HOSTILE = {
    "brackets": lambda folder: (folder / "result.json").write_text("[" * 10**6),
    "list": lambda folder: (folder / "result.json").write_text("[1]"),
    "seeds": lambda folder: (folder / "result.json").write_text(json.dumps({"seeds": {"a": []}})),
    "archive": lambda folder: (folder / "embeddings.npz").write_bytes(b"PK\3\4"),
    "bomb": bomb("embeddings.npz"),
    "code": lambda folder: torch.save({"weights": Evil()}, folder / "encoder.pt"),
    "metrics": lambda folder: (folder / "metrics.jsonl").write_bytes(b"\xff"),
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_damaged_or_malicious_files_are_refused(damage, folder, capfd, monkeypatch):
    monkeypatch.chdir(folder.parent)
    damage(folder)
    refused(folder, capfd, "cannot be resumed, a file is damaged")
    assert not (folder.parent / "pwned").exists()


def test_code_in_a_checkpoint_is_not_run(folder, capfd, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder / "result.json").unlink()
    place = folder / "checkpoints" / "seed-0"
    place.mkdir(parents=True)
    torch.save({"format": "graphcl training", "version": 2, "state": Evil()}, place / "step-000000001.pt")
    assert main(["--resume", str(folder)]) == 2
    err = capfd.readouterr().err
    assert "holds pickled code (posix.mkdir), which is never run" in err
    assert "none of the 1 checkpoints" in err
    assert not (folder.parent / "pwned").exists()
