"""Mistakes in the arguments of `embed`, `export`, `show` and `transfer`: one line, exit code 2, no file."""

import importlib
import importlib.util
import sys

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.experiment.build import describe, make_model
from graphcl.models.saved import save_encoder
from tests.conftest import small_graphs

PROBE, TUNE = "e.pt --dataset own.pt --mode probe", "e.pt --dataset own.pt --mode finetune"
EMBED, SHOW = "e.pt --dataset synthetic", "--dataset own.pt"
MESSAGES = {
    "embed": [
        ("--dataset synthetic", "`ENCODER` and `--out` must be given; see --help."),
        ("e.pt --out e.npz", "`--dataset` must be given; see --help."),
        (f"{EMBED} --out e.csv", "`out` must end in .npz or .parquet, got"),
        (f"{EMBED} --out there.npz", "there.npz exists already; pass --force"),
        (f"{EMBED} --out no/e.npz", "folder 'no' not found"),
        ("e.pt --dataset wide.pt --out e.npz", "wide has 7 columns of `x`"),
        ("no.pt --dataset synthetic --out e.npz", "not found; give a run's folder"),
        ("e.pt --seed 5 --dataset a --out e.npz", "holds no seed 5; it holds"),
        ("e.pt --device cuda:99 --dataset a --out e.npz", "`device` is cuda:99, but tor"),
        (f"{EMBED} --out e.parquet", 'need pyarrow: pip install "graphcl[parquet]", or pass an .npz file.'),
    ],
    "export": [
        ("e.pt --format tflite", "`format` must be 'onnx' or 'pt2', got 'tflite'"),
        ("e.pt --format pt2 --out .", "exists"),
        ("e.pt --format pt2 --seed 3", "holds no seed 3; it holds 0"),
        ("e.pt", "ONNX files need onnx and onnxscript, unlike pt2 ("),
    ],
    "show": [
        (f"{SHOW} --graph 0 -1", "`graph` must be in 0 to "),
        (f"{SHOW} --graph x", "`graph.0` must be a whole number, got 'x'."),
        (f"{SHOW} --ratio 1", "`ratio` must be in [0, 1), got 1.0."),
        (f"{SHOW} --seed {'9' * 20}", f"`seed` must be in [0, 4294967296), got {'9' * 20}."),
        (f"{SHOW} --out deep/a.svg", "folder 'deep' not found; create it to write a.svg."),
        (f"{SHOW} --out a.pdf", "`out` must end in .svg or .png, got 'a.pdf'."),
        (f"{SHOW} --augmentations nod_drop", "`augmentations`: unknown augmentation 'nod_drop'; did you mean node_dr"),
        (f"{SHOW} --augmentations compose", "`augmentations.members` must be a list of one or more augmentations, got"),
        (f"{SHOW} runs/a", "`--dataset` takes one value, got 2."),
        (f"runs/a {SHOW}", "pass a run folder, or --dataset NAME"),
        ("", "pass a run folder, or --dataset NAME"),
        ("out", "out is not a run folder, its config.yaml has no `loss`; pass one with a config.yaml, such as "),
    ],
    "transfer": [
        (f"{TUNE} --label-rate 0", "`label_rate` must be in (0, 1], got 0.0."),
        (f"{PROBE} --eval ogb", "`eval` ogb does not fit own, which has no split of its own; pass"),
        (f"{PROBE} --epochs 3 --lr 1", "--epochs, --lr: for --mode finetune only."),
        (f"{TUNE} --eval svm", "--eval: for --mode probe only."),
        ("e.pt --dataset own.pt --mode fine", "`mode` must be 'probe' or 'finetune', got 'fine'."),
        (f"{TUNE} --dropout 1", "`dropout` must be in [0, 1), got 1.0."),
        (f"{TUNE} --epochs 0", "`epochs` must be in [1, 1e9), got 0."),
        (f"{PROBE} --device tpu", "`device` must be auto, cpu, cuda or cuda:N, got 'tpu'."),
        (f"{PROBE} --sed 1", "`--sed` is not a known option; did you mean --seeds?"),
        ("e.pt --dataset own.pt", "`--mode` must be given; see --help."),
        ("e.pt --dataset synthetic --mode probe", "synthetic has 7 columns of `x` (labels); the encoder was trained"),
        ("none --dataset synthetic --mode probe", "file 'none' not found"),
        ("e.pt --dataset bare.pt --mode probe", "bare has no class labels to score embeddings by; use graphcl embed."),
        (f"{PROBE} --out out", "out exists already and is never overwritten; pass another"),
    ],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with graphs, an untrained encoder `e.pt` for them, and the folder `out` of a transfer."""
    folder = tmp_path_factory.mktemp("messages")
    config, dataset = make_config({"encoder": {"name": "gin", "hidden_channels": 4}}), load_dataset(small_graphs())
    model = make_model(config, dataset, 0)
    save_encoder(folder / "e.pt", describe(config, dataset, model), {0: model.encoder.state_dict()})
    wide = [Data(x=torch.ones(2, 7), edge_index=torch.tensor([[0], [1]]))] * 2
    graphs = {"own": small_graphs(), "bare": small_graphs(labelled=False), "wide": wide}
    for name, of in graphs.items():
        InMemoryDataset.save(of, str(folder / f"{name}.pt"))
    (folder / "there.npz").touch()
    (folder / "out").mkdir()
    (folder / "out" / "config.yaml").write_text("mode: probe\n")
    return folder


CASES = [(command, *case) for command, cases in MESSAGES.items() for case in cases]


@pytest.mark.parametrize(("command", "words", "line"), CASES)
def test_a_mistake_is_one_line(command, words, line, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    if ".parquet" in words:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    before = sorted(place.rglob("*"))
    assert importlib.import_module(f"graphcl.commands.{command}").main(words.split()) == 2
    captured = capsys.readouterr()
    assert line in captured.err
    assert captured.err.startswith("graphcl: ")
    assert captured.err.count("\n") == 1
    assert captured.out.count("\n") <= 1  # "loading ..."
    assert sorted(place.rglob("*")) == before
