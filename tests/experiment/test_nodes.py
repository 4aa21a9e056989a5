"""Test runs of nodes from the command line: scores, rows without training, resume, sweep, and messages."""

import json
import re

import numpy as np
import pytest
import torch
from torch_geometric import typing
from torch_geometric.data import Data

from graphcl.cli.run_command import RUN
from graphcl.commands.embed import main as embed
from graphcl.commands.pack import main as pack
from graphcl.commands.show import main as show
from graphcl.commands.transfer import main as transfer
from graphcl.datasets import load_dataset
from graphcl.experiment.build import describe, dry_run, make_model
from graphcl.models.saved import save_encoder
from graphcl.registry import encoders, losses, methods
from graphcl.report.summary import ROWS
from graphcl.run import main
from graphcl.sweep.command import main as sweep

OF_NODES = [name for name in methods if methods.facts(name).get("rows") == "nodes"]
QUICK = ["--epochs", "3", "--encoder.hidden_channels", "16", "--encoder.out_channels", "8", "--seeds", "0"]


def go(tmp_path, *words, folder="run"):
    """Run `sbm-400` with small settings, and return the content of `result.json`."""
    assert main(["--dataset", "sbm-400", *QUICK, "--report", "false", "--out", str(tmp_path / folder), *words]) == 0
    return json.loads((tmp_path / folder / "result.json").read_text())


@pytest.mark.parametrize("method", OF_NODES)
def test_a_run_keeps_and_scores_the_rows_of_nodes(method, tmp_path, capfd):
    names = ["public_split", "nmi"]
    result = go(tmp_path, "--method", method, "--report", str(method == "grace").lower(), "--eval", *names)
    assert list(result["scores"]) == names
    rows = [row for row in ROWS if row in result["scores"]["public_split"]]
    assert rows == ["majority", "raw", "propagated", "untrained", "trained"]
    assert result["scores"]["public_split"]["majority"]["mean"] == pytest.approx(12.5, abs=4)
    assert result["scores"]["nmi"]["majority"]["mean"] == 0
    kept = np.load(tmp_path / "run" / "embeddings.npz")
    assert (kept["h"].shape, kept["y"].shape) == ((1, 400, 8), (400,))
    printed = capfd.readouterr().out
    assert "the public split" in printed
    assert ("report: " in printed) == (method == "grace")


def test_a_trained_encoder_embeds_nodes(tmp_path, capfd):
    go(tmp_path, "--method", "dgi", "--eval", "nmi")
    run, out = str(tmp_path / "run"), str(tmp_path / "h.npz")
    assert embed([run, "--dataset", "sbm-400", "--out", out]) == 0
    assert f"8 numbers per node in {out}" in capfd.readouterr().out
    kept, got = np.load(tmp_path / "run" / "embeddings.npz"), np.load(out)
    np.testing.assert_allclose(got["h"], kept["h"][0], rtol=1e-5, atol=1e-6)
    assert (got["id"].tolist(), got["y"].tolist()) == ([*range(400)], kept["y"].tolist())

    assert embed([run, "--dataset", "sbm-800", "--out", str(tmp_path / "other.npz")]) == 0
    assert np.load(tmp_path / "other.npz")["h"].shape == (800, 8)
    capfd.readouterr()
    for command, words, says in (
        (embed, ["--out", str(tmp_path / "none.npz")], "'PROTEINS' is not a known data set of nodes"),
        (transfer, ["--mode", "probe"], "holds an encoder of nodes, which transfer cannot score; use graphcl embed."),
    ):
        assert command([run, "--dataset", "PROTEINS", *words]) == 2
        assert says in capfd.readouterr().err


