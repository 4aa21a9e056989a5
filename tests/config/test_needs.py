"""What settings need, declared beside their fields: each has an effect, is refused, or is warned of, by name."""

import itertools
import warnings

import pytest
import torch

from graphcl import InputError, load_dataset
from graphcl.arguments import Needs
from graphcl.config import ConfigError, make_config
from graphcl.config.recipes import override
from graphcl.config.resolve import FACTS
from graphcl.config.settings import Config
from graphcl.errors import READ_AS_OPTIONS, InputWarning
from graphcl.experiment.run_config import run
from graphcl.registry import encoders, losses, methods
from graphcl.tasks.evaluation import with_usable_evaluation
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs
from tests.trials import run_seed, try_settings

GROUP = {"positives": "group"}
MINED = {**GROUP, "hard_negatives": 2}
SMALL = {"encoder": {"name": "gin", "hidden_channels": 4}, "epochs": 3, "batch_size": 6, "eval": ["knn"]}
LABELS, RETRIEVAL, LOSS = {"eval": ["svm"]}, {"eval": ["retrieval"]}, {"loss": "infonce"}
TABLE = {
    "batch_by": ("place", GROUP),
    "best_epoch": (True, {**GROUP, **RETRIEVAL, "epochs": 5, "lr": 0.3}),
    "batch_share": (0.4, {**GROUP, "batch_by": "place"}),
    "hard_negatives": (2, GROUP),
    "mine_every": (2, MINED),
    "mine_margin": (0.9, MINED),
    "pair_share": (0.5, GROUP),
    "singles": ("views", {**GROUP, "views": {"first": "node_drop", "second": "node_drop"}}),
    "shuffle_window": (16, {}),
    "keep_projector": (True, {}),
    "micro_batch": (3, {}),
    "patience": (1, {"epochs": 12, "lr": 0.3}),
    "score_every": (2, {}),
    "epochs": (2, {}),
    "frozen_bn": (True, {}),
    "precise_bn": (True, {}),
    "max_degree": (1, {"features": "degree"}),
    "evaluation.folds": (2, {}),
    "evaluation.inner_folds": (3, {}),
    "evaluation.scale": (True, LABELS),
    "evaluation.within": ("place", RETRIEVAL),
    "loss.symmetric": (False, LOSS),
    "loss.negatives": ("all", LOSS),
}
"""Setting -> a value, and settings with which it has an effect."""
WITHOUT = {
    "batch_by": {},
    "best_epoch": GROUP,
    "batch_share": GROUP,
    "hard_negatives": {**GROUP, "method": "moco"},
    "mine_every": GROUP,
    "mine_margin": GROUP,
    "pair_share": {},
    "singles": {},
    "shuffle_window": MINED,
    "keep_projector": {"projector": "none"},
    "micro_batch": {"batch_size": 2},
    "patience": {"epochs": 1},
    "score_every": {"eval": "none"},
    "epochs": {"steps": 3},
    "evaluation.folds": {"eval": "none"},
    "evaluation.inner_folds": {"eval": ["instance"]},
    "evaluation.scale": {"eval": ["knn"]},
    "evaluation.within": {},
    "evaluation.sample": {"eval": "none"},
    "loss.symmetric": {"method": "infograph", "loss": "infonce"},
    "loss.negatives": {"method": "memory_bank", "loss": "infonce"},
    "encoder.readout": {"method": "grace", "encoder": "node_gcn"},
    "encoder.hidden_channels": {"method": "grace", "encoder": {"name": "node_gcn", "num_layers": 1}},
    "neighbours": {},
    "targets": GROUP,
    "towers": GROUP,
    "target_encoder": GROUP,
    "projection": {"encoder": "wl_sparse", **GROUP},
    "projector": {"encoder": "wl_sparse", **GROUP},
    "positives": {"method": "infograph"},
    "resume": {},
    "loss": {"method": "moco"},
    "encoder": {},
    "method": {"encoder": "wl_sparse", **GROUP},
}
"""Setting -> settings with which it has none, or that it contradicts."""
MORE = {
    "encoder.readout": "max", "encoder.hidden_channels": 4, "evaluation.sample": 50,
    "neighbours": [3], "targets": "synthetic", "towers": "separate",
    "target_encoder": "deep_sets", "projection": 8, "projector": "mlp", "positives": "group",
    "resume": True, "loss": "supcon", "encoder": "wl_sparse", "method": "moco",
}  # fmt: skip
VALUES = {name: value for name, (value, _) in TABLE.items()} | MORE
OF_DATA = {"BatchNorm", "BatchNorm of the model", "ranks", "degrees", "batches"}
"""Facts that the settings do not decide."""


@pytest.fixture
def on_the_command_line():
    """Let warnings name options, as messages of errors do."""
    token = READ_AS_OPTIONS.set(True)
    yield
    READ_AS_OPTIONS.reset(token)


@pytest.fixture(scope="module")
def dataset():
    graphs = small_graphs()
    for number, graph in enumerate(graphs):
        graph.group, graph.place = number // 3 if number < 30 else number, number % 2
    return load_dataset(graphs, features="labels")


def names_of_needs():
    for name, field in Config.model_fields.items():
        inner = getattr(type(field.default), "model_fields", {})
        for path, each in [(name, field), *((f"{name}.{part}", of) for part, of in inner.items())]:
            yield from ((path, need) for need in each.metadata if isinstance(need, Needs))


