import pytest

from graphcl.config.command_line import help_text, parse, wants
from graphcl.config.settings import make_config
from graphcl.datasets import dataset_names
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS
from graphcl.registry import augmentations, encoders, losses


def test_nothing_means_the_defaults():
    assert parse([]) == make_config({})


def test_every_way_to_give_a_value():
    words = "--dataset MUTAG --loss adnce --loss.mu -0.5 --loss.sigma=.inf --seeds 3 1 --lr 1e-3 --amp --batch-size 64"
    words += " --data_root here --views.second node_drop --views.second.ratio 0.1 --evaluation.folds 5"
    config = parse(words.split())
    assert config.dataset == "MUTAG"
    assert config.loss["mu"] == -0.5
    assert config.loss["sigma"] == float("inf")
    assert config.seeds == [3, 1]
    assert (config.lr, config.amp, config.batch_size, config.data_root) == (1e-3, True, 64, "here")
    assert config.views.second == {"name": "node_drop", "ratio": 0.1}
    assert config.views.first["name"] == "random4"
    assert config.evaluation.folds == 5


def test_a_view_that_is_not_named_is_not_chosen():
    """Else a method with views of its own would take the other view's default for the user's choice."""
    config = parse(["--method", "simgrace", "--views.first", "identity"])
    assert config.views.second == {"name": "identity"}
    config = parse(["--views.first.ratio", "0.1"])
    assert config.views.first == {"name": "random4", "ratio": 0.1}
    assert config.views.second["name"] == "random4"


def test_a_number_may_be_a_name():
    assert parse(["--out", "2026", "--dataset", "123"]).out == "2026"


def test_the_file_comes_first_whatever_the_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("loss: {name: adnce, mu: 0.1, sigma: 2.0}\nepochs: 7\n")
    config = parse(["--loss.mu", "0.9", "--config", str(file)])
    assert (config.loss["mu"], config.loss["sigma"], config.epochs) == (0.9, 2.0, 7)
    # A newly named loss takes its own defaults, not the file's arguments for another one.
    assert parse(["--config", str(file), "--loss", "dcl"]).loss["name"] == "dcl"
    file.write_text("loss: adnce\n")
    assert parse(["--config", str(file), "--loss.mu", "0.3"]).loss["mu"] == 0.3


@pytest.mark.parametrize(
    "words", ["--eval svm,logreg,knn", "--eval svm logreg knn", "--eval=svm,logreg,knn", "--eval svm, logreg , knn",
              "--eval [svm,logreg,knn]", "--eval [svm, logreg, knn]"],
)  # fmt: skip
def test_evaluators_with_commas_or_beside_each_other(words):
    assert parse(words.split()).eval == ["svm", "logreg", "knn"]
    assert parse(["--eval", "knn"]).eval == ["knn"]
    assert parse([]).eval == ["svm"]


def test_print_config_prints_and_stops(capsys):
    assert parse(["--print-config", "--epochs", "3"]) is None
    assert "epochs: 3\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--lss", "adnce"], "`--lss` is not a known option; did you mean"),
        (["PROTEINS"], "`PROTEINS` belongs to no option; settings are given as --KEY VALUE, see --help."),
        (["--epochs", "1", "2"], "`--epochs` takes one value, got 2."),
        (["--config"], "`--config` takes one value, got 0."),
        (["--epochs", "x"], "`epochs` must be a whole number, got 'x'."),
        (["--loss.mu", "3", "--loss", "infonce", "--loss.mu", "3"], "`loss.mu` is not a known key; choose from:"),
        (["--epochs.x", "3"], "`epochs` must be a whole number, got {'x': 3}."),
        (["--seeds"], "`seeds` must be one or more different numbers, got []."),
        (["--eval"], "`eval` must be one or more different evaluators, got []."),
        (["--eval", "svm,knn,svm"], "`eval` must be one or more different evaluators, got ['svm', 'knn', 'svm']."),
        (["--eval", "svn"], "`eval`: unknown evaluator 'svn'; did you mean svm? choose from: knn, logreg, ogb, svm."),
        (["--eval", "5"], "`eval`: unknown evaluator '5'; choose from: knn, logreg, ogb, svm."),
        (["--eval", "[1, svm]"], "`eval.0` must be a text, got 1."),
        (
            ["--eval", "knn,logreg", "--evaluation.scale"],
            "`evaluation.scale` means nothing without svm, got `eval` knn, logreg.",
        ),
    ],
)
def test_messages(words, line):
    with pytest.raises(InputError) as caught:
        parse(words)
    assert str(caught.value).startswith(line)


def test_help_lists_every_name():
    text = help_text()
    for name in [*losses, *augmentations, *encoders, *dataset_names(), "adnce/MUTAG"]:
        assert name in text
    assert "mu=0.7" in text
    assert "num_negatives=null" in text  # as it can be written
    assert "--resume FOLDER " in text
    for name in EVALUATORS:
        assert f"  {name:15} Cross-validated test accuracy of " in text
    assert max(map(len, text.split("\n"))) < 200


def test_help_and_version():
    assert wants(["--loss", "adnce", "--help"]) == help_text()
    assert wants(["-h"]) == help_text()
    assert wants(["--version"]).startswith("graphcl 0.")
    assert wants(["--loss", "adnce"]) is None


def test_infinity_and_a_loss_in_braces():
    assert parse(["--loss", "adnce", "--loss.sigma", "inf"]).loss["sigma"] == float("inf")
    assert parse(["--loss", "{name: dcl, temperature: 0.1}"]).loss["temperature"] == 0.1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--method", "memory_bank", "--loss", "infonce", "--loss.negatives", "all"],
            "`loss.negatives` all has no effect",
        ),
        (
            ["--loss", "infonce", "--loss.negatives", "queue"],
            "`loss.negatives` queue means nothing to method two_views",
        ),
    ],
)
def test_a_setting_without_an_effect_is_refused(words, line):
    with pytest.raises(InputError, match=line):
        parse(words)
