"""Arguments of commands: values, precedence, error messages, help texts."""

import re

import pytest

from graphcl import errors
from graphcl.cli.command_line import flag, topic
from graphcl.commands.run import COMMAND as RUN
from graphcl.config import make_config
from graphcl.config.settings import Config
from graphcl.datasets import dataset_names
from graphcl.errors import InputError, InputWarning
from graphcl.extensions.diagnosis import COMMAND as DIAGNOSE
from graphcl.registry import augmentations, encoders, evaluators, losses, methods
from graphcl.run import main


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
    assert RUN.parse(["--loss.mu", "0.3", "--loss", "adnce"]).loss["mu"] == 0.3  # in any order
    for name in ("123", "a: [", "+-inf"):  # a number, or invalid YAML, may be a name
        assert RUN.parse(["--dataset", name]).dataset == name
    # A method that requires certain views replaces only views that the user did not name.
    config = RUN.parse(["--method", "simgrace", "--views.first", "identity"])
    assert config.views.second == {"name": "identity"}
    # One argument of a view keeps the rest of the default.
    config = RUN.parse(["--views.first.ratio", "0.1"])
    assert config.views.first == {"name": "random4", "ratio": 0.1}


def test_options_override_the_file_in_any_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("loss: {name: adnce, mu: 0.1, sigma: 2.0}\nepochs: 7\n")
    config = RUN.parse(["--loss.mu", "0.9", "--config", str(file)])
    assert (config.loss["mu"], config.loss["sigma"], config.epochs) == (0.9, 2.0, 7)
    # A loss named by an option uses its own defaults, not the file's arguments for another loss.
    assert RUN.parse(["--config", str(file), "--loss", "dcl"]).loss["name"] == "dcl"
    config = RUN.parse(["--config", "adnce", "--dataset", "data/NCI1.pt"])  # the configuration for this data set
    assert (config.name, config.loss["temperature"]) == ("adnce", 0.05)
    # The folder of a run has its settings.
    (tmp_path / "config.yaml").write_text("epochs: 7\nlr: 0.5\n")
    config = RUN.parse(["--resume", str(tmp_path), "--lr", "0.1"])
    assert (config.epochs, config.lr, config.out, config.resume) == (7, 0.1, str(tmp_path), True)


def test_lists_with_commas_blanks_and_ranges():
    names = ["svm,logreg,knn", "svm logreg knn", "svm, logreg , knn", "[svm, logreg, knn]"]
    for option, value, forms in [
        ("eval", ["svm", "logreg", "knn"], names), ("seeds", [0, 1, 2, 3, 4], ["0-4", "0 1 2-4", "0,1,2-4"])
    ]:  # fmt: skip
        for words in (*([f"--{option}", *form.split()] for form in forms), [f"--{option}={forms[0]}"]):
            assert getattr(RUN.parse(words), option) == value, words


def test_a_repeated_option_adds_its_values(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "mine.yaml").write_text(f"imports: ['{tmp_path}/a.py']\n")
    words = [f"--import={tmp_path}/b.py", "--seeds", "0-1", "--eval", "svm", "--lr", "0.1", f"--import={tmp_path}/c.py"]
    words += ["--seeds", "5", "--eval", "knn,logreg", "--config", f"{tmp_path}/mine.yaml"]
    config = RUN.parse(words)
    assert [file.rsplit("/", 1)[1] for file in config.imports] == ["a.py", "b.py", "c.py"]
    assert (config.seeds, config.eval, config.lr) == ([0, 1, 5], ["svm", "knn", "logreg"], 0.1)


def test_options_of_a_run_are_no_options_of_a_diagnosis():
    for words in ("--score-every 2", "--track wandb", "--resume here", "--checkpoint.epochs 2", "--report false"):
        with pytest.raises(InputError, match=rf"^`{words.split()[0]}` is an option of graphcl run only; leave it out"):
            DIAGNOSE.parse(["--dataset", "synthetic", *words.split()])
        assert f"{words.split()[0].split('.')[0]} " not in DIAGNOSE.help(True)


MESSAGES = [
    ("--lr 0.1 --epochs 3 --lr 0.2", "`--lr` takes one value, got 2."),
    ("--learning-rate 1", "`--learning-rate` is not a known option; did you mean --lr? see"),
    ("--model gin", "`--model` is not a known option; did you mean --encoder? see"),
    ("--hidden-dim 8", "`--hidden-dim` is not a known option; did you mean --encoder.hidden-channels or "),
    ("--layers 8", "`--layers` is not a known option; did you mean --encoder.num-layers? see"),
    ("--seeds", "`--seeds` takes one or more values, got 0."),
    ("--lr 1 2", "`--lr` takes one value, got 2."),
    ("--tau 1", "`--tau` is not a known option; did you mean --loss.temperature? see"),
    ("--views.first identity --views.first.ratio 1", "`views.first.ratio` is not a known key; identity takes no "),
    ("--loss infonce dcl", "`--loss` takes one value, got 2; graphcl sweep compares several."),
    ("PROTEINS", "`PROTEINS` belongs to no option; pass settings as --KEY VALUE, such as --dataset PROTEINS, see"),
    ("--views node_drop", "`--views` is a group; set --views.first or --views.second."),
    ("--eval knn,logreg --evaluation.scale", "`evaluation.scale` has no effect without svm, got `eval` kn"),
    ("--method memory_bank --loss infonce --loss.negatives all", "`loss.negatives` all has no ef"),
    ("--loss infonce --loss.negatives queue", "`loss.negatives` queue needs a method with a queue, not"),
    ("--resume a --out b", "`--resume` and `--out` name different folders, a and b; give one."),
]


