"""The cells of a sweep, and the messages about invalid specifications."""

from itertools import product

import pytest

from graphcl.errors import InputError
from graphcl.sweep import make_plan


def plan(axes=None, table=None, **settings):
    return make_plan({"axes": axes or {}, "settings": settings, "table": table or {}})


def test_every_combination_once():
    found = plan({"loss": ["infonce", "dcl"], "loss.temperature": [0.1, 0.5], "batch_size": [8, 16]}, seeds=[3, 4])
    settings = [
        (*cell.config.seeds, cell.config.loss["name"], cell.config.loss["temperature"], cell.config.batch_size)
        for cell in found.cells
    ]
    # All cells of a seed come before the cells of the next seed, so that the table fills evenly.
    assert settings == list(product((3, 4), ("infonce", "dcl"), (0.1, 0.5), (8, 16)))
    assert len({cell.key for cell in found.cells}) == 16
    assert found.table.rows == ["loss", "loss.temperature", "batch_size"]
    # A loss on an axis keeps the arguments that other axes and the settings give it.
    (cell,) = plan({"loss.temperature": [0.3], "loss": ["dcl"]}, seeds=[0], **{"loss.symmetric": False}).cells
    assert (cell.config.loss["temperature"], cell.config.loss["symmetric"]) == (0.3, False)


def test_reference_rows_are_shared():
    found = plan({"loss": ["infonce", "dcl"], "encoder.num_layers": [2, 3], "batch_size": [8, 16]}, seeds=[0, 1])
    assert len(found.references) == 4  # two depths, two seeds
    twins = {cell.key: cell.config for cell in found.references}
    for cell in found.cells:
        twin, config = twins[cell.reference], cell.config
        assert (twin.epochs, twin.encoder, twin.seeds) == (0, config.encoder, config.seeds)
        assert twin.evaluation == config.evaluation
    found = plan({"epochs": [0, 1]}, seeds=[0])  # a cell without training computes its own reference rows
    assert (len(found.cells), len(found.references), len(found.tasks)) == (2, 1, 2)


def test_labels_of_the_same_settings_share_a_cell():
    """On DD, GraphCL's temperature is the best one, so that table 5 has one result in two rows."""
    shared = plan({"a": {"x": {"epochs": 20}, "y": {}}}, seeds=[0, 1])
    assert [cell.coordinates["a"] for cell in shared.cells] == ["x", "y", "x", "y"]
    assert len({cell.key for cell in shared.cells}) == 2
    assert len(shared.tasks) == 2 + len(shared.references)


def test_groups_of_settings_and_recipes(tmp_path):
    found = plan({"budget": {"epochs": {"epochs": 3}, "steps": {"steps": 7, "epochs": 20}}}, seeds=[0], epochs=5)
    given = {cell.coordinates["budget"]: (cell.config.epochs, cell.config.steps) for cell in found.cells}
    assert given == {"epochs": (3, None), "steps": (20, 7)}
    # A recipe has settings of single data sets; its default is for the others.
    found = plan({"recipe": ["graphcl", "adnce"], "dataset": ["NCI1", "AIDS"]}, seeds=[0], epochs=2)
    settings = [(cell.config.loss["name"], cell.config.loss["temperature"]) for cell in found.cells]
    assert settings[2:] == [("adnce", 0.05), ("adnce", 0.15)]
    assert (settings[0][0], {cell.config.epochs for cell in found.cells}) == ("dcl", {2})
    # The data set of a recipe is the default.
    (tmp_path / "mine.yaml").write_text("dataset: MUTAG\nloss: hcl\nby_dataset: {MUTAG: {lr: 0.5}}\n")
    (cell,) = plan({}, recipe=str(tmp_path / "mine.yaml"), seeds=[0]).cells
    assert (cell.config.dataset, cell.config.lr, cell.config.loss["name"]) == ("MUTAG", 0.5, "hcl")


def test_the_key_depends_on_what_the_result_depends_on():
    def key(**settings):
        return plan(seeds=[0], **settings).cells[0].key

    here = key(out="a", mirror="b", data_root="c", threads=2)
    assert here == key()
    assert len({here, key(epochs=3), key(loss="dcl"), key(lr=0.1), key(amp=True), key(max_degree=3)}) == 6


