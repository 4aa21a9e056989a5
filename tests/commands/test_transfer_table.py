"""`graphcl transfer` of several data sets, modes and label rates, with pretraining; the shipped configurations."""

import json
import re

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import InMemoryDataset

from graphcl.commands.transfer import COMMAND, main
from graphcl.config import make_config, read_config
from graphcl.config.recipes import shipped_configs
from graphcl.errors import InputError
from graphcl.experiment import transfer_table
from graphcl.experiment.finetune import finetune, fold_splits, with_outputs
from graphcl.experiment.predict import predict
from graphcl.models.resgcn import ResGCN
from graphcl.models.saved import read_saved
from tests.commands.files import save_untrained
from tests.conftest import small_graphs

QUICK = ["--epochs", "2", "--seeds", "0", "1"]
PRETRAIN = ["--pretrain.epochs", "1", "--pretrain.encoder.hidden_channels", "4", "--pretrain.report", "false"]


@pytest.fixture
def collab(tmp_path):
    """Return the path of graphs without features, named as the social network of the paper."""
    path = tmp_path / "COLLAB.pt"
    graphs = small_graphs()
    for graph in graphs:
        del graph.x
    InMemoryDataset.save(graphs, str(path))
    return path


def scores(folder):
    result = json.loads((folder / "result.json").read_text())
    return result["scores"]["finetune"]["per_seed"]


def table(folder):
    lines = (folder / "table.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_the_semi_supervised_protocol_is_one_command(collab, tmp_path, capsys, monkeypatch):
    out, words = tmp_path / "out", ["--config", "graphcl_semi", "--dataset", str(collab), *QUICK, *PRETRAIN]
    begun, transfer = [], transfer_table.transfer

    def killed_at_the_third(file, plan, loaded):
        begun.append(plan.config.out)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return transfer(file, plan, loaded)

    monkeypatch.setattr(transfer_table, "transfer", killed_at_the_third)
    assert main([*words, "--out", str(out)]) == 130
    assert f"the same command with --out {out} continues" in capsys.readouterr().err
    before = [(out / name).stat().st_mtime_ns for name in ("pretrain/encoder.pt", "1-COLLAB-finetune-0.01/result.json")]
    assert main([*words, "--out", str(out), "--data-root", str(tmp_path)]) == 0
    assert len(begun) == 5  # the third one began twice, the first two once
    after = [(out / name).stat().st_mtime_ns for name in ("pretrain/encoder.pt", "1-COLLAB-finetune-0.01/result.json")]
    assert before == after
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "1-COLLAB-finetune-0.01", "2-COLLAB-finetune-0.1", "3-COLLAB-linear-0.01", "4-COLLAB-linear-0.1",
        "pretrain", "table.json", "table.md",
    ]  # fmt: skip

    pretrained = yaml.safe_load((out / "pretrain" / "config.yaml").read_text())
    assert pretrained["encoder"] == {"name": "resgcn", "hidden_channels": 4, "num_layers": 3, "readout": "sum"}
    assert (pretrained["views"]["first"]["name"], pretrained["seeds"]) == ("random4", [0, 1])  # of COLLAB alone
    assert read_saved(out / "pretrain")[0].features == "degree"

    head, *rows = table(out)
    assert head == ["", "COLLAB, 1 % of labels (accuracy %)", "COLLAB, 10 % of labels (accuracy %)"]
    names = ["pretrained, fine-tuned", "from scratch"]
    names += [f"{start}, frozen, linear layer" for start in ("pretrained", "untrained")]
    assert [row[0] for row in rows] == names
    for column, rate in enumerate(("0.01", "0.1"), start=1):
        folders = [name for name in out.iterdir() if name.name.endswith(f"-{rate}")]
        assert len(folders) == 2
        for number, (mode, start) in enumerate(
            [(m, s) for m in ("finetune", "linear") for s in ("trained", "untrained")]
        ):
            (folder,) = (name for name in folders if mode in name.name)
            means = [np.mean(seed[start]["accuracy"]) for seed in scores(folder)]
            mean, spread = map(float, rows[number][column].split(" ± "))
            assert (mean, spread) == pytest.approx((np.mean(means), np.std(means, ddof=1)), abs=0.006)

    # each transfer is that of a command of its own
    alone = ["--config", str(out / "3-COLLAB-linear-0.01" / "config.yaml"), "--out", str(tmp_path / "alone")]
    assert main(alone) == 0
    assert scores(tmp_path / "alone") == scores(out / "3-COLLAB-linear-0.01")
    assert len(predict(tmp_path / "alone", str(collab))["y"]) == 36
    assert main([*words, "--out", str(out)]) == 2
    assert "exists already and is never overwritten" in capsys.readouterr().err


