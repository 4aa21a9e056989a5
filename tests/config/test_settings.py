import pytest
import yaml

from graphcl.config import ConfigError, make_config, read_config, to_yaml
from graphcl.config.recipes import differences
from tests.config.options import FILE, options


def messages(values) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        make_config(values)
    return str(caught.value).split("\n")


def test_yaml_round_trip_is_complete(tmp_path):
    config = make_config({"loss": {"name": "adnce", "sigma": float("inf")}, "views": {"second": "node_drop"}})
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert make_config(read_config(tmp_path / "config.yaml")) == config
    # Defaults are written out, so that a later change of a default does not change what the file means.
    assert config.loss["temperature"] == 0.2
    assert config.views.second == {"name": "node_drop", "ratio": 0.2}


def test_a_temperature_can_be_learned():
    for name in ("moco", "rince"):
        assert make_config({"loss": {"name": name, "temperature": "learn"}}).loss["temperature"] == "learn"
    assert messages({"loss": {"name": "alpha_cl", "temperature": "learn"}}) == [
        "`loss.temperature` must be a number, got 'learn'."
    ]


def test_everything_wrong_is_said_at_once():
    values = {"loss": {"name": "adnce", "mu": "a", "temperature": -1, "muu": 1}, "evaluation": {"folds": 1}}
    values |= {"views": {"firs": "identity", "second": {"name": "node_dro"}}, "batchsize": 3, "seeds": ["a"]}
    found = messages({**values, "epochs": 2.5, "batch_size": 1, "device": "gpu"})
    expected = [
        "`views.firs` is not a known key; did you mean first? choose from: first, second.",
        "`epochs` must be a whole number, got 2.5.",
        "`batch_size` must be in [2, 1e9) (a contrastive loss compares at least two graphs), got 1.",
        "`seeds.0` must be a whole number, got 'a'.",
        "`evaluation.folds` must be in [2, 1e9), got 1.",
        "`loss.temperature` must be in [1e-6, inf), got -1.0.",
        "`loss.mu` must be a number, got 'a'.",
        "`device` must be auto, cpu, cuda or cuda:N, got 'gpu'.",
    ]
    assert set(expected) <= set(found)
    for start in ("`batchsize` is not a known key; did you mean batch_size?",
                  "`loss.muu` is not a known key; did you mean mu?",
                  "`views.second`: unknown augmentation 'node_dro'; did you mean node_drop"):  # fmt: skip
        assert any(line.startswith(start) for line in found)
    assert len(found) == 11


def test_messages():
    for values, line in [
        ({None: 1}, "`None` is not a known key: keys are strings."),
        ({"loss": {"mu": 1}}, "`loss` must be a name or a mapping with a `name`"),
        ({"encoder": {"hidden_channels": 8}}, "`encoder` must be a name or a mapping with a `name`, got {'hidden"),
        ({"encoder": {}}, "`encoder` must be a name or a mapping with a `name`, got {}."),
        ({"loss": {1: 1}}, "`loss.1.[key]` must be a string, got 1."),
        ({"loss": {"name": "dcl", "reduction": "none"}}, "`loss.reduction` must be 'mean' for training"),
        ({"encoder.readout": "max"}, "`encoder` must be a name or a mapping with a `name`, got {'readout': 'max'}."),
        ({"eval": ["none", "svm"]}, "`eval` must be none, or one or more different evaluators, got ['none', 'svm']."),
        ({"positives": "p.csv", "towers": "separate", "keep_projector": True},
         "`keep_projector` has no effect with separate towers, whose embeddings are always projections."),
        ({"seeds": [1, 1]}, "`seeds` must be one or more different numbers, got [1, 1]."),
        ({"dataset": object}, "`dataset` must be a string, got <class 'object'>."),
        ({"temperature": 0.5}, "`temperature` is not a known key; did you mean loss.temperature? there are"),
        ({"views": {"first": "one_of"}}, "`views.first.members` must be a list of one or more augmentations"),
        ({"views": {"first": {"name": "one_of", "members": ["identity", {"name": "subgraph", "growth": "x"}]}}},
         "`views.first.members.1.growth` must be 'boundary' or 'one_hop', got 'x'."),
        ({"method": "simgrace", "views": {"second": {"name": "node_drop", "ratio": 0.1}}},
         "`views` must be identity with method simgrace, which takes the original graphs; got identity and node_drop."),
    ]:  # fmt: skip
        (found,) = messages({**values, "epochs": 3})
        assert found.startswith(line), values


def test_a_method_of_original_graphs_has_them_for_its_views_by_default():
    for views in ({}, {"views": {}}, {"views": {"first": "identity"}}, {"views": {"second": {"name": "identity"}}}):
        config = make_config({"method": {"name": "simgrace", "eta": 0.1}, **views})
        assert config.views.model_dump() == {"first": {"name": "identity"}, "second": {"name": "identity"}}
        assert make_config(yaml.safe_load(to_yaml(config))) == config
    assert make_config({"method": "two_views"}).views.second["name"] == "random4"


def test_loss_and_method_follow_each_other_where_only_one_is_named():
    of_infograph = {"name": "auto", "symmetric": True}
    given = [{}, {"loss": "moco"}, {"method": "infograph"}, {"method": "byol"}]
    given += [{"method": "infograph", "loss": of_infograph}, {"method": "infograph", "loss": "infonce"}]
    found = [(config.loss["name"], config.method["name"]) for config in map(make_config, given)]
    expected = [("infonce", "two_views"), ("moco", "moco"), ("jsd", "infograph"), ("infonce", "byol")]
    assert found == [*expected, ("jsd", "infograph"), ("infonce", "infograph")]


def test_a_difference_of_encoders_is_named_once_unless_targets_have_their_own():
    old, new = ({"encoder": {"width": width}, "target_encoder": {"width": width}} for width in (4, 8))
    assert differences(old, new) == ["`encoder.width` was 4 and is 8"]
    assert differences(old, {**old, "target_encoder": {"width": 8}}) == ["`target_encoder.width` was 4 and is 8"]


def test_a_new_option_is_a_decision():
    """After a change that is meant: `python -m tests.config.options` writes the list."""
    assert options() == FILE.read_text().splitlines()
