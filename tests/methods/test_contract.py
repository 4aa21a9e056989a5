"""Test every registered method by one contract, from Python and from the command line; `ENTRIES` describes each."""

import copy
import inspect
import json
import math
import re
import statistics
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

import graphcl.api
import graphcl.methods
from graphcl.augment import Identity, NodeDrop, OneOf, two_views
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import split
from graphcl.loaders.resident import ResidentLoader
from graphcl.losses import Loss, infonce
from graphcl.methods import Method
from graphcl.registry import losses, methods
from graphcl.run import main
from graphcl.training.loop import train
from tests.conftest import assert_entries
from tests.methods.small import (
    Summed,
    graphs,
    make_model,
    pick,
    reload,
    same_state,
    schedule,
    seeded,
    step,
    trainable,
)

N = 24
DATA = graphs(N)
MOMENTUM, HIDDEN, WEIGHT = [-0.001, 1.001, math.nan], [0, -5], [-0.1, math.nan, math.inf]


@dataclass
class Entry:
    """Description of a method.

    Args:
        loss: loss to test with, in addition to `adnce`.
        settings: arguments for few small graphs.
        wrong: invalid values of the right type for each argument.
        refuses: why losses are refused: they push nothing `apart`, or take no external negatives (`queue`).
    """

    loss: str = "infonce"
    settings: dict = field(default_factory=dict)
    wrong: dict = field(default_factory=dict)
    refuses: str = ""


POOL = {"gamma": WEIGHT, "step_size": [0.0, -1.0, math.nan, math.inf]}
ENTRIES = {
    "two_views": Entry(wrong={"labels": []}, refuses="apart"),
    "moco": Entry(
        "moco", {"queue_size": 16, "momentum": 0.9}, {"momentum": MOMENTUM, "queue_size": [-1, -4096]}, "queue"
    ),
    "memory_bank": Entry(
        "instance_nce", {"noise": 10, "warmup": 1}, {"momentum": MOMENTUM, "noise": [0, -1], "warmup": [-1]}, "queue"
    ),
    "byol": Entry("byol", {"momentum": 0.9}, {"momentum": MOMENTUM, "hidden_channels": HIDDEN}),
    "simsiam": Entry("simsiam", {}, {"hidden_channels": HIDDEN}),
    "joao": Entry(wrong=POOL, refuses="apart"),
    "joao_v2": Entry(wrong=POOL, refuses="apart"),
    # A larger eta hides the differences between few small graphs.
    "simgrace": Entry("infonce", {"eta": 0.1}, {"eta": WEIGHT}, "apart"),
    "infograph": Entry("jsd", refuses="queue"),
    "ad_gcl": Entry("dcl", {}, {"drop_penalty": [-5, *WEIGHT], "hidden_channels": HIDDEN}, "apart"),
    "grace": Entry("nt_xent", {}, {"nodes_per_step": [0, -5]}, "apart"),
    "bgrl": Entry("byol", {"momentum": 0.9}, {"momentum": MOMENTUM, "hidden_channels": HIDDEN, "rise": [0, -5]}),
    "dgi": Entry("jsd"),
}
NAMES = [name for name in methods if name in ENTRIES]
LEARNED = ("joao", "joao_v2")  # they learn the probabilities of a pool of augmentations
each_name = pytest.mark.parametrize("name", NAMES)


def pools(name, *members):
    """Return `members` as views; for a method that learns augmentation probabilities, as pools."""
    return [OneOf([each, Identity()]) if name in LEARNED else each for each in members]


def build(name, loss=None, seed=0, view=None, **arguments):
    """Return the method with small settings, a model and a loss, initialised with `seed`."""
    first, second = (view, view) if view else pools(name, NodeDrop(0.2), NodeDrop(0.3))
    known = {"num_graphs": N, "first": first, "second": second}
    data = {key: known[key] for key in methods.arguments(name).required if key not in ("self", "model", "loss")}
    loss = loss or ENTRIES[name].loss
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(100 + seed)
        # At temperature 0.07, training on few graphs is unstable.
        chosen = Loss(loss, **({"temperature": 0.3} if loss == "instance_nce" else {})) if type(loss) is str else loss
        return methods[name](make_model(seed), chosen, **data, **ENTRIES[name].settings | arguments)


def views_of(method, ids, seed, data=None):
    """Return two different views of the graphs `ids`, equal for equal `seed`."""
    name = next(each for each in methods if methods[each] is type(method))
    augmentations = method.augmentations(*pools(name, NodeDrop(0.2), NodeDrop(0.3)))
    return two_views(pick(data or DATA, ids), *augmentations, seeded(seed))