def test_a_linear_layer_leaves_the_encoder_as_it_is(saved_graphs):
    from graphcl.datasets import load_dataset

    split = next(fold_splits(load_dataset(saved_graphs()), 0))
    torch.manual_seed(0)  # some weights of few columns give rows of zeros, from which nothing is learned
    model = with_outputs(ResGCN(3, hidden_channels=16), split)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    finetune(model, split, epochs=2, frozen=True)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]) == key.startswith("encoder."), key
    assert all(each.grad is None for each in model.encoder.parameters())


def test_data_sets_and_columns_are_the_columns_of_the_table(tmp_path, capsys):
    pytest.importorskip("rdkit")
    rows = [f"{'C' * (1 + k % 9)}{'O' * (k % 2)}{'N' * (k % 3)},{k % 2},{k % 3 // 2},{k}" for k in range(60)]
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["smiles,x,y,z", *rows]))
    save_untrained(tmp_path / "e.pt", str(tmp_path / "a.csv"), encoder={"name": "molecule_gine", "hidden_channels": 4})
    (tmp_path / "mine.yaml").write_text("by_dataset: {b: {target: z, metric: mae}}\n")
    files = [f"{tmp_path}/a.csv:x", f"{tmp_path}/a.csv:x,y", f"{tmp_path}/b.csv"]
    words = [str(tmp_path / "e.pt"), "--dataset", *files, "--split", "random", "--mode", "probe", "linear"]
    words += ["--config", str(tmp_path / "mine.yaml"), *QUICK, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert table(tmp_path / "out")[0] == ["", "a: x (ROC-AUC %)", "a: x, y (ROC-AUC %)", "b (MAE)"]
    assert [row[0] for row in table(tmp_path / "out")[1:]] == [
        f"{start}, frozen, {head}" for head in ("ogb", "linear layer") for start in ("pretrained", "untrained")
    ]
    assert "| pretrained, frozen, ogb " in capsys.readouterr().out
    kept = json.loads((tmp_path / "out" / "table.json").read_text())
    assert kept["b"]["untrained, frozen, linear layer"]["metric"] == "mae"


def test_mistakes_before_any_training(saved_graphs, tmp_path, capsys):
    own, out = saved_graphs(), tmp_path / "out"
    save_untrained(tmp_path / "e.pt", own)
    tune = ["--mode", "finetune", "--out", str(out), "--dataset", own]
    for words, line in (
        (tune, "`ENCODER` must be given; give one, or settings of a run that trains one, such as --pretrain.epochs"),
        (
            [*tune, "synthetic", "--pretrain.epochs", "1"],
            "several data sets, none to train the encoder on; pass",
        ),
        ([*tune, "--pretrain.epoch", "1"], "`pretrain`: `epoch` is not a known key; did you mean epochs?"),
        ([str(tmp_path / "e.pt"), *tune, "nothing.pt"], "nothing.pt"),
        ([str(tmp_path / "e.pt"), *tune, "--label-rate", "0.1", "0"], "`label_rate.1` must be in (0, 1], got 0"),
    ):
        assert main(words) == 2
        assert line in capsys.readouterr().err
        assert not out.exists()


@pytest.mark.parametrize("name", sorted(shipped_configs("transfer")))
def test_a_shipped_configuration_says_its_command_and_is_valid(name):
    text = shipped_configs("transfer")[name].read_text()
    assert re.match(rf"# graphcl transfer --config {name} .*--dataset \S+", text)
    assert max(map(len, text.split("\n"))) <= 120
    for dataset in ("NCI1", *yaml.safe_load(text)["by_dataset"]):
        settings = COMMAND.parse(["--config", name, "--dataset", dataset])
        assert settings is not None
        make_config(settings.pretrain)
    with pytest.raises(InputError, match="not found"):
        read_config(name)  # of another command
