"""No file under its final name is ever partial: one function writes them all, through kills and full disks."""

import ast
import io
import json
import resource
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import InMemoryDataset

import graphcl
from graphcl.__main__ import main
from graphcl.extensions.molecules import parse as smiles
from graphcl.system import files
from tests.commands.files import save_untrained
from tests.conftest import small_graphs

PACKAGE = Path(graphcl.__file__).parent
WRITERS = {"save": "buffer", "savez": "file", "savez_compressed": "file", "savefig": "file", "dump": "file"}
"""Function of another library that writes a file -> the argument that it may get: an open file, or a buffer in memory
where the function aborts the process (torch) or ignores that the disk is full (NumPy)."""
ALLOWED = {
    ("system/files.py", "open"), ("system/files.py", "replace"), ("system/files.py", "rename"),  # the one place
    ("datasets/write.py", "open"), ("datasets/write.py", "replace"),  # columns within `whole_folder`
    ("datasets/write.py", "memmap"),
    ("datasets/cache.py", "open"), ("datasets/cache.py", "replace"),  # downloads, within a staged folder
    ("datasets/sources/tu.py", "copyfile"), ("extensions/nodes/datasets.py", "copyfile"),  # within a staged folder
    ("commands/blocks.py", "open"),  # a member of an archive, which is written whole
    ("experiment/record/run_folder.py", "open"),  # to flush it
    ("experiment/record/run_folder.py", "rename"),  # of a whole file
    ("system/signals.py", "open"), ("distributed/launch.py", "open"),  # /dev/null
}  # fmt: skip


