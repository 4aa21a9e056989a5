"""Arguments of commands: values, precedence, error messages, help texts."""

import inspect
import re

import pytest
from pydantic import Field

from graphcl.arguments import Count
from graphcl.cli.command_line import Command
from graphcl.cli.commands import RUN
from graphcl.cli.help import topic
from graphcl.config import make_config
from graphcl.config.settings import Config, Settings
from graphcl.datasets import dataset_names
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS
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


SMALL = Command("small SOURCE", Small, "Do little.", positional="source", details=lambda: "more to read")


def test_every_way_to_give_a_value():
    assert RUN.parse([]) == make_config({})
    words = "--dataset MUTAG --loss adnce --loss.mu -0.5 --loss.sigma=.inf --seeds 3 1 --lr 1e-3 --amp --batch-size 64"
    words += " --data_root here --views.second node_drop --views.second.ratio 0.1 --evaluation.folds 5"
    config = RUN.parse(words.split())
    assert (config.dataset, config.loss["mu"], config.loss["sigma"]) == ("MUTAG", -0.5, float("inf"))
    assert (config.lr, config.amp, config.batch_size, config.data_root) == (1e-3, True, 64, "here")
    assert (config.views.first["name"], config.views.second) == ("random4", {"name": "node_drop", "ratio": 0.1})
    assert (config.seeds, config.evaluation.folds) == ([3, 1], 5)
    assert RUN.parse(["--loss", "{name: dcl, temperature: 0.1}"]).loss["temperature"] == 0.1
    assert RUN.parse(["--dataset", "123"]).dataset == "123"  # a number may be a name
    # A method that requires certain views replaces only views that the user did not name.
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
    config = RUN.parse(["--config", "adnce", "--dataset", "data/NCI1.pt"])  # the configuration for this data set
    assert (config.name, config.loss["temperature"]) == ("adnce", 0.05)
    # The folder of a run has its settings.
    (tmp_path / "config.yaml").write_text("epochs: 7\nlr: 0.5\n")
    config = RUN.parse(["--resume", str(tmp_path), "--lr", "0.1"])
    assert (config.epochs, config.lr, config.out, config.resume) == (7, 0.1, str(tmp_path), True)


def test_lists_with_commas_blanks_and_ranges():
    names = ["svm,logreg,knn", "svm logreg knn", "svm, logreg , knn", "[svm,logreg,knn]", "[svm, logreg, knn]"]
    numbers = ["0-4", "0 1 2-4", "0,1,2-4", "[0,1,2,3,4]"]
    for option, value, forms in [("eval", ["svm", "logreg", "knn"], names), ("seeds", [0, 1, 2, 3, 4], numbers)]:
        for form in forms:
            assert getattr(RUN.parse([f"--{option}", *form.split()]), option) == value, form
        assert getattr(RUN.parse([f"--{option}={forms[0]}"]), option) == value


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


MESSAGES = {
    SMALL: [
        ("", "`SOURCE` and `--out` must be given; see --help."),
        ("here --out a --count 0", "`count` must be in [1, 1e9), got 0."),
        ("here there --out a", "`there` belongs to no option; pass settings as --KEY VALUE, see --help."),
        ("here --source a", "`--source` is not a known option; see --help all."),
        ("here --ou a", "`--ou` is not a known option; did you mean --out or --count? see --help all."),
        ("here --out a\0b", r"`a\x00b` contains a NUL character"),
        ("here --names", "`--names` takes one or more values, got 0."),
    ],
    RUN: [
        ("--lr 1 2", "`--lr` takes one value, got 2."),
        ("--tau 1", "`--tau` is not a known option; did you mean --loss.temperature? see"),
        ("--hidden-channels 1", "`--hidden-channels` is not a known option; did you mean --encoder.hidden-channels or"),
        ("--views.first identity --views.first.ratio 1", "`views.first.ratio` is not a known key; identity takes no "),
        ("--loss infonce dcl", "`--loss` takes one value, got 2; graphcl sweep compares several."),
        (f"--epochs {'9' * 30}", "`epochs` must be in [0, 1e9), got 999"),
        ("--seeds 4-0", "`seeds.0` must be a whole number, got '4-0'."),
        ("PROTEINS", "`PROTEINS` belongs to no option; pass settings as --KEY VALUE, such as --dataset PROTEINS, see"),
        ("--views node_drop", "`--views` is a group; set --views.first or --views.second."),
        ("--eval svn", "`eval`: unknown evaluator 'svn'; did you mean svm? choose from: ari, knn,"),
        ("--eval knn,logreg --evaluation.scale", "`evaluation.scale` has no effect without svm, got `eval` kn"),
        ("--method memory_bank --loss infonce --loss.negatives all", "`loss.negatives` all has no ef"),
        ("--loss infonce --loss.negatives queue", "`loss.negatives` queue needs a method with a queue, not"),
        ("--resume a --out b", "`--resume` and `--out` name different folders, a and b; give one."),
    ],
}


@pytest.mark.parametrize("command", MESSAGES, ids=["small", "run"])
def test_messages(command):
    for words, line in MESSAGES[command]:
        with pytest.raises(InputError) as caught:
            command.parse(words.split())
        assert str(caught.value).startswith(line), words


def test_help_about_lists_and_names():
    text = RUN.help()
    assert text.count("\n") <= 40  # fits a screen
    assert max(map(len, text.split("\n"))) <= 120
    options = re.findall(r"^  --(\S+)", RUN.help(True), re.M)
    assert set(Config.model_fields) <= {name.replace("-", "_") for name in options}
    lists = {"losses": losses, "methods": methods, "augmentations": augmentations, "encoders": encoders}
    for kind, names in (lists | {"evaluators": EVALUATORS, "datasets": (), "configurations": ()}).items():
        assert kind in text
        assert topic(kind).startswith(f"{kind}:\n  ")
        assert {*names} - {"supcon"} <= {*re.findall(r"^  (\w+)", topic(kind), re.M)}
    assert "supcon" not in topic("losses")  # a run refuses supcon, as it needs labels
    assert "mu=0.7" in topic("losses")
    assert "num_negatives=null" in topic("losses")  # None is shown as the command line accepts it
    assert all(name in topic("datasets") for name in dataset_names())
    assert "  graphcl         GraphCL (You et al., NeurIPS 2020), unsupervised" in topic("configurations")
    assert topic("ADNCE").startswith("loss adnce, with its defaults:\n  --loss adnce --loss.temperature 0.2 ")
    assert inspect.getdoc(losses["adnce"]) in topic("adnce")
    assert topic("moco").count("with its defaults") == 2  # a loss and a method
    assert "--loss.temperature      argument of adnce [0.2], alpha_cl" in topic("temperature")
    assert "--views.first NAME      augmentation, see --help augmentations" in topic("views")
    with pytest.raises(InputError, match="no help about 'adnse'; did you mean adnce or"):
        topic("adnse")


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
