"""Test runs of nodes from the command line: scores, rows without training, resume, sweep, and messages."""

import json
import re

import numpy as np
import pytest
import torch
from torch_geometric import typing
from torch_geometric.data import Data

from graphcl.commands.embed import main as embed
from graphcl.commands.pack import main as pack
from graphcl.commands.transfer import main as transfer
from graphcl.references.rows import row_labels
from graphcl.registry import methods
from graphcl.run import main
from tests.conftest import overriding

ROWS = row_labels()

OF_NODES = [name for name in methods if methods.facts(name).get("rows") == "nodes"]
QUICK = ["--epochs", "3", "--encoder.hidden_channels", "16", "--encoder.out_channels", "8", "--seeds", "0"]


def go(tmp_path, *words, folder="run"):
    """Run `sbm-400` with small settings, and return the content of `result.json`."""
    usual = ["--dataset", "sbm-400", *QUICK, "--report", "false", "--out", str(tmp_path / folder)]
    assert main(overriding(usual, *words)) == 0
    return json.loads((tmp_path / folder / "result.json").read_text())


def test_a_run_keeps_and_scores_the_rows_of_nodes(tmp_path, capfd):
    for method in OF_NODES:
        first = method == "grace"
        words = ["--epochs", "1", "--report", str(first).lower(), "--eval", "public_split", *(["nmi"] if first else [])]
        result = go(tmp_path, "--method", method, *words, folder=method)
        rows = [row for row in ROWS if row in result["scores"]["public_split"]]
        assert rows == ["majority", "raw", "propagated", "untrained", "trained"], method
        assert result["scores"]["public_split"]["majority"]["mean"] == pytest.approx(12.5, abs=4), method
        assert not first or result["scores"]["nmi"]["majority"]["mean"] == 0
        kept = np.load(tmp_path / method / "embeddings.npz")
        assert (kept["h"].shape, kept["y"].shape) == ((1, 400, 8), (400,)), method
        printed = capfd.readouterr().out
        assert "the public split" in printed, method
        assert ("report: " in printed) == first, method


def test_a_trained_encoder_embeds_nodes(tmp_path, capfd):
    go(tmp_path, "--method", "dgi", "--eval", "nmi")
    run, out = str(tmp_path / "run"), str(tmp_path / "h.npz")
    assert embed([run, "--dataset", "sbm-400", "--out", out]) == 0
    assert f"8 numbers per node in {out}" in capfd.readouterr().out
    kept, got = np.load(tmp_path / "run" / "embeddings.npz"), np.load(out)
    np.testing.assert_allclose(got["h"], kept["h"][0], rtol=1e-5, atol=1e-6)
    assert (got["id"].tolist(), got["y"].tolist()) == ([*range(400)], kept["y"].tolist())

    for command, words, says in (
        (embed, [run, "--out", out, "--force", "--dataset", "PROTEINS"], "'PROTEINS' is not a known data set of nodes"),
        (transfer, [run, "--mode", "probe", "--dataset", "PROTEINS"], f"{run} holds an encoder of nodes, which"),
        (pack, ["--dataset", "Cora", "--out", f"{out}.d"], "Cora is one graph, whose nodes are contrasted; use"),
    ):
        assert command(words) == 2, command
        assert capfd.readouterr().err.startswith(f"graphcl: {says}"), command


def test_training_learns_the_blocks(tmp_path):
    words = ["--epochs", "40", "--lr", "0.01", "--encoder.hidden_channels", "32", "--encoder.out_channels", "16"]
    result = go(tmp_path, "--loss.temperature", "0.5", "--eval", "public_split", *words)
    means = {row: score["mean"] for row, score in result["scores"]["public_split"].items() if row in ROWS}
    assert means["trained"] > means["untrained"] + 5
    assert means["propagated"] > means["raw"] + 5


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
def test_sampled_neighbours(tmp_path, capfd):
    words = ["--neighbours", "4,3", "--batch-size", "100", "--eval", "nmi", "--steps", "5"]
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        assert main(["--dataset", "sbm-400", *words, "--out", str(tmp_path / "run")]) == 2
        assert capfd.readouterr().err.startswith("graphcl: `neighbours` needs pyg-lib or torch-sparse")
        return
    for method in OF_NODES:
        one, two = (go(tmp_path, "--method", method, *words, folder=f"{method}-{k}") for k in (1, 2))
        assert one["epochs"] == 2, method  # of four steps
        assert one["scores"] == two["scores"], method


