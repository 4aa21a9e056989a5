"""Arguments of commands: values, precedence, error messages, help texts."""

import inspect
import re
from pathlib import Path

import pytest
from pydantic import Field

from graphcl.arguments import Count
from graphcl.cli.command_line import Command
from graphcl.cli.help import topic
from graphcl.cli.run_command import RUN
from graphcl.config import make_config
from graphcl.config.settings import Config, Settings
from graphcl.datasets import dataset_names
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS
from graphcl.experiment.record.run_folder import name_of
from graphcl.registry import augmentations, encoders, losses, methods


class Inner(Settings):
    width: Count = 3


class Small(Settings):
    """Settings of a made-up command."""

    source: str = Field(description="to read")
    out: str = Field(title="FILE", description="to write")
    count: Count = Field(2, description="how many")
    names: list[str] = Field(["a"], description="names")
    numbers: list[int] | None = Field(None, description="numbers")
    fast: bool = Field(False, description="quickly")
    inner: Inner = Field(Inner(), description="nested")


SMALL = Command("small SOURCE", "Do little.", Small, positional="source", details=lambda: "more to read")


def test_no_arguments_mean_the_defaults():
    assert RUN.parse([]) == make_config({})


def test_every_way_to_give_a_value():
    words = "--dataset MUTAG --loss adnce --loss.mu -0.5 --loss.sigma=.inf --seeds 3 1 --lr 1e-3 --amp --batch-size 64"
    words += " --data_root here --views.second node_drop --views.second.ratio 0.1 --evaluation.folds 5"
    config = RUN.parse(words.split())
    assert config.dataset == "MUTAG"
    assert (config.loss["mu"], config.loss["sigma"]) == (-0.5, float("inf"))
    assert config.seeds == [3, 1]
    assert (config.lr, config.amp, config.batch_size, config.data_root) == (1e-3, True, 64, "here")
    assert config.views.second == {"name": "node_drop", "ratio": 0.1}
    assert config.views.first["name"] == "random4"
    assert config.evaluation.folds == 5
    assert RUN.parse(["--loss", "{name: dcl, temperature: 0.1}"]).loss["temperature"] == 0.1
    assert RUN.parse(["--dataset", "123"]).dataset == "123"  # a number may be a name


def test_a_view_without_a_name_is_not_chosen():
    """A method that requires certain views replaces only views that the user did not name."""
    config = RUN.parse(["--method", "simgrace", "--views.first", "identity"])
    assert config.views.second == {"name": "identity"}
    config = RUN.parse(["--views.first.ratio", "0.1"])
    assert config.views.first == {"name": "random4", "ratio": 0.1}
    assert config.views.second["name"] == "random4"


def test_options_override_the_file_in_any_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("loss: {name: adnce, mu: 0.1, sigma: 2.0}\nepochs: 7\n")
    config = RUN.parse(["--loss.mu", "0.9", "--config", str(file)])
    assert (config.loss["mu"], config.loss["sigma"], config.epochs) == (0.9, 2.0, 7)
    # A loss named by an option uses its own defaults, not the file's arguments for another loss.
    assert RUN.parse(["--config", str(file), "--loss", "dcl"]).loss["name"] == "dcl"
    file.write_text("loss: adnce\n")
    assert RUN.parse(["--config", str(file), "--loss.mu", "0.3"]).loss["mu"] == 0.3


@pytest.mark.parametrize(
    "words", ["--eval svm,logreg,knn", "--eval svm logreg knn", "--eval=svm,logreg,knn", "--eval svm, logreg , knn",
              "--eval [svm,logreg,knn]", "--eval [svm, logreg, knn]"],
)  # fmt: skip
def test_lists_of_names_with_commas_or_blanks(words):
    assert RUN.parse(words.split()).eval == ["svm", "logreg", "knn"]


def test_resume_takes_the_settings_of_the_folder(tmp_path):
    (tmp_path / "config.yaml").write_text("epochs: 7\nlr: 0.5\n")
    config = RUN.parse(["--resume", str(tmp_path), "--lr", "0.1"])
    assert (config.epochs, config.lr, config.out, config.resume) == (7, 0.1, str(tmp_path), True)
    with pytest.raises(InputError, match=r"`--resume` and `--out` name different folders, a and b; give one\."):
        RUN.parse(["--resume", "a", "--out", "b"])


