"""Configurations shipped with the package, and settings of single data sets."""

import re

import pytest

from graphcl.config import make_config, read_config
from graphcl.config.recipes import shipped_configs
from graphcl.errors import InputError

SETS = ["MUTAG", "PTC_MR", "PROTEINS", "NCI1", "IMDB-BINARY", "COLLAB", "Cora", "CiteSeer", "ogbg-molhiv"]


def test_a_configuration_says_its_command_and_gives_only_differences():
    assert {"adnce", "dcl", "flatnce", "graphcl", "infograph", "joao", "simgrace"} < set(shipped_configs())
    defaults = make_config({}).model_dump()
    for name, file in shipped_configs().items():
        lines = file.read_text().split("\n")
        assert re.fullmatch(rf"# python -m graphcl.run --config {name} --dataset \S+", lines[0])
        assert max(map(len, lines)) <= 120, name
        for dataset in SETS:
            values = read_config(name, dataset)
            assert make_config(values).name == name
            assert [key for key, value in values.items() if defaults[key] == value] == [], name


def test_settings_of_a_data_set_override_the_others():
    for dataset, temperature, view in [(None, 0.15, "random2"), ("data/NCI1.pt", 0.05, "random3")]:
        values = read_config("adnce", dataset)
        assert "by_dataset" not in values
        assert (values["loss"]["temperature"], values["loss"]["mu"]) == (temperature, 0.7), dataset
        assert values["views"] == {"first": "identity", "second": view}, dataset


def test_invalid_settings_of_data_sets(tmp_path):
    (tmp_path / "mine.yaml").write_text("by_dataset: {MUTAG: 3}\n")
    with pytest.raises(InputError, match=r"mine\.yaml: `by_dataset` must map names of data sets to settings, got "):
        read_config(tmp_path / "mine.yaml", "MUTAG")