def writes(source):
    """Yield the name and the line of every call in `source` that writes, opens for writing or moves a file."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [each.value for each in (*node.args, *(key.value for key in node.keywords))
                 if isinstance(each, ast.Constant) and isinstance(each.value, str)]  # fmt: skip
        module = getattr(getattr(node.func, "value", None), "id", "")
        handle = any(isinstance(each, ast.Name) and each.id == WRITERS.get(name) for each in node.args)
        outside = module not in ("", "self") and not handle
        is_call = name in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute)
        is_open = name == "open" and any(set(text) & set("wxa+") and len(text) < 4 for text in texts)
        is_move = name in ("rename", "replace") and (module in ("os", "shutil", "path", "partial") or name == "rename")
        is_move = is_move or (module == "shutil" and name in ("copyfile", "copy", "copy2"))
        if is_call or is_open or is_move or (name in WRITERS and outside) or (name == "memmap" and "r+" in texts):
            yield name, node.lineno


def test_no_other_function_writes_a_file():
    assert [name for name, _ in writes("p.write_text(a); open(p, 'w'); torch.save(x, p); os.replace(a, b)")] == [
        "write_text", "open", "save", "replace",
    ]  # fmt: skip
    places = {
        (str(path.relative_to(PACKAGE)), name): line
        for path in PACKAGE.rglob("*.py")
        for name, line in writes(path.read_text())
    }
    assert {place: line for place, line in places.items() if place not in ALLOWED} == {}


MODEL = ["--epochs", "1", "--batch-size", "16", "--encoder", "gin", "--encoder.hidden-channels", "4"]
ENCODER, GRAPHS = ["encoder.pt"], ["--dataset", "./own.pt"]
SHARDS = [*ENCODER, *GRAPHS, "--out", "out", "--batch-size", "18", "--shard-size", "18"]
THREADS = ["--executor", "tests.test_whole_files:threads"]
FOLDS = ["--evaluation.folds", "2", "--evaluation.inner-folds", "2"]
COMMANDS = {
    "run": [*GRAPHS, *MODEL, "--seeds", "0", "--eval", "none", "--report", "false", "--resume", "out"],
    "embed npz": [*ENCODER, *GRAPHS, "--out", "out.npz"],
    "embed csv": [*ENCODER, *GRAPHS, "--out", "out.csv"],
    "embed parquet": [*ENCODER, *GRAPHS, "--out", "out.parquet"],
    "embed npy shards": [*SHARDS, "--shards", "npy"],
    "embed parquet shards": SHARDS,
    "embed invalid": [*ENCODER, "--dataset", "./broken.pt", "--invalid", "skip", "--out", "out.npz"],
    "export": [*ENCODER, "--format", "pt2", "--out", "out.pt2"],
    "pack": [*GRAPHS, "--out", "out"],
    "pack molecules": ["--dataset", "molecules.csv", "--out", "out", *THREADS],
    "diagnose": [*GRAPHS, *MODEL, "--quick", "--rows", "statistics", "--eval", "knn", *FOLDS, "--out", "out"],
    "transfer": [*ENCODER, *GRAPHS, "--mode", "probe", "--eval", "knn", "--seeds", "0", "1", "--out", "out"],
    "sweep": [*GRAPHS, *MODEL, "--seeds", "0", "--eval", "knn", "--loss", "infonce", "--out", "out", *THREADS],
}


def threads(workers):
    """Return an executor in this process, where the tests can interrupt a write."""
    return ThreadPoolExecutor(1)


@pytest.fixture
def command(request, tmp_path, monkeypatch):
    """Return the arguments of a command, in a new folder with its inputs."""
    monkeypatch.chdir(tmp_path)
    graphs = small_graphs()
    InMemoryDataset.save(graphs, "own.pt")
    save_untrained(tmp_path / "encoder.pt", graphs)
    graphs[3].x[0, 0] = torch.nan
    InMemoryDataset.save(graphs, "broken.pt")
    monkeypatch.setattr(smiles, "CHUNK", 2)
    Path("molecules.csv").write_text("smiles\nCCO\nCCC\nCCN\n")
    return [request.param.split()[0], *COMMANDS[request.param]]


class Killed(BaseException):
    """A kill at a write: what would clean up does not."""


def kill_at(patch, count, error=Killed):
    """Let the process end at the move number `count` of a whole file or folder to its final name."""
    moves = []

    def ends(move):
        def moved(self, target):
            moves.append(target)
            if len(moves) == count:
                if error is Killed:
                    patch.setattr(Path, "unlink", lambda *_, **__: None)
                    patch.setattr(shutil, "rmtree", lambda *_, **__: None)
                raise error
            return move(self, target)

        return moved

    for name in ("replace", "rename"):
        patch.setattr(Path, name, ends(getattr(Path, name)))


def check_whole(place):
    """Read every file under `place` with a final name."""
    parquet = pytest.importorskip("pyarrow.parquet")
    archive = zipfile.ZipFile.testzip
    readers = {".json": json.loads, ".yaml": yaml.safe_load, ".npy": lambda content: np.load(io.BytesIO(content)),
               ".parquet": lambda content: parquet.read_table(io.BytesIO(content))}  # fmt: skip
    readers |= dict.fromkeys([".npz", ".pt", ".pt2"], lambda content: archive(zipfile.ZipFile(io.BytesIO(content))))
    for path in place.rglob("*"):
        if path.is_file() and not any(each.startswith(".") for each in path.relative_to(place).parts):
            readers.get(path.suffix, bytes.decode)(path.read_bytes())


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "export"], indirect=True)  # as `embed npz`
def test_a_kill_at_any_write_leaves_whole_files_and_the_same_command_works(command, tmp_path, monkeypatch):
    code, count = None, 0
    while code is None:
        count += 1
        with monkeypatch.context() as patch:
            kill_at(patch, count)
            with suppress(Killed):
                code = main(command)
        check_whole(tmp_path)
    assert (code, count > 1) == (0, True)
    assert [path for path in tmp_path.rglob(".*") if path.name != ".lock"] == []
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.parametrize("command", COMMANDS, indirect=True)
def test_a_full_disk_is_one_line_that_names_the_file(command, tmp_path, monkeypatch, capsys):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, usual[1]))
    try:
        assert main(command) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "warning: " not in each]
    assert "File too large" in line or "cannot be written" in line
    assert "out" in line
    check_whole(tmp_path)
    assert main(command) == 0


KEPT = {
    "embed npz": "nothing was written",
    "embed npy shards": "finished shards are kept in out; the same command makes the others",
    "pack molecules": "parsed rows are kept in {place}/.out-parts; the same command parses the rest",
    "diagnose": "finished results are kept; the same command with --out out continues",
    "transfer": "finished results are kept; the same command with --out out continues",
}


@pytest.mark.parametrize(("command", "line"), KEPT.items(), indirect=["command"])
def test_an_interrupted_command_says_what_is_kept(command, line, tmp_path, monkeypatch, capsys):
    count = {"pack": 3, "transfer": 3, "diagnose": 3}.get(command[0], 1 + ("--shards" in command))
    with monkeypatch.context() as patch:
        kill_at(patch, count, KeyboardInterrupt)
        assert main(command) == 130
    assert capsys.readouterr().err.splitlines()[-1] == f"graphcl: stopped; {line.format(place=tmp_path)}."
    kept = [path for path in tmp_path.rglob("*") if path.name.startswith(("out", ".out"))]
    assert bool(kept) == (line != "nothing was written")


def test_a_failing_save_leaves_the_earlier_encoder(tmp_path):
    graphs = small_graphs()
    save_untrained(tmp_path / "encoder.pt", graphs)
    before = (tmp_path / "encoder.pt").read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, usual[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*encoder\.pt'$"):
            save_untrained(tmp_path / "encoder.pt", graphs)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("encoder.pt", before)]


@pytest.mark.parametrize("command", ["diagnose", "transfer"], indirect=True)
def test_an_unfinished_command_ends_as_an_uninterrupted_one_and_takes_no_other_settings(
    command, tmp_path, monkeypatch, capsys
):
    assert main(command) == 0
    name = {"diagnose": "diagnosis.json", "transfer": "result.json"}[command[0]]
    expected = json.loads((tmp_path / "out" / name).read_text())
    (tmp_path / "out").rename(tmp_path / "whole")
    with monkeypatch.context() as patch, suppress(Killed):
        kill_at(patch, 4)
        main(command)
    batch_size_or_seed = "16" if command[0] == "diagnose" else "1"
    assert main(["9" if each == batch_size_or_seed else each for each in command]) == 2
    assert "out holds unfinished results of other settings: `" in capsys.readouterr().err
    with files.claimed(tmp_path / "out"):
        assert main(command) == 2
    assert "another process writes out; wait for it" in capsys.readouterr().err
    assert main(command) == 0
    found = json.loads((tmp_path / "out" / name).read_text())
    times = {"seconds": 0, "finished": ""}
    assert found | times == expected | times
    assert main(command) == 2
    assert "out exists already and is never overwritten" in capsys.readouterr().err