def test_a_command_with_its_own_settings(tmp_path):
    words = "here --out there --count 3 --names b,c --numbers 1 2 --fast --inner.width 5"
    settings = SMALL.parse(words.split())
    assert settings.model_dump() == {
        "source": "here", "out": "there", "count": 3, "names": ["b", "c"], "numbers": [1, 2], "fast": True,
        "inner": {"width": 5},
    }  # fmt: skip
    assert SMALL.parse(["--source", *words.split()]) == settings
    (tmp_path / "small.yaml").write_text("{source: a, out: b, count: 4}")
    settings = SMALL.parse(["--config", str(tmp_path / "small.yaml"), "--out", "c"])
    assert (settings.source, settings.out, settings.count) == ("a", "c", 4)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "`SOURCE` and `--out` must be given; see --help."),
        ("here", "`--out` must be given; see --help."),
        ("here --out a --count 0", "`count` must be in [1, 1e9), got 0."),
        ("here --out a --inner.wide 1", "`inner.wide` is not a known key; did you mean width? choose from: width."),
        ("here there --out a", "`there` belongs to no option; pass settings as --KEY VALUE, see --help."),
        ("here --source a", "`--source` is not a known option; see --help all."),
        ("here --ou a", "`--ou` is not a known option; did you mean --out or --count? see --help all."),
        ("here --out a\0b", r"`a\x00b` contains a NUL character"),
        ("here --names", "`--names` takes one or more values, got 0."),
    ],
)
def test_messages_of_a_command(words, line):
    with pytest.raises(InputError) as caught:
        SMALL.parse(words.split())
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--lss", "adnce"], "`--lss` is not a known option; did you mean --loss? see --help all."),
        (["--temperature", "1"], "`--temperature` is not a known option; did you mean --loss.temperature? see"),
        (["--tau", "1"], "`--tau` is not a known option; did you mean --loss.temperature? see"),
        (["--mu", "1"], "`--mu` is not a known option; did you mean --loss.mu? see"),
        (
            ["--ratio", "1"],
            "`--ratio` is not a known option; did you mean --views.first.ratio and --views.sec",
        ),
        (["--aug-ratio", "1"], "`--aug-ratio` is not a known option; did you mean --views.first.ratio and --views.sec"),
        (["--augmentation", "x"], "`--augmentation` is not a known option; did you mean --views.first and --views.sec"),
        (["--aug", "x"], "`--aug` is not a known option; did you mean --views.first and --views.second? see"),
        (["--view1", "x"], "`--view1` is not a known option; did you mean --views.first? see"),
        (
            ["--views.first", "identity", "--views.first.ratio", "0.1"],
            "`views.first.ratio` is not a known key; identity takes no arguments.",
        ),
        (["--loss", "infonce", "dcl"], "`--loss` takes one value, got 2; graphcl sweep compares several."),
        (
            ["--hidden", "1"],
            "`--hidden` is not a known option; did you mean --encoder.hidden-channels or --method.hidden-channels? see",
        ),
        (["--learning-rate", "1"], "`--learning-rate` is not a known option; did you mean --lr? see"),
        (["--loss", "ADNCE"], "`loss`: unknown loss 'ADNCE'; did you mean adnce? choose from: adnce, alpha_cl,"),
        (["--loss", "NTXent"], "`loss`: unknown loss 'NTXent'; did you mean nt_xent? choose"),
        (["--loss", "simclr"], "`loss`: unknown loss 'simclr'; did you mean nt_xent? choose"),
        (["--encoder", "GIN"], "`encoder`: unknown encoder 'GIN'; did you mean gin? choose"),
        (["--config", "grphcl"], "file or configuration 'grphcl' not found; did you mean graphcl or"),
        (["--encoder.hidden_channels", "100000"], "`encoder.hidden_channels` must be in [1, 16384], got 100000."),
        (["--encoder.num_layers", "100000"], "`encoder.num_layers` must be in [1, 1000], got 100000."),
        (["--projection", "100000000"], "`projection` must be in [1, 16384], got 100000000."),
        (
            ["--method", "moco", "--method.queue_size", "10000000000"],
            "`method.queue_size` must be in [0, 1e7], got 100",
        ),
        (["--epochs", "1e30"], "`epochs` must be a whole number, got 1e+30."),
        (["--epochs", "9" * 30], "`epochs` must be in [0, 1e9), got 999"),
        (["--threads", "100000"], "`threads` must be in [1, 1024], got 100000."),
        (["--device", "cuda:99999999999999999999"], "`device` must be auto, cpu, cuda or cuda:N, got 'cuda:999"),
        (["--seeds", "4-0"], "`seeds.0` must be a whole number, got '4-0'."),
        (["--name", "a/b"], "`name` must be a name of letters, digits, `.`, `_` and `-`, got 'a/b'."),
        (
            ["PROTEINS"],
            "`PROTEINS` belongs to no option; pass settings as --KEY VALUE, such as --dataset PROTEINS, see",
        ),
        (["--dataset"], "`--dataset` takes one value, got 0."),
        (["--views", "node_drop"], "`--views` is a group; set --views.first or --views.second."),
        (
            ["--views.first", "drop_nodes"],
            "`views.first`: unknown augmentation 'drop_nodes'; did you mean node_drop or",
        ),
        (["--epochs", "1", "2"], "`--epochs` takes one value, got 2."),
        (["--config"], "`--config` takes one value, got 0."),
        (["--epochs", "x"], "`epochs` must be a whole number, got 'x'."),
        (["--loss.mu", "3", "--loss", "infonce", "--loss.mu", "3"], "`loss.mu` is not a known key; choose from:"),
        (["--epochs.x", "3"], "`epochs` must be a whole number, got {'x': 3}."),
        (["--eval", "svm,knn,svm"], "`eval` must be one or more different evaluators, got ['svm', 'knn', 'svm']."),
        (["--eval", "svn"], "`eval`: unknown evaluator 'svn'; did you mean svm? choose from: ari, knn,"),
        (["--eval", "[1, svm]"], "`eval.0` must be a string, got 1."),
        (["--eval", "knn,logreg", "--evaluation.scale"], "`evaluation.scale` has no effect without svm, got `eval` kn"),
        (
            ["--method", "memory_bank", "--loss", "infonce", "--loss.negatives", "all"],
            "`loss.negatives` all has no ef",
        ),
        (["--loss", "infonce", "--loss.negatives", "queue"], "`loss.negatives` queue needs a method with a queue, not"),
    ],
)
def test_messages_of_run(words, line):
    with pytest.raises(InputError) as caught:
        RUN.parse(words)
    assert str(caught.value).startswith(line)