@pytest.mark.parametrize(("command", "words"), [(show, []), (pack, ["--out", "packed"]), (embed, ["--out", "h.npz"])])
def test_commands_of_graphs_refuse_nodes(command, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if command is embed:
        dataset = load_dataset("synthetic")
        config = RUN.parse(["--encoder.hidden_channels", "4"])
        model = make_model(config, dataset)
        save_encoder(tmp_path / "encoder.pt", describe(config, dataset, model), {0: model.encoder.state_dict()})
        words = ["encoder.pt", *words]
    assert command([*words, "--dataset", "Cora"]) == 2
    assert capfd.readouterr().err.startswith("graphcl: Cora is one graph, whose nodes are contrasted; use graphcl run")


def test_training_learns_the_blocks(tmp_path):
    words = ["--epochs", "60", "--lr", "0.01", "--loss.temperature", "0.5", "--eval", "public_split"]
    found = go(tmp_path, *words, "--encoder.hidden_channels", "32", "--encoder.out_channels", "16")["scores"][
        "public_split"
    ]
    assert found["trained"]["mean"] > found["untrained"]["mean"] + 5
    assert found["propagated"]["mean"] > found["raw"]["mean"] + 5


def test_a_resumed_run_is_bit_identical(tmp_path):
    words = ["--method", "bgrl", "--method.rise", "4", "--eval", "nmi"]
    whole = go(tmp_path, *words, "--seeds", "0", "1", folder="whole")
    go(tmp_path, *words, folder="parts")
    assert main(["--resume", str(tmp_path / "parts"), "--seeds", "0", "1"]) == 0
    parts = json.loads((tmp_path / "parts" / "result.json").read_text())
    assert parts["scores"] == whole["scores"]
    one, two = (np.load(tmp_path / folder / "embeddings.npz")["h"] for folder in ("whole", "parts"))
    assert np.array_equal(one, two)


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
@pytest.mark.parametrize("method", OF_NODES)
def test_sampled_neighbours(method, tmp_path, capfd):
    words = ["--method", method, "--neighbours", "4,3", "--batch-size", "100", "--eval", "nmi", "--steps", "5"]
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        assert main(["--dataset", "sbm-400", *words, "--out", str(tmp_path / "run")]) == 2
        message = capfd.readouterr().err
        assert message.startswith("graphcl: `neighbours` needs pyg-lib or torch-sparse")
        assert message.count("\n") == 1
        assert not (tmp_path / "run").exists()
        return
    one, two = (go(tmp_path, *words, folder=folder) for folder in ("one", "two"))
    assert one["epochs"] == 2  # of four steps
    assert one["scores"] == two["scores"]
    kept = [np.load(tmp_path / folder / "embeddings.npz")["h"] for folder in ("one", "two")]
    assert kept[0].shape == (1, 400, 8)
    assert np.array_equal(*kept)


def test_a_sweep_of_losses(tmp_path, capfd):
    words = ["--method", "grace", "--loss", "nt_xent", "adnce", "--dataset", "sbm-400", *QUICK]
    words += ["--executor", "concurrent.futures:ThreadPoolExecutor", "--workers", "1"]
    assert sweep([*words, "--eval", "nmi", "--out", str(tmp_path / "sweep")]) == 0, capfd.readouterr()
    table = (tmp_path / "sweep" / "table.md").read_text()
    for row in ("propagated", "untrained", "nt_xent", "adnce"):
        assert row in table


@pytest.mark.parametrize("encoder", [name for name in encoders if encoders.facts(name).get("x") != "categories"])
def test_every_encoder_gives_rows_of_nodes(encoder):
    if "edge_dim" in encoders.arguments(encoder).required:
        pytest.skip("the graph has no edge attributes")
    dry_run(RUN.parse(["--dataset", "sbm-400", "--encoder", encoder]), load_dataset("sbm-400", nodes=True))


@pytest.mark.parametrize("loss", ["infonce", "adnce", "dcl", "hcl", "debiased", "vicreg", "barlow_twins"])
def test_losses_take_a_step_from_the_command_line(loss, tmp_path):
    assert loss in losses
    assert go(tmp_path, "--loss", loss, "--method", "grace", "--steps", "1", "--eval", "nmi")["epochs"] == 1


@pytest.fixture
def mine(tmp_path):
    """Return the path of a saved graph of 40 nodes without masks."""
    edges = torch.randint(40, (2, 200), generator=torch.Generator().manual_seed(0))
    graph = Data(x=torch.rand(40, 3), edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.arange(40) % 2)
    torch.save(graph, tmp_path / "mine.pt")
    return str(tmp_path / "mine.pt")


def test_own_graph_without_masks(mine, tmp_path, capfd):
    scores = go(tmp_path, "--dataset", mine, "--method", "grace")["scores"]
    assert scores.keys() == {"random_splits"}
    assert len(scores["random_splits"]["per_seed"][0]["trained"]["accuracy"]) == 20
    assert "20 random splits into 10, 10 and 80 %, C by validation" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dataset", "PROTEINS", "--method", "grace"], r"'PROTEINS' is not a known data set of nodes; .* two_views"),
        (["--dataset", "Cora", "--method", "two_views"], r"Cora is one graph, whose nodes are contrasted; use"),
        (["--dataset", "mine", "--method", "grace", "--eval", "public_split"],
         r"`eval` public_split does not fit mine, which has no train_mask, val_mask and test_mask; pass"),
        (["--dataset", "sbm-400", "--views.second", "node_drop"],
         r"`views\.second` removes nodes, so that row i of both views is not the same node; use edge_drop"),
        (["--dataset", "sbm-400", "--views.first", "random4"], r"`views\.first` removes nodes"),
        (["--dataset", "sbm-400", "--method", "grace", "--loss", "byol"], r"loss `byol` pushes nothing apart"),
        (["--dataset", "sbm-400", "--method", "dgi", "--loss", "adnce"], r"method `dgi` has a loss of its own"),
        (["--dataset", "synthetic", "--neighbours", "5,5"], r"`neighbours` are sampled around nodes, but"),
        (["--dataset", "sbm-400", "--neighbours", "5,0"], r"`neighbours.1` must be .*, got 0"),
        (["--dataset", "synthetic", "--eval", "nmi"], r"`eval` nmi does not fit synthetic, which has no nodes"),
        (["--dataset", "sbm-400", "--projector", "none", "--projection", "7"], r"`projection` must be the encoder's"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(words, says, mine, tmp_path, capfd):
    words = [mine if word == "mine" else word for word in words]
    assert main([*words, "--out", str(tmp_path / "run"), "--data-root", str(tmp_path)]) == 2
    message = capfd.readouterr().err.strip()
    assert re.search(says, message)
    assert "\n" not in message
    assert not (tmp_path / "run").exists()
