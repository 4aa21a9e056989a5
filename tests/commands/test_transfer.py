"""`graphcl transfer`: both modes, output files, error messages."""

import json

import pytest
import torch
import yaml

from graphcl.commands import transfer as module
from graphcl.commands.transfer import main, untrained_encoder
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.errors import InputError
from graphcl.evaluate import svm
from graphcl.experiment.build import describe, make_model
from graphcl.experiment.encoder_input import load_for
from graphcl.experiment.finetune import finetune, with_outputs
from graphcl.experiment.scores import score
from graphcl.experiment.split import fold_splits, with_label_rate
from graphcl.models.saved import load_encoder, read_saved, save_encoder
from graphcl.run import main as run
from graphcl.training.loop import embed
from tests.conftest import small_graphs
from tests.datasets.ogb_files import files_of, make_molecules, write_archive

FINETUNE = ["--mode", "finetune", "--epochs", "2", "--batch-size", "8"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with archives of two molecule data sets, and a run of two seeds on the first data set."""
    pytest.importorskip("ogb")
    folder = tmp_path_factory.mktemp("transfer")
    write_archive(folder / "archives", files_of(make_molecules(24)), "hiv")
    write_archive(folder / "archives", files_of(make_molecules(40, seed=1)), "bbbp")
    words = ["--dataset", "ogbg-molhiv", "--mirror", str(folder / "archives"), "--data-root", str(folder / "root")]
    words += ["--encoder.hidden_channels", "8", "--encoder.num_layers", "2", "--epochs", "1", "--seeds", "3", "5"]
    assert run([*words, "--out", str(folder / "run")]) == 0
    description, weights = read_saved(folder / "run")
    save_encoder(folder / "one.pt", description, {5: weights[5]})
    return folder


@pytest.fixture
def bbbp(place):
    return ["--dataset", "ogbg-molbbbp", "--mirror", str(place / "archives"), "--data-root", str(place / "root")]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Save an untrained encoder for small synthetic graphs, and return the path of the file."""
    config, dataset = make_config({"encoder": {"name": "gin", "hidden_channels": 4}}), load_dataset(small_graphs())
    model = make_model(config, dataset, 1)
    path = tmp_path_factory.mktemp("own") / "encoder.pt"
    save_encoder(path, describe(config, dataset, model), {1: model.encoder.state_dict()})
    return str(path)


def kept(folder):
    return json.loads((folder / "result.json").read_text()), yaml.safe_load((folder / "config.yaml").read_text())


def test_a_probe(place, bbbp, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(place / "run"), *bbbp, "--mode", "probe", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "ROC-AUC %   ± seeds\nogb, " in printed
    assert "split: 24 training graphs, C by 8 for validation, scored on 8; mean over 2 seeds, an enc" in printed
    result, config = kept(out)
    assert result["config"] == config
    assert (config["seeds"], config["eval"], "epochs" in config) == ([3, 5], ["ogb"], False)
    assert result["encoder"]["dataset"] == "ogbg-molhiv"
    assert result["split"] == {"train": 24, "valid": 8, "test": 8}

    for number, seed in enumerate((3, 5)):
        encoder, description = load_encoder(place / "run", seed)
        dataset = load_for(description, "ogbg-molbbbp", place / "root")
        settings = make_config(
            {"dataset": "ogbg-molbbbp", "encoder": {"name": "auto", "hidden_channels": 8, "num_layers": 2}}
        )
        for key, each in (("trained", encoder), ("untrained", make_model(settings, dataset, seed).encoder)):
            h, y = embed(each, module.make_loader(dataset, 40))
            expected = score(settings, "ogb", h, y, dataset, seed)
            assert result["scores"]["ogb"]["per_seed"][number][key] == json.loads(json.dumps(vars(expected)))


def test_fine_tuning(place, bbbp, tmp_path, capsys, monkeypatch):
    """Fine-tuning from scratch and from trained weights differ only in the initial weights of the encoder."""
    starts = []

    def watched(model, dataset, seed, **others):
        starts.append((seed, {key: value.clone() for key, value in model.state_dict().items()}, others))
        return finetune(model, dataset, seed, **others)

    finetune = module.finetune
    monkeypatch.setattr(module, "finetune", watched)
    out = tmp_path / "out"
    words = [*bbbp, *FINETUNE, "--dropout", "0.1", "--seeds", "0", "1", "--out", str(out)]
    assert main([str(place / "one.pt"), *words]) == 0
    printed = capsys.readouterr().out
    for row in ("from scratch      ", "from trained      ", "gain over from scratch  "):
        assert f"\nfinetune, {row}" in printed
    assert "epoch by 8 for validation, scored on 8; mean over 2 seeds, of one encoder.\n" in printed

    encoder, description = load_encoder(place / "one.pt")
    assert [seed for seed, *_ in starts] == [0, 0, 1, 1]
    for (seed, scratch, options), (_, trained, others) in (starts[:2], starts[2:]):
        assert {**options, "callbacks": 0} == {**others, "callbacks": 0}
        assert (options["epochs"], options["batch_size"], options["dropout"]) == (2, 8, 0.1)
        fresh = untrained_encoder(description, seed).state_dict()
        for key in scratch:
            inner = key.removeprefix("encoder.")
            if inner == key:
                assert torch.equal(scratch[key], trained[key])
            else:
                assert torch.equal(scratch[key], fresh[inner])
                assert torch.equal(trained[key], encoder.state_dict()[inner])

    result, config = kept(out)
    assert (config["dropout"], config["lr"], "eval" in config) == (0.1, 0.001, False)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(row["seed"], row["start"], row["epoch"]) for row in rows] == [
        (seed, start, epoch) for seed in (0, 1) for start in ("untrained", "trained") for epoch in (1, 2)
    ]
    for number, scores in enumerate(result["scores"]["finetune"]["per_seed"]):
        for start, found in scores.items():
            valid = [row["valid"] for row in rows if (row["seed"], row["start"]) == (number, start)]
            assert (found["inner"], found["chosen"]) == ([max(valid)], [1 + valid.index(max(valid))])
    scores = result["scores"]["finetune"]
    gains = [each["trained"]["accuracy"][0] - each["untrained"]["accuracy"][0] for each in scores["per_seed"]]
    assert scores["gain"]["mean"] == pytest.approx(sum(gains) / 2)


def test_few_labels_on_folds(own, saved_graphs, tmp_path):
    out = tmp_path / "out"
    words = ["--dataset", saved_graphs(), *FINETUNE, "--label-rate", "0.1", "--seeds", "0", "--out", str(out)]
    assert main([own, *words]) == 0
    result, _ = kept(out)
    (score,) = result["scores"]["finetune"]["per_seed"]
    assert (result["folds"], result["inner_folds"], len(score["trained"]["accuracy"])) == (10, None, 10)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 10 * 2  # starts, folds, epochs
    # Fine-tuning a single fold gives the same score.
    dataset = load_dataset(saved_graphs())
    split = with_label_rate(list(fold_splits(dataset, 0))[3], 0.1, 0)
    encoder, _ = load_encoder(own)
    again = finetune(with_outputs(encoder, split, 0), split, 0, epochs=2, batch_size=8)
    assert again.accuracy[0] == score["trained"]["accuracy"][3]
    assert again.chosen[0] == score["trained"]["chosen"][3]


def test_a_probe_on_folds_with_default_seeds_and_evaluator(own, saved_graphs, tmp_path, monkeypatch, capsys):
    asked, out = [], tmp_path / "out"

    def quick(config, name, h, y, dataset, seed, *others, **more):
        asked.append((name, seed))
        return svm(h, y, folds=2, inner_folds=2, grid=[1.0], seed=seed)

    words = [own, "--dataset", saved_graphs(), "--mode", "probe", "--out"]
    assert main([*words, str(out), "--seeds", "0", "--eval", "logreg"]) == 0
    printed = capsys.readouterr().out
    assert "accuracy %   ± seeds   ± folds\nlogreg, untrained encoder" in printed
    assert "10 stratified folds, C by an inner 5-fold grid; mean over 1 seed, of one encoder.\n" in printed
    assert kept(out)[0]["scores"]["logreg"]["trained"]["seeds"] == [0]
    monkeypatch.setattr(module, "score", quick)
    assert main([*words, str(tmp_path / "other")]) == 0
    assert asked == [("svm", seed) for seed in (0, 0, 1, 1, 2, 2)]


def test_molecules_that_do_not_fit(place, bbbp, capsys):
    assert main([str(place / "run"), *bbbp, *FINETUNE, "--seeds", "3", "4"]) == 2
    assert f"`seeds` must be among those of {place / 'run'}, 3, 5; got 4." in capsys.readouterr().err
    description, _ = read_saved(place / "run")
    numbers = load_dataset(small_graphs(edge_attr=True))
    numbers._data.x = numbers._data.x.repeat(1, 3)
    with pytest.raises(InputError, match="`x` of own holds numbers; the encoder was trained on ogbg-molhiv with categ"):
        load_for(description, numbers)
    gin = description.model_copy(update={"encoder": description.encoder.model_copy(update={"name": "gin"})})
    with pytest.raises(InputError, match=r"holds categories as whole numbers; the encoder .* with numbers"):
        load_for(gin, "ogbg-molbbbp", place / "root")