def test_both_doors_suggest_the_same_settings():
    for name in ("learning_rate", "model", "evaluator", "batch", "dim", "tau", "wd", "gpu", "num_epochs", "temprature"):
        with pytest.raises(InputError) as typed:
            RUN.parse([flag(name), "1"])
        with pytest.raises(InputError) as passed:
            make_config({name: 1})
        meant = [re.search(r"did you mean ([^?]+)\?", str(each.value))[1] for each in (typed, passed)]
        assert meant[0] == " or ".join(map(flag, meant[1].split(" or "))), name


def test_a_misspelt_argument_of_the_encoder_is_one_line():
    with pytest.raises(InputError) as caught:
        RUN.parse(["--encoder.layers", "3"])
    assert str(caught.value).startswith("`encoder.layers` is not a known key; did you mean num_layers?")
    assert "\n" not in str(caught.value)


def test_messages():
    for words, line in MESSAGES:
        with pytest.raises(InputError) as caught:
            RUN.parse(words.split(" "))
        assert str(caught.value).startswith(line), words


def test_help_about_lists_and_names():
    text = RUN.help()
    assert text.count("\n") <= 40  # fits a screen
    assert max(map(len, text.split("\n"))) <= 120
    options = re.findall(r"^  --(\S+)", RUN.help(True), re.M)
    assert set(map(flag, Config.model_fields)) <= {f"--{name}" for name in options}
    lists = {"losses": losses, "methods": methods, "augmentations": augmentations, "encoders": encoders}
    for kind, names in (lists | {"evaluators": evaluators, "datasets": (), "configurations": ()}).items():
        assert kind in text
        assert topic(kind).startswith(f"{kind}:\n  ")
        assert {*names} - {"supcon"} <= {*re.findall(r"^  (\w+)", topic(kind), re.M)}
    assert "supcon" not in topic("losses")  # a run refuses supcon, as it needs labels
    assert {"mu=0.7", "num_negatives=null"} <= {*re.findall(r"\w+=[\w.]+", topic("losses"))}  # null, not None
    assert all(name in topic("datasets") for name in dataset_names())
    assert "  graphcl         GraphCL (You et al., " in topic("configurations")
    assert topic("ADNCE").startswith("loss adnce, with its defaults:\n  --loss adnce --loss.temperature 0.2 ")
    assert topic("gin").startswith("encoder gin, with its defaults:\n  --encoder gin --encoder.hidden_channels 32 ")
    assert topic("node_drop").startswith("augmentation node_drop, with its defaults:\n  --views.first node_drop ")
    assert topic("svm").startswith("evaluator svm, with its defaults:\n  --eval svm\n\n")
    assert topic("moco").count("with its defaults") == 2  # a loss and a method
    with pytest.raises(InputError, match="no help about 'adnse'; did you mean adnce or"):
        topic("adnse")


def test_what_is_printed_instead_of_running(capsys):
    for words, start in (["--help"], RUN.help()), (["--version"], "graphcl 0."), (["--epochs", "3", "-h"], RUN.help()):
        assert RUN.parse(words) is None
        assert capsys.readouterr().out.startswith(start)
    assert RUN.parse(["--print-config", "--epochs", "3"]) is None
    assert "epochs: 3\n" in capsys.readouterr().out


def test_a_setting_of_a_configuration_without_effect_is_ignored_with_one_line(capsys):
    for ending, ignored in (
        ("best --eval knn", "`evaluation.scale` has no effect without svm, got `eval` knn"),
        ("dcl --method memory_bank", "`loss.negatives` all has no effect with method memory_bank, which sets it to qu"),
        ("graphcl --method simgrace", "`views` must be identity with method simgrace, which takes the original graphs"),
    ):
        errors._SHOWN.clear()
        assert main(["--config", *ending.split(), "--print-config"]) == 0
        line = capsys.readouterr().err
        assert line.startswith(f"graphcl: warning: {ignored}")
        assert line.endswith("; the configuration's value is ignored.\n")
        assert line.count("\n") == 1
    for typed in ("best --eval knn --evaluation.scale", "graphcl --method simgrace --views.second random2"):
        assert main(["--config", *typed.split(), "--print-config"]) == 2
        assert "warning" not in capsys.readouterr().err


def test_a_warning_in_python_names_the_line_of_the_caller():
    script = "import graphcl, torch\ny = torch.arange(40) > 36\ngraphcl.svm(torch.randn(40, 2), y)\n"
    with pytest.warns(InputWarning, match="class True has only 3 graphs: 3 outer and 2 inner folds") as found:
        exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})
    assert (found[0].filename, found[0].lineno) == ("script.py", 3)