def trained(name, epochs, **options):
    (view,) = pools(name, NodeDrop(0.1))
    method = build(name, view=view)
    loader = ResidentLoader(DATA, 8, shuffle=True, generator=seeded(0))
    return method, train(method, loader, view, view, epochs=epochs, generator=seeded(1), **options)


# -- form --------------------------------------------------------------------------------------------------------------


def test_every_method_has_an_entry_and_every_loss_a_method():
    assert_entries(methods, ENTRIES, "ENTRIES in tests/methods/test_contract.py")
    assert {losses.facts(name)["method"] for name in losses} <= set(NAMES)
    assert not [name for name in graphcl.methods.__all__ if inspect.ismodule(getattr(graphcl.methods, name))]


@each_name
def test_form(name):
    target, entry = methods[name], ENTRIES[name]
    assert issubclass(target, Method)
    assert target.__name__ in graphcl.api.__all__
    text, arguments = inspect.getdoc(target), methods.arguments(name)
    assert all(re.search(rf"^{section}:$", text, re.MULTILINE) for section in ("Args", "References"))
    for argument in [*arguments.required, *arguments.defaults]:
        assert argument == "self" or re.search(rf"^ +{argument}: ", text, re.MULTILINE), f"`{argument}`"
    assert re.search(r"arXiv\s+\d{4}\.\d{5}", text), "no paper"
    tables = (graphcl.methods.__doc__, sys.modules[target.__module__].__doc__)
    assert any(f"`{name}`" in str(table) for table in tables), "missing in the table of methods"
    assert set(entry.wrong) == set(arguments.defaults)
    assert methods.facts(name).get("loss", entry.loss) == entry.loss
    assert methods.problems(name, arguments.defaults) == methods.problems(name, {}) == []
    method = build(name)
    assert {id(each) for each in method.model.parameters()} <= {id(each) for each in trainable(method)}


# -- training ----------------------------------------------------------------------------------------------------------


@each_name
def test_the_outcome(name, monkeypatch):
    """Without labels, for the method's own loss and another one, at the ends of the momentum's range.

    A step checks no settings: they are checked when the method is made.
    """
    data, ids = graphs(N), list(range(8))
    for graph in data:
        del graph.y
    cases = [(None, {}), *[("adnce", {})] * (name != "dgi")]
    cases += [(None, {"momentum": end}) for end in (0, 1) if "momentum" in ENTRIES[name].wrong]
    for loss, arguments in cases:
        method = build(name, loss, **arguments)
        views = views_of(method, ids, 0, data)
        with monkeypatch.context() as patch:
            patch.setattr("graphcl.arguments.BaseModel.model_validate", None)
            outcome = method(*views, ids=torch.tensor(ids), generator=seeded(0))
        assert outcome.loss.dim() == 0
        assert outcome.loss.isfinite()
        assert outcome.h.shape == outcome.z1.shape == outcome.z2.shape == (8, 16)
        outcome.loss.backward()
        for key, each in method.model.named_parameters():
            assert each.grad is not None, f"{key} gets no gradient"
            assert each.grad.isfinite().all(), key
        method.after_step()
        assert all(value.isfinite().all() for value in method.parameters())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ad_gcl"])
def test_it_learns(name):
    """The loss falls. With a queue or a bank, compare with the second epoch, as the negatives change in the first.

    The value of `ad_gcl`, a game, need not fall.
    """
    values = [record.loss for record in trained(name, 6)[1]]
    first = values[1] if name in ("moco", "memory_bank") else values[0]
    assert statistics.median(values[-3:]) < first - 0.02 * abs(first), values


@each_name
def test_training_is_the_documented_step(name):
    """`train` equals a manual loop bit by bit and uses the given generator only."""
    (same,) = pools(name, NodeDrop(0.1))
    before = torch.get_rng_state()
    method, history = trained(name, 2)
    assert torch.equal(torch.get_rng_state(), before)

    by_hand, order, generator, means = build(name, view=same), seeded(0), seeded(1), []
    optimiser = torch.optim.Adam(trainable(by_hand), lr=0.01, fused=True)
    for _ in range(2):
        values, ids = [], torch.randperm(N, generator=order)
        views = two_views(pick(DATA, ids.tolist()), *by_hand.augmentations(same, same), generator)
        for part, *pair in zip(ids.split(8), *(split(view, [8, 8, 8]) for view in views), strict=True):
            values.append(step(by_hand, optimiser, pair, part.tolist(), generator).loss.item())
        by_hand.after_epoch()
        means.append(sum(values) / len(values))
    same_state(method.state_dict(), by_hand.state_dict())
    assert [record.loss for record in history] == pytest.approx(means, rel=1e-6)


