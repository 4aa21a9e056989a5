"""Mistakes in the arguments of `embed`, `export`, `show` and `transfer`: one line, exit code 2, no file."""

import sys

import pytest
from torch_geometric.data import InMemoryDataset

from graphcl.commands import command as find_command
from tests.commands.files import save_untrained
from tests.conftest import small_graphs

PROBE, TUNE = "e.pt --dataset own.pt --mode probe", "e.pt --dataset own.pt --mode finetune"
EMBED = "e.pt --dataset synthetic"
MESSAGES = {
    "embed": [
        ("--dataset synthetic", "`ENCODER` and `--out` must be given; see --help."),
        (f"{EMBED} --out e.txt", "`out` must end in .npz, .parquet or .csv, got"),
        (f"{EMBED} --out there.npz", "there.npz exists already; pass --force"),
        ("no.pt --dataset synthetic --out e.npz", "not found; give a run's folder"),
        ("e.pt --seed 5 --dataset a --out e.npz", "holds no seed 5; it holds"),
        (f"{EMBED} --out e.parquet", "need pyarrow ("),
    ],
    "export": [
        ("e.pt --format pt2 --out .", "exists"),
        ("e.pt", "ONNX files need onnx and onnxscript, unlike pt2 ("),
    ],
    "show": [
        ("out", "out is not a run folder, its config.yaml has no `encoder`; pass one with a config.yaml, such as "),
    ],
    "transfer": [
        (f"{PROBE} --eval ogb", "`eval` ogb does not fit own, which has no split of its own; pass"),
        (f"{PROBE} --eval none", "a probe scores embeddings, got `eval` none; name an evaluator, or use graphcl"),
        (f"{TUNE} --eval svm", "--eval: for --mode probe only."),
        ("e.pt --dataset own.pt", "`--mode` must be given; see --help."),
        ("e.pt --dataset bare.pt --mode probe", "bare has no class labels to score embeddings by; use graphcl embed."),
        (f"{PROBE} --out out", "out exists already and is never overwritten; pass another"),
    ],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with graphs, an untrained encoder `e.pt` for them, and the folder `out` of a transfer."""
    folder = tmp_path_factory.mktemp("messages")
    save_untrained(folder / "e.pt", small_graphs())
    for name, of in ("own", small_graphs()), ("bare", small_graphs(labelled=False)):
        InMemoryDataset.save(of, str(folder / f"{name}.pt"))
    (folder / "there.npz").touch()
    (folder / "out").mkdir()
    (folder / "out" / "config.yaml").write_text("mode: probe\n")
    return folder


@pytest.mark.parametrize("command", MESSAGES)
def test_a_mistake_is_one_line(command, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    for package in ("onnxscript", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    before = sorted(place.rglob("*"))
    main = find_command(command).main
    for words, line in MESSAGES[command]:
        assert main(words.split()) == 2, words
        captured = capsys.readouterr()
        assert line in captured.err, words
        assert captured.err.startswith("graphcl: ")
        assert captured.err.count("\n") == 1, words
        assert captured.out.count("\n") <= 1, words  # "loading ..."
        assert sorted(place.rglob("*")) == before, words
