"""`graphcl transfer`: both modes, output files, error messages."""

import csv
import json
import re

import numpy as np
import pytest
import torch
import yaml

from graphcl.commands.transfer import main
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.experiment.encoder_input import load_for
from graphcl.experiment.finetune import finetune, fold_splits, with_label_rate, with_outputs
from graphcl.experiment.predict import predict, predictions
from graphcl.experiment.scoring import score
from graphcl.experiment.transfer import untrained_encoder
from graphcl.loaders.loader import make_loader
from graphcl.models.saved import load_encoder, read_saved, save_encoder
from graphcl.tasks.task import make_task
from graphcl.training.loop import embed
from tests.commands.files import save_untrained
from tests.conftest import overriding, small_graphs
from tests.datasets.ogb_files import files_of, make_molecules, write_archive
from tests.trials import make_model

FINETUNE = ["--mode", "finetune", "--epochs", "2", "--batch-size", "8"]
GINE = {"name": "molecule_gine", "hidden_channels": 8, "num_layers": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with archives of two molecule data sets, and encoders for the first: of two seeds, and of one."""
    pytest.importorskip("ogb")
    folder = tmp_path_factory.mktemp("transfer")
    write_archive(folder / "archives", files_of(make_molecules(24)), "hiv")
    write_archive(folder / "archives", files_of(make_molecules(40, seed=1)), "bbbp")
    dataset = load_dataset("ogbg-molhiv", folder / "root", str(folder / "archives"))
    save_untrained(folder / "one.pt", dataset, (13, 15), encoder=GINE)
    description, weights = read_saved(folder / "one.pt")
    save_encoder(folder / "two.pt", description, {3: weights[13], 5: weights[15]})
    save_encoder(folder / "one.pt", description, {5: weights[15]})
    return folder


@pytest.fixture
def bbbp(place):
    return ["--dataset", "ogbg-molbbbp", "--mirror", str(place / "archives"), "--data-root", str(place / "root")]


def kept(folder):
    return json.loads((folder / "result.json").read_text()), yaml.safe_load((folder / "config.yaml").read_text())


def test_a_probe(place, bbbp, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(place / "two.pt"), *bbbp, "--mode", "probe", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "ROC-AUC %   ± seeds\nogb, " in printed
    assert "split: 24 training graphs, C by 8 for validation, scored on 8; mean over 2 seeds, an enc" in printed
    result, config = kept(out)
    assert result["config"] == config
    assert (config["seeds"], config["eval"], "epochs" in config) == ([3, 5], ["ogb"], False)
    assert (result["encoder"]["dataset"], [*result["split"].values()]) == ("ogbg-molhiv", [24, 8, 8])
    for number, seed in enumerate((3, 5)):
        encoder, description = load_encoder(place / "two.pt", seed)
        dataset = load_for(description, "ogbg-molbbbp", place / "root")
        settings = make_config({"dataset": "ogbg-molbbbp", "encoder": GINE})
        for key, each in (("trained", encoder), ("untrained", make_model(settings, dataset, seed).encoder)):
            h, _ = embed(each, make_loader(dataset, 40))
            expected = score(make_task(settings, dataset), "ogb", h, seed)
            assert result["scores"]["ogb"]["per_seed"][number][key] == json.loads(json.dumps(vars(expected)))


def test_fine_tuning(place, bbbp, tmp_path, capsys, monkeypatch):
    """Fine-tuning from scratch and from trained weights differ only in the initial weights of the encoder."""
    starts = []

    def watched(model, dataset, seed, callbacks=(), on_predicted=None, **options):
        starts.append((seed, {key: value.clone() for key, value in model.state_dict().items()}, options))
        return finetune(model, dataset, seed, callbacks=callbacks, on_predicted=on_predicted, **options)

    monkeypatch.setattr("graphcl.experiment.transfer.finetune", watched)
    out = tmp_path / "out"
    words = [*bbbp, *FINETUNE, "--dropout", "0.1", "--seeds", "0", "1", "--out", str(out)]
    assert main([str(place / "one.pt"), *words]) == 0
    printed = capsys.readouterr().out
    assert all(f"\nfinetune, {row}  " in printed for row in ("from scratch", "from trained", "gain over from scratch"))

    encoder, description = load_encoder(place / "one.pt")
    assert [seed for seed, *_ in starts] == [0, 0, 1, 1]
    for (seed, scratch, options), (_, trained, others) in (starts[:2], starts[2:]):
        assert options == others
        assert (options["epochs"], options["batch_size"], options["dropout"]) == (2, 8, 0.1)
        inner = {"scratch": untrained_encoder(description, seed).state_dict(), "trained": encoder.state_dict()}
        for key in scratch:
            name = key.removeprefix("encoder.")
            first, second = (inner[each][name] if name != key else scratch[key] for each in inner)
            assert torch.equal(scratch[key], first)
            assert torch.equal(trained[key], second)

    result, config = kept(out)
    assert (config["dropout"], config["lr"], "eval" in config) == (0.1, 0.001, False)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(row["seed"], row["start"], row["epoch"]) for row in rows] == [
        (seed, start, epoch) for seed in (0, 1) for start in ("untrained", "trained") for epoch in (1, 2)
    ]
    predicted = predict(out, "ogbg-molbbbp", seed=1, data_root=str(place / "root"))
    with open(out / "predictions.csv") as file:
        kept_rows = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    assert len(kept_rows) == 8
    for row in kept_rows:
        assert predicted["y_p_1"][int(row["id"])] == pytest.approx(float(row["y_p_1"]), rel=1e-5)
    assert {*read_saved(out)[1]} == {0, 1}
    text = predictions(out, "ogbg-molbbbp", data_root=str(place / "root")).text
    assert re.match(r"y by a model fine-tuned on 24 graphs for [12] epochs?; test ROC-AUC % of this head: ", text)
    for number, scores in enumerate(result["scores"]["finetune"]["per_seed"]):
        for start, found in scores.items():
            valid = [row["valid"] for row in rows if (row["seed"], row["start"]) == (number, start)]
            assert (found["inner"], found["chosen"]) == ([max(valid)], [1 + valid.index(max(valid))])


def test_folds(saved_graphs, tmp_path, capsys):
    own = str(tmp_path / "encoder.pt")
    save_untrained(own, small_graphs(), (1,))
    words = [own, "--dataset", saved_graphs(), "--out"]
    more = overriding(FINETUNE, "--epochs", "1", "--label-rate", "0.1", "--seeds", "0")
    assert main([*words, str(tmp_path / "tuned"), *more]) == 0
    result, _ = kept(tmp_path / "tuned")
    tuned = result["scores"]["finetune"]["per_seed"][0]["trained"]
    assert (result["folds"], result["inner_folds"], len(tuned["accuracy"])) == (10, None, 10)
    # Fine-tuning a single fold gives the same score.
    split = with_label_rate(list(fold_splits(load_dataset(saved_graphs()), 0))[3], 0.1, 0)
    again = finetune(with_outputs(load_encoder(own)[0], split, 0), split, 0, epochs=1, batch_size=8)
    assert (again.accuracy[0], again.chosen[0]) == (tuned["accuracy"][3], tuned["chosen"][3])

    printed = capsys.readouterr().out
    assert "10 stratified folds (10 % of the labels), epoch by the next fold; mean over 1 seed" in printed
    with open(tmp_path / "tuned" / "predictions.csv") as file:
        rows = list(csv.DictReader(file))
    dataset = load_dataset(saved_graphs())
    assert sorted(int(row["id"]) for row in rows) == [*range(36)]  # each graph is a test graph once
    assert all(int(row["y"]) == dataset.y[int(row["id"])] for row in rows)
    hits = [row["y"] == row["y_predicted"] for row in rows]
    assert 100 * sum(hits) / 36 == pytest.approx(np.mean(tuned["accuracy"]), abs=3)  # folds differ by one graph
    found = predictions(tmp_path / "tuned", dataset)
    assert re.match(r"y by a model fine-tuned on 4 graphs for 1 epoch; .* estimate of 10 folds", found.text)
    assert np.allclose(found.columns["y_p_1"] > 0.5, found.columns["y"] == 1)

    assert main([*words, str(tmp_path / "probed"), "--mode", "probe"]) == 0
    printed = capsys.readouterr().out
    assert set(predict(tmp_path / "probed", dataset)["y"]) <= {0, 1}
    assert np.load(tmp_path / "probed" / "embeddings.npz")["h"].shape[:2] == (1, 36)
    assert "accuracy %   ± seeds   ± folds\nsvm, untrained encoder" in printed
    assert "10 stratified folds, C by an inner 5-fold grid; mean over 3 seeds, of one encoder. ±: sample" in printed


def test_an_encoder_that_keeps_its_projector_is_compared_with_its_own_architecture(tmp_path):
    settings = {"keep_projector": True, "projection": 5}
    dataset, models = save_untrained(tmp_path / "tower.pt", small_graphs(), (3,), **settings)
    description, _ = read_saved(tmp_path / "tower.pt")
    untrained, expected = untrained_encoder(description, 3), models[3].encoder
    assert repr(untrained) == repr(expected)
    assert all(torch.equal(each, expected.state_dict()[key]) for key, each in untrained.state_dict().items())
    h, _ = embed(untrained, make_loader(dataset, 40))
    assert h.shape == (36, 5)


def test_molecules_that_do_not_fit(place, bbbp, capsys):
    assert main([str(place / "two.pt"), *bbbp, *FINETUNE, "--seeds", "3", "4"]) == 2
    assert f"`seeds` must be among those of {place / 'two.pt'}, 3, 5; got 4." in capsys.readouterr().err
    description, _ = read_saved(place / "two.pt")
    numbers = load_dataset(small_graphs(edge_attr=True))
    numbers._data.x = numbers._data.x.repeat(1, 3)
    with pytest.raises(InputError, match="`x` of own holds numbers; the encoder was trained on ogbg-molhiv with categ"):
        load_for(description, numbers)
    gin = description.model_copy(update={"encoder": description.encoder.model_copy(update={"name": "gin"})})
    with pytest.raises(InputError, match=r"holds categories as whole numbers; the encoder .* with numbers"):
        load_for(gin, "ogbg-molbbbp", place / "root", str(place / "archives"))


def test_a_probe_that_fits_no_evaluator_leaves_no_folder(tmp_path, capsys, recwarn):
    """Sparse rows and targets of a split have no common evaluator; numbers without a split have no score."""
    pytest.importorskip("rdkit")
    (tmp_path / "t.csv").write_text("smiles,logS,g\n" + "".join(f"{'C' * k}O,{k}.5,{k % 3}\n" for k in range(1, 31)))
    table, pairs = load_dataset(tmp_path / "t.csv", group="g"), {"dataset": str(tmp_path / "t.csv"), "group": "g"}
    for name, source in (("sparse.pt", "wl_sparse"), ("dense.pt", "molecule_gine")):
        settings = {"encoder": {"name": source}, "positives": "group", "eval": ["retrieval"]}
        save_untrained(tmp_path / name, table, **pairs, **settings)
    out = tmp_path / "out"
    words = ["--dataset", str(tmp_path / "t.csv"), "--target", "logS", "--out", str(out), "--mode"]
    for more, line in (
        (["sparse.pt", "probe", "--split", "random"], "are sparse; no evaluator fits both; use graphcl embed."),
        (["dense.pt", "probe"], "t has numbers as targets, but no parts to score them on; pass --split random."),
        (["dense.pt", "finetune"], "t has numbers as targets, but no parts to score them on; pass --split random."),
    ):
        assert main([str(tmp_path / more[0]), *words, *more[1:]]) == 2
        assert line in capsys.readouterr().err
        assert not out.exists()