def test_every_need_names_a_fact_and_every_setting_with_needs_is_in_the_table():
    needs = list(names_of_needs())
    assert {need.fact for _, need in needs if not need.fact.startswith("rows ")} <= {
        *FACTS,
        *OF_DATA,
        *Config.model_fields,
    }
    assert {path for path, need in needs if need.fact in {*FACTS, *Config.model_fields}} <= {*WITHOUT, "sync_batchnorm"}
    for registry in (encoders, losses, methods):
        fields = [field for name in registry for field in registry.arguments(name).model.model_fields.values()]
        assert {need.fact for field in fields for need in field.metadata if isinstance(need, Needs)} <= {*FACTS}


@pytest.fixture(scope="module")
def outcome(dataset):
    """Return a function that runs settings, which must cause no warning, once, and returns what they can change."""
    outcomes = {}

    def of(given):
        config = make_config(override(SMALL, given))
        key = config.model_dump_json()
        if key not in outcomes:
            graphs = small_graphs()
            data = (
                load_dataset(graphs, features="degree", max_degree=config.max_degree)
                if "features" in given
                else dataset
            )
            with warnings.catch_warnings():
                warnings.simplefilter("error", InputWarning)
                try_settings(config, data)
                config = with_usable_evaluation(make_task(config, data)).config
            result = run_seed(config, data, 0)
            scores = {row: str(score) for row, score in result.scores[config.eval[0]].items()}
            outcomes[key] = result.h.tolist(), scores, result.epoch_scores.keys(), len(result.history)
        return outcomes[key]

    return of


@pytest.mark.parametrize("name", TABLE)
def test_a_setting_has_an_effect_where_its_needs_are_met(name, outcome):
    value, with_it = TABLE[name]
    without, found = outcome(with_it), outcome(override(with_it, {name: value}))
    if name == "micro_batch":  # equal up to the statistics of BatchNorm
        assert without[0] != found[0]
    assert without != found


@pytest.mark.parametrize("name", WITHOUT)
def test_a_setting_without_effect_is_refused_by_name(name, on_the_command_line):
    given = override(WITHOUT[name], {name: VALUES[name]})
    with pytest.raises(ConfigError) as caught:
        make_config(given)
    lines = [line for line in str(caught.value).split("\n") if line.startswith(f"`{name}` ")]
    assert len(lines) == 1
    # the value of a configuration is ignored, with a warning, and what is left has no problem with it
    with pytest.warns(InputWarning) as warned:
        config = make_config(given, own=[key for key in WITHOUT[name] if key not in ("towers", "loss", "encoder")])
    assert [str(each.message) for each in warned if str(each.message).startswith(f"`{name}` ")] == [
        f"{lines[0].rstrip('.')}; the configuration's value is ignored."
    ]
    assert make_config(config.model_dump()) == config


@pytest.mark.parametrize("name", WITHOUT)
def test_the_default_of_a_setting_is_accepted_everywhere(name):
    first, _, inner = name.partition(".")
    if name in ("projector", "loss", "encoder", "method") or name.startswith(("loss.", "encoder.")):
        return
    default = Config.model_fields[first].default
    default = getattr(default, inner) if inner else default
    others = {key: value for key, value in WITHOUT[name].items() if key != "towers"}
    make_config(override(others, {name: default}))


def test_two_settings_have_an_effect_or_are_refused_by_name():
    for pair in itertools.combinations([name for name in VALUES if not name.startswith("encoder.")], 2):
        given = {name: VALUES[name] for name in pair}
        lines, config = [], None
        try:
            config = make_config(override({**LOSS, "encoder": "gin"}, given))
        except InputError as error:
            lines = str(error).split("\n")
        assert all(line.startswith(tuple(f"`{name}` " for name in pair)) for line in lines), pair
        if config is not None:
            assert make_config(config.model_dump()) == config, pair
            needed = {key for name in pair if name in TABLE for key in TABLE[name][1]}
            assert needed - {"epochs", "lr", "features", "views", "loss", "eval"} <= {*pair}, pair


def test_settings_without_effect_on_the_data_or_the_model_are_warned_of(dataset):
    for given, line in (
        ({"precise_bn": True, "encoder": "deep_sets"}, "`precise_bn` has no effect, as the model has no BatchNorm"),
        ({"frozen_bn": True, "encoder": "deep_sets"}, "`frozen_bn` has no effect, as the model has no BatchNorm"),
        ({"sync_batchnorm": True}, "`sync_batchnorm` True has no effect on one process; start several by torchrun"),
        ({"rank_timeout": 5.0}, "`rank_timeout` 5.0 has no effect on one process"),
        ({"max_degree": 9}, "`max_degree` 9 has no effect on `features` labels; pass `features` degree"),
    ):
        with pytest.warns(InputWarning) as warned:
            try_settings(make_config({**SMALL, **given}), dataset)
        assert [str(each.message).startswith(line) for each in warned] == [True], given


def test_settings_of_the_evaluation_that_the_data_decides_are_warned_of(dataset, tmp_path):
    for given, name in (
        ({"eval": ["retrieval"], "evaluation": {"folds": 3}}, "evaluation.folds"),
        ({"eval": ["svm"], "evaluation": {"sample": 10}}, "evaluation.sample"),
    ):
        with pytest.warns(InputWarning, match=f"^`{name}` .* has no effect without") as warned:
            with_usable_evaluation(make_task(make_config(given), dataset))
        assert len(warned) == 1
    graphs = small_graphs(labelled=False)
    torch.save(graphs, tmp_path / "bare.pt")
    given = {"dataset": str(tmp_path / "bare.pt"), "out": str(tmp_path / "run"), "epochs": 1, "report": False}
    with pytest.warns(InputWarning, match=r"^`evaluation\.folds` 3 has no effect without an evaluator on folds"):
        run(make_config({**given, "evaluation": {"folds": 3}}))