@pytest.fixture
def mine(tmp_path):
    """Return the path of a saved graph of 24 nodes without masks."""
    edges = torch.randint(24, (2, 90), generator=torch.Generator().manual_seed(0))
    graph = Data(x=torch.rand(24, 3), edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.arange(24) % 2)
    torch.save(graph, tmp_path / "mine.pt")
    return str(tmp_path / "mine.pt")


def test_own_graph_without_masks(mine, tmp_path, capfd):
    scores = go(tmp_path, "--dataset", mine, "--method", "grace", "--epochs", "1")["scores"]
    assert scores.keys() == {"random_splits"}
    assert len(scores["random_splits"]["per_seed"][0]["trained"]["accuracy"]) == 20
    assert "20 random splits into 10, 10 and 80 %, C by validation" in capfd.readouterr().out


MISTAKES = [
    ("--dataset PROTEINS --method grace", r"'PROTEINS' is not a known data set of nodes; .* two_views"),
    ("--dataset MINE --method grace --eval public_split",
     r"`eval` public_split does not fit mine, which has no train_mask, val_mask and test_mask; pass"),
    ("--dataset sbm-400 --views.second node_drop",
     r"`views\.second` removes nodes, so that row i of both views is not the same node; use edge_drop"),
    ("--dataset sbm-400 --method grace --loss byol", r"loss `byol` pushes nothing apart"),
    ("--dataset sbm-400 --method dgi --loss adnce", r"method `dgi` has a loss of its own"),
    ("--dataset OWN --neighbours 5,5", r"`neighbours` are sampled around nodes, but"),
    ("--dataset OWN --eval nmi", r"`eval` nmi does not fit own, which has no nodes"),
    ("--dataset sbm-400 --projector none --projection 7", r"`projection` must be the encoder's"),
]  # fmt: skip


def test_bad_input_gets_one_line(mine, saved_graphs, tmp_path, capfd):
    where, own = ["--out", str(tmp_path / "run"), "--data-root", str(tmp_path)], saved_graphs()
    for line, says in MISTAKES:
        assert main([*line.replace("MINE", mine).replace("OWN", own).split(), *where]) == 2, line
        message = capfd.readouterr().err
        assert re.search(says, message), line
        assert message.count("\n") == 1, line
        assert not (tmp_path / "run").exists(), line


def test_initial_weights_do_not_decide_whether_nodes_are_contrasted(tmp_path, capfd):
    """The method does: an encoder of nodes starts a run of graphs with its columns, and the reverse."""
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for width in (128, 3):
        torch.save([Data(x=torch.rand(3, width), edge_index=ring) for _ in range(8)], tmp_path / f"{width}.pt")
    go(tmp_path, "--eval", "none", "--epochs", "1", folder="nodes")
    words = ["--eval", "none", "--epochs", "1", "--seeds", "0", "--report", "false"]
    graphs = [
        "--dataset",
        str(tmp_path / "128.pt"),
        "--init",
        str(tmp_path / "nodes"),
        "--out",
        str(tmp_path / "graphs"),
    ]
    assert main([*graphs, *words]) == 0
    back = ["--dataset", "sbm-400", "--method", "grace", "--init", str(tmp_path / "graphs"), "--out"]
    assert main([*back, str(tmp_path / "back"), *words]) == 0
    capfd.readouterr()
    graphs[1], graphs[-1] = str(tmp_path / "3.pt"), str(tmp_path / "other")
    assert main([*graphs, *words]) == 2
    line = "3 has 3 columns of `x` (labels); the encoder was trained on sbm-400 with 128 columns of labels."
    assert line in capfd.readouterr().err
    assert not (tmp_path / "other").exists()