def test_labels():
    found = plan({"loss": [{"name": "adnce", "mu": 0.5}, "adnce"], "amp": [True, False], "steps": [1, None]}, seeds=[0])
    assert found.axes["loss"] == ["adnce(mu=0.5)", "adnce"]
    assert (found.axes["amp"], found.axes["steps"]) == (["true", "false"], ["1", "null"])
    assert str(found.cells[0]) == "adnce(mu=0.5), true, 1, synthetic, seed 0"


LOSSES = {"loss": ["dcl", "hcl"]}
TWO = {**LOSSES, "lr": [1, 2]}
MISTAKES = [
    ({"axes": {"losss": ["dcl"]}}, r"unknown axis `losss`; .*loss"),
    ({"axes": {"resume": [True]}}, r"^`resume` is for single runs; [^\n]*$"),
    ({"axes": {"loss": "dcl"}}, r"axis `loss` must be a list of one or more values, got 'dcl'"),
    ({"axes": {"loss": ["dcl", "infonc"]}}, r"infonc, synthetic: `loss`: unknown loss 'infonc'; .*infonce"),
    ({"settings": {"epoch": 3}}, r"`settings`: unknown setting `epoch`; .*epochs"),
    ({"axes": {"loss": ["dcl", "hcl"]}, "table": {"rows": ["loss", "dataset"]}}, r"must be different axes"),
    ({"axes": {"loss": ["dcl", "hcl"]}, "table": {"rows": "lr"}}, r"`table`: `lr` is not an axis of this sweep"),
    ({"axes": {"loss": ["dcl", "hcl"], "lr": [1, 2]}, "table": {"rows": "loss"}}, r"must name every axis .*`lr`"),
    ({"axes": {"loss": ["dcl", "hcl"]}, "table": {"baseline": "infonce"}}, r"'infonce' does not occur on `loss`"),
    ({"axes": TWO, "table": {"baseline": "dcl"}}, r"the axes loss, lr, got dcl; write --baseline loss=dcl, in a file"),
    ({"axes": TWO, "table": {"baseline": 1}}, r"got 1; write --baseline lr=1, "),
    ({"axes": TWO, "table": {"baseline": "dlc"}}, r"got dlc; did you mean dcl\?"),
    ({"table": {"baseline": "dcl"}}, r"`table.baseline` needs an axis, but the table has one row; got dcl\.$"),
    ({"table": {"jointly": True}}, r"`table.jointly` needs `table.select`"),
    ({"axes": TWO, "table": {"published": {"dcl": {"synthetic": 1}}}}, r"published` needs a table with one axis"),
    ({"axes": LOSSES, "table": {"published": "dcl"}}, r"must map rows to columns and values, got 'dcl'"),
    ({"axes": LOSSES, "table": {"published": {"dlc": {}}}}, r"published`: 'dlc' does not occur .*mean dcl"),
    ({"axes": LOSSES, "table": {"published": {"dcl": {"MUTAG": "77,8"}}}}, r"`table.published.dcl.MUTAG` must be MEAN"),
    ({"axes": {key: [*range(1, 101)] for key in ("lr", "loss.mu", "batch_size", "epochs", "max_degree")}},
     r"the axes span 10000000000 combinations; a sweep has at most 100000\."),
]  # fmt: skip


def test_mistakes():
    for spec, message in MISTAKES:
        with pytest.raises(InputError, match=message) as caught:
            make_plan(spec)
        assert all(line.endswith(".") for line in str(caught.value).split("\n")), spec


def test_a_mistake_in_all_cells_is_listed_once():
    with pytest.raises(InputError) as caught:
        plan({"loss": ["infonce", "dcl"], "loss.temperature": [0.1, -1.0]}, seeds=[-1])
    first, *others = str(caught.value).split("\n")
    assert first.startswith("`seeds.0` must be")
    assert [line.split(":")[0] for line in others] == ["infonce, -1.0, synthetic and 1 more"]