@pytest.mark.parametrize("name", ["ad_gcl", "bgrl", "byol", "grace", "simgrace", "simsiam", "two_views"])
def test_a_loss_that_draws_uses_the_given_generator(name):
    """Equal draws give equal losses, others another loss; the global generator stays as it is."""
    method = build(name, Loss("sigreg", num_directions=2)).eval()
    views, before = views_of(method, list(range(8)), 0), torch.get_rng_state()
    draws = [seeded(0), seeded(0), seeded(1)]
    found = [method(*views, ids=torch.arange(8), generator=each).loss for each in draws]
    assert found[0] == found[1] != found[2]
    assert torch.equal(torch.get_rng_state(), before)


@each_name
def test_training_from_a_checkpoint_is_identical_and_a_copy_independent(name):
    """Load the states of method and optimiser from a file into objects made with another seed."""

    def method_and_optimiser(seed):
        method = build(name, seed=seed)
        return method, torch.optim.Adam(trainable(method), lr=0.03)

    first, second = method_and_optimiser(0), method_and_optimiser(1)
    plan = schedule(N, 7, 6)
    for number, ids in enumerate(plan[:4]):
        step(*first, views_of(first[0], ids, number), ids, seeded(number))
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(reload(old.state_dict()))
    same_state(second[0].state_dict(), first[0].state_dict())
    for number, ids in enumerate(plan[4:]):
        values = [step(*each, views_of(each[0], ids, 9), ids, seeded(number)).loss for each in (first, second)]
        assert torch.equal(*values), f"step {number + 1} after loading"
    same_state(first[0].state_dict(), second[0].state_dict())
    before, twin = copy.deepcopy(first[0].state_dict()), copy.deepcopy(first[0])
    step(twin, torch.optim.Adam(trainable(twin), lr=0.03), views_of(twin, plan[0], 9), plan[0], seeded(1))
    twin.after_epoch()
    same_state(first[0].state_dict(), before)


class Single(Summed):
    """Encoder whose rows are in float32 inside autocast, as after a sum of messages."""

    def forward(self, x, edge_index, batch, size):
        return super().forward(x, edge_index, batch, size).float()

    def with_nodes(self, x, edge_index, batch, size):
        return self(x, edge_index, batch, size), self.map(x).float()


@pytest.mark.parametrize("single", [False, True])
@each_name
def test_bfloat16(name, single, monkeypatch):
    if single and name == "ad_gcl":
        pytest.skip("the encoder has no weights of edges")
    if single:
        monkeypatch.setattr(
            "tests.methods.test_contract.make_model", partial(make_model, encoder=Single, projector="none")
        )
    method, history = trained(name, 1, amp=True)
    assert all(math.isfinite(record.loss) for record in history)
    for key, value in method.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            assert value.dtype == torch.float32, key
            assert value.isfinite().all(), key


# -- messages ----------------------------------------------------------------------------------------------------------


@each_name
def test_bad_arguments_get_one_line(name):
    for argument, default in methods.arguments(name).defaults.items():
        wrong = [[], *([] if default is None else [None]), *([] if isinstance(default, str) else ["nonsense"])]
        kind = InputError if argument == "labels" else InputTypeError  # `labels` is one of three values
        cases = [(each, kind, rf"^`{argument}` must be .*, got {re.escape(repr(each))}") for each in wrong]
        for each in ENTRIES[name].wrong[argument]:
            cases.append((each, InputError, rf"^`{argument}` must be in \S+ \S+, got {each}"))
        for value, kind, line in cases:
            with pytest.raises(kind, match=line) as caught:
                build(name, **{argument: value})
            assert "\n" not in str(caught.value)
            assert methods.problems(name, {argument: value}) == [str(caught.value)]
    (problem,) = methods.problems(name, {"nonsense": 1})
    assert problem.startswith("`nonsense` is not a known key")
    assert all(argument in problem for argument in methods.arguments(name).defaults)
    with pytest.raises(InputError, match=f"unknown method '{name[:-1]}x'; did you mean .*{name}"):
        methods[name[:-1] + "x"]


NO_QUEUE = [name for name in losses if not (Loss(name).accepts("queue") and Loss(name).accepts("symmetric"))]
APART = r"^loss `{loss}` pushes nothing apart, so with method `{name}` .*; use method `{loss}`\.$"


