"""Arguments of commands: values, precedence, messages, help."""

import pytest
from pydantic import Field

from graphcl.arguments import Count
from graphcl.config import make_config
from graphcl.config.command_line import Command
from graphcl.config.run_command import RUN
from graphcl.config.settings import Settings
from graphcl.datasets import dataset_names
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS
from graphcl.registry import augmentations, encoders, losses


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


def test_a_view_without_a_name_is_not_chosen():
    """Otherwise a method with views of its own would take the other view's default for the user's choice."""
    config = RUN.parse(["--method", "simgrace", "--views.first", "identity"])
    assert config.views.second == {"name": "identity"}
    config = RUN.parse(["--views.first.ratio", "0.1"])
    assert config.views.first == {"name": "random4", "ratio": 0.1}
    assert config.views.second["name"] == "random4"


def test_a_number_may_be_a_name():
    config = RUN.parse(["--out", "2026", "--dataset", "123"])
    assert (config.out, config.dataset) == ("2026", "123")


def test_options_override_the_file_in_any_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("loss: {name: adnce, mu: 0.1, sigma: 2.0}\nepochs: 7\n")
    config = RUN.parse(["--loss.mu", "0.9", "--config", str(file)])
    assert (config.loss["mu"], config.loss["sigma"], config.epochs) == (0.9, 2.0, 7)
    # A newly named loss takes its own defaults, not the file's arguments of another one.
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
    (tmp_path / "small.yaml").write_text("{source: a, out: b, count: 4}")
    settings = SMALL.parse(["--config", str(tmp_path / "small.yaml"), "--out", "c"])
    assert (settings.source, settings.out, settings.count) == ("a", "c", 4)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "`SOURCE` and `--out` must be given; see --help."),
        ("here", "`--out` must be given; see --help."),
        ("here --out a --count 0", "`count` must be in [1, inf), got 0."),
        ("here --out a --inner.wide 1", "`inner.wide` is not a known key; did you mean width? choose from: width."),
        ("here there --out a", "`there` belongs to no option; pass settings as --KEY VALUE, see --help."),
        ("here --source a", "`--source` is not a known option; choose from: config, count, fast, inner, names,"),
        ("here --ou a", "`--ou` is not a known option; did you mean out or count?"),
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
        (["--lss", "adnce"], "`--lss` is not a known option; did you mean"),
        (["PROTEINS"], "`PROTEINS` belongs to no option; pass settings as --KEY VALUE, see --help."),
        (["--epochs", "1", "2"], "`--epochs` takes one value, got 2."),
        (["--config"], "`--config` takes one value, got 0."),
        (["--epochs", "x"], "`epochs` must be a whole number, got 'x'."),
        (["--loss.mu", "3", "--loss", "infonce", "--loss.mu", "3"], "`loss.mu` is not a known key; choose from:"),
        (["--epochs.x", "3"], "`epochs` must be a whole number, got {'x': 3}."),
        (["--seeds"], "`--seeds` takes one or more values, got 0."),
        (["--eval", "svm,knn,svm"], "`eval` must be one or more different evaluators, got ['svm', 'knn', 'svm']."),
        (["--eval", "svn"], "`eval`: unknown evaluator 'svn'; did you mean svm? choose from: knn, logreg, ogb, svm."),
        (["--eval", "5"], "`eval`: unknown evaluator '5'; choose from: knn, logreg, ogb, svm."),
        (["--eval", "[1, svm]"], "`eval.0` must be a text, got 1."),
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


def test_help_lists_every_name():
    text = RUN.help()
    for name in [*losses, *augmentations, *encoders, *dataset_names(), "adnce/MUTAG"]:
        assert name in text
    assert "mu=0.7" in text
    assert "num_negatives=null" in text  # as it can be written
    assert "--resume FOLDER " in text
    for name, evaluate in EVALUATORS.items():
        assert f"  {name:15} {evaluate.__doc__.splitlines()[0]}\n" in text
    assert max(map(len, text.split("\n"))) < 200


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