def test_the_short_help_fits_a_screen_and_names_the_lists():
    text = RUN.help()
    assert text.count("\n") <= 40
    assert max(map(len, text.split("\n"))) <= 120
    assert set(Config.model_fields) <= {
        name.replace("-", "_") for name in re.findall(r"^  --(\S+)", RUN.help(True), re.M)
    }
    for name in ("losses", "methods", "augmentations", "encoders", "evaluators", "datasets", "configurations"):
        assert name in text
        assert topic(name).startswith(f"{name}:\n  ")


def test_help_about_lists_and_names():
    lists = {"losses": losses, "methods": methods, "augmentations": augmentations, "encoders": encoders}
    for kind, registry in lists.items():
        listed = re.findall(r"^  (\w+)", topic(kind), re.M)
        assert listed == [name for name in registry if name != "supcon"]  # a run refuses supcon, as it needs labels
    assert "mu=0.7" in topic("losses")
    assert "num_negatives=null" in topic("losses")  # None is shown as the command line accepts it
    assert set(EVALUATORS) < set(re.findall(r"^  (\w+)", topic("evaluators"), re.M))
    assert all(name in topic("datasets") for name in dataset_names())
    assert "  graphcl         GraphCL (You et al., NeurIPS 2020), unsupervised" in topic("configurations")
    assert topic("ADNCE").startswith("loss adnce, with its defaults:\n  --loss adnce --loss.temperature 0.2 ")
    assert inspect.getdoc(losses["adnce"]) in topic("adnce")
    assert topic("moco").count("with its defaults") == 2  # a loss and a method
    assert topic("supcon").startswith("loss supcon")  # supcon is not listed, but has a help text
    assert "--loss.temperature      argument of adnce [0.2], alpha_cl" in topic("temperature")
    assert "--views.first NAME      augmentation, see --help augmentations" in topic("views")
    with pytest.raises(InputError, match="no help about 'adnse'; did you mean adnce or"):
        topic("adnse")


@pytest.mark.parametrize(
    ("words", "name", "dataset"),
    [
        ("--config graphcl --dataset MUTAG", "graphcl", "MUTAG"),
        ("--config graphcl --dataset ./BZR.pt", "graphcl", "./BZR.pt"),
        ("--config dcl --name mine --dataset NCI1", "mine", "NCI1"),
    ],
)
def test_a_recipe_is_found_for_the_data_set_and_names_the_run(words, name, dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RUN.parse(words.split())
    assert (config.name, config.dataset, config.loss["name"]) == (name, dataset, "dcl")
    assert name_of(config) == f"{Path(dataset).stem}-{name}"


@pytest.mark.parametrize("words", ["0-4", "0 1 2-4", "0,1,2-4", "[0,1,2,3,4]"])
def test_ranges_of_seeds(words):
    assert RUN.parse(["--seeds", *words.split()]).seeds == [0, 1, 2, 3, 4]


def test_what_is_printed_instead_of_running(capsys):
    assert SMALL.parse(["--help"]) is SMALL.parse(["here", "-h"]) is None
    assert capsys.readouterr().out == 2 * SMALL.help()
    assert SMALL.help().startswith(
        "usage: small SOURCE\n\nDo little.\n\n  SOURCE                  to read\n  --out FILE "
    )
    assert "--count N               how many [2]\n" in SMALL.help()
    assert "--numbers N ...         numbers\n" in SMALL.help()
    assert "--inner VALUE           nested [width=3]\n" in SMALL.help()
    assert SMALL.help().endswith("\n\nmore to read\n")
    assert SMALL.parse(["--version"]) is None
    assert capsys.readouterr().out.startswith("graphcl 0.")
    assert RUN.parse(["--print-config", "--epochs", "3"]) is None
    assert "epochs: 3\n" in capsys.readouterr().out