@each_name
def test_bad_losses_get_one_line(name):
    refuses = ENTRIES[name].refuses
    cases = [(each, APART.format(loss=each, name=name)) for each in ("byol", "simsiam") if refuses == "apart"]
    cases += [(each, rf"^method `{name}` passes `.*` to the loss, which `{each}` does not take;") for each in NO_QUEUE
              if refuses == "queue"]  # fmt: skip
    cases += [(3, r"^`loss` must be a Loss, its name, or a function .*, got 3\.$")]
    cases += [(Loss("infonce", reduction="none"), r"^`reduction` must be 'mean' for training, got 'none'\.$")]
    cases += [("adnce", r"has a loss of its own, half of `jsd`, got Loss\(adnce\); use")] * (name == "dgi")
    for loss, line in cases:
        with pytest.raises(InputError, match=line):
            build(name, loss)
    if name == "two_views":
        assert isinstance(build(name, infonce).loss, Loss)
        for loss, line in (
            (lambda z1, z2: (z1 - z2).sum(1), r"must be a scalar tensor, got shape \[8\]; use \.mean\(\)\.$"),
            (lambda z1, z2: 1.0, r"must be a scalar tensor, got 1\.0\.$"),
        ):
            method = build(name, loss)
            with pytest.raises(InputError, match=line):
                method(*views_of(method, list(range(8)), 0))
    if name == "memory_bank":
        method = build(name)
        with pytest.raises(InputError, match=rf"^method `{name}` needs the indices of a batch's graphs; use Resident"):
            method(*views_of(method, [0, 1], 0))


# -- the command line --------------------------------------------------------------------------------------------------

QUICK = ["--epochs", "2", "--seeds", "0", "--eval", "knn", "--evaluation.folds", "3"]
QUICK += ["--encoder.hidden_channels", "8", "--batch-size", "8", "--report", "false"]


def test_a_run_logs_learned_probabilities(tmp_path, saved_graphs, capfd):
    out = tmp_path / "run"
    views = ["--views.first", "identity", "--views.second", "random4"]
    words = ["--dataset", saved_graphs(), *QUICK, "--method", "joao_v2", "--loss", "adnce", *views]
    assert main([*words, "--out", str(out)]) == 0
    assert capfd.readouterr().err == ""
    for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()):
        p = [line[f"p_{each}"] for each in ("node_drop", "subgraph", "edge_perturb", "attribute_mask")]
        assert sum(p) == pytest.approx(1, abs=1e-6)
    (state,) = torch.load(out / "encoder.pt", weights_only=True)["weights"].values()
    assert all(key.split(".")[0] in ("convs", "norms") for key in state)  # no projector


def test_without_a_method_settings_belong_to_the_method_of_the_loss(capsys):
    for loss, setting, name in (("moco", "queue_size", "moco"), ("instance_nce", "noise", "memory_bank")):
        assert main(["--loss", loss, f"--method.{setting}", "5", "--print-config"]) == 0
        found = yaml.safe_load(capsys.readouterr().out)["method"]
        assert (found["name"], found[setting]) == (name, 5)


def test_bad_settings_get_one_line_and_code_2(tmp_path, saved_graphs, capfd):
    for words, line in (
        ("--method moco --loss vicreg", "method `moco` passes `queue` and `symmetric` to the loss"),
        ("--loss supcon --method.labels true", "`loss` supcon trains on the labels"),
        ("--method byol --method.queue_size 5", "`method.queue_size` is not a known key; choose from: hidden"),
        ("--method joao --views.first identity --views.second node_drop",
         "method `joao` needs a pool of augmentations as a view, got Identity() and NodeDrop("),
        ("--method mocco", "`method`: unknown method 'mocco'; did you mean moco"),
    ):  # fmt: skip
        assert main(["--dataset", saved_graphs(), *QUICK, "--out", str(tmp_path / "run"), *words.split()]) == 2
        printed, err = capfd.readouterr()
        assert err.startswith(f"graphcl: {line}")
        assert err.count("\n") == 1
        assert printed.count("\n") <= 1  # "loading NAME ..."
        assert not (tmp_path / "run").exists()


def test_the_folder_of_this_test_names_every_method():
    """Each method's update is compared with a reference of its own."""
    text = "".join(
        path.read_text()
        for folder in (Path(__file__).parent, Path(__file__).parents[1] / "extensions")
        for path in folder.rglob("test_*.py")
        if path.name != "test_contract.py"
    )
    assert [name for name in NAMES if f"`{name}`" not in text] == []
