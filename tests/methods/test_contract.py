"""Test the contract of every registered method, from Python and from the command line."""

import copy
import inspect
import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import graphcl.methods
from graphcl.augment import Identity, NodeDrop, OneOf, two_views
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError, InputTypeError
from graphcl.graphs.batching import split
from graphcl.losses import Loss
from graphcl.methods import Method, Outcome
from graphcl.registry import losses, methods
from graphcl.run import main
from graphcl.training.loop import train
from tests.methods.small import (
    assert_same_state,
    graphs,
    make_model,
    pick,
    schedule,
    seeded,
    step,
    through_a_file,
    trainable,
    vectors,
)

NAMES = list(methods)
N = 24
FILES = {"byol": "test_siamese.py", "simsiam": "test_siamese.py"}
"""Methods that share a test file."""
OWN_LOSS = {losses.facts(name)["method"]: name for name in losses} | {"two_views": "infonce"}
OWN_LOSS |= {name: methods.facts(name)["loss"] for name in methods if "loss" in methods.facts(name)}
SMALL = {
    "moco": {"queue_size": 16, "momentum": 0.9},
    "memory_bank": {"noise": 10, "warmup": 1},
    "byol": {"momentum": 0.9},
    "clip": {"vectors": vectors(N)},
    "bgrl": {"momentum": 0.9},
    "simgrace": {"eta": 0.1},  # a larger eta hides the differences between few small graphs
}
LEARNED = ("joao", "joao_v2")
"""Methods that learn the probabilities of a pool of augmentations."""
SMALL_LOSS = {"instance_nce": {"temperature": 0.3}}  # at 0.07, training on few graphs is unstable
MOMENTA = [-0.001, 1.001, 7, math.nan, math.inf]
OUT_OF_RANGE = {
    "two_views": {"labels": []},
    "moco": {"momentum": MOMENTA, "queue_size": [-1, -4096]},
    "memory_bank": {"momentum": MOMENTA, "noise": [0, -1], "warmup": [-1]},
    "byol": {"momentum": MOMENTA, "hidden": [0, -5]},
    "simsiam": {"hidden": [0, -5]},
    "joao": {"gamma": [-0.1, math.nan, math.inf], "step_size": [0.0, -1.0, math.nan, math.inf]},
    "joao_v2": {"gamma": [-0.1, math.nan, math.inf], "step_size": [0.0, -1.0, math.nan, math.inf]},
    "simgrace": {"eta": [-0.1, math.nan, math.inf]},
    "infograph": {},
    "ad_gcl": {"drop_penalty": [-0.1, -5, math.nan, math.inf], "hidden": [0, -5]},
    "clip": {"vectors": [], "hidden": [0, -5]},
    "grace": {"nodes_per_step": [0, -5]},
    "bgrl": {"momentum": MOMENTA, "hidden": [0, -5], "rise": [0, -5]},
    "dgi": {},
}
"""Invalid values of the right type for each argument; none for a boolean argument."""

each_name = pytest.mark.parametrize("name", NAMES)
each_pair = pytest.mark.parametrize(
    ("name", "loss"),
    [(name, OWN_LOSS.get(name, "infonce")) for name in NAMES] + [(name, "adnce") for name in NAMES if name != "dgi"],
)


def pools(name, *members):
    """Return `members` as views; for a method that learns augmentation probabilities, as pools."""
    return [OneOf([each, Identity()]) if name in LEARNED else each for each in members]


def build(name, loss=None, seed=0, view=None, **arguments):
    """Return the method with small settings, a model and a loss, initialised with `seed`."""
    wanted = set(methods.arguments(name).required) - {"self", "model", "loss"}
    assert wanted <= {"num_graphs", "first", "second"}, f"do not know how to build {name}"
    loss = loss or OWN_LOSS.get(name, "infonce")
    first, second = (view, view) if view else pools(name, NodeDrop(0.2), NodeDrop(0.3))
    known = {"num_graphs": N, "first": first, "second": second}
    data = {key: known[key] for key in wanted}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(100 + seed)
        chosen = Loss(loss, **SMALL_LOSS.get(loss, {}))
        return methods[name](make_model(seed), chosen, **data, **SMALL.get(name, {}) | arguments)


def views_of(method, data, ids, seed):
    """Return two different views of the graphs `ids`, equal for equal `seed`."""
    name = next(each for each in methods if methods[each] is type(method))
    augmentations = method.augmentations(*pools(name, NodeDrop(0.2), NodeDrop(0.3)))
    return two_views(pick(data, ids), *augmentations, seeded(seed))


def trained(name, loss=None, epochs=2, seed=0, generator=1, **options):
    (view,) = pools(name, NodeDrop(0.1))
    method = build(name, loss, seed, view)
    loader = ResidentLoader(graphs(N), 8, shuffle=True, generator=seeded(seed))
    return method, train(method, loader, view, view, epochs=epochs, generator=seeded(generator), **options)


# -- form --------------------------------------------------------------------------------------------------------------


@each_name
def test_every_method_has_a_test_file_that_names_it(name):
    file = Path(__file__).with_name(FILES.get(name, f"test_{name}.py"))
    assert file.is_file(), f"no {file.name}"
    text = file.read_text()
    assert f"`{name}`" in text
    assert re.search(rf"\b{methods[name].__name__}\(", text) or methods[name].__name__ in text


@each_name
def test_documented(name):
    text = inspect.getdoc(methods[name]) or ""
    for section in ("Args", "References"):
        assert re.search(rf"^{section}:$", text, re.MULTILINE), f"no section {section}"
    for argument in [*methods.arguments(name).required, *methods.arguments(name).defaults]:
        if argument != "self":
            assert re.search(rf"^ +{argument}: ", text, re.MULTILINE), f"`{argument}` is not documented"
    assert re.search(r"arXiv\s+\d{4}\.\d{5}", text), "no paper"
    assert methods.summary(name).endswith(".")
    assert f"`{name}`" in (graphcl.methods.__doc__ or ""), "missing in the table of methods"


@each_name
def test_a_method_is_a_public_module(name):
    assert issubclass(methods[name], Method)
    assert methods[name].__name__ in graphcl.methods.__all__
    method = build(name)
    assert isinstance(method, torch.nn.Module)
    model = {id(each) for each in method.model.parameters()}
    assert model <= {id(each) for each in trainable(method)}, "something of the model would not be trained"


def test_every_loss_is_made_for_a_registered_method():
    assert {losses.facts(name)["method"] for name in losses} <= set(NAMES)


# -- training ----------------------------------------------------------------------------------------------------------


@each_pair
def test_the_outcome(name, loss):
    method = build(name, loss)
    ids = list(range(8))
    outcome = method(*views_of(method, graphs(N), ids, 0), ids=torch.tensor(ids), generator=seeded(0))
    assert isinstance(outcome, Outcome)
    assert outcome.loss.dim() == 0
    assert outcome.loss.isfinite()
    assert outcome.h.shape == (8, 16)
    assert outcome.z1.shape == outcome.z2.shape == (8, 16)
    outcome.loss.backward()
    for key, each in method.model.named_parameters():
        assert each.grad is not None, f"{key} gets no gradient"
        assert each.grad.isfinite().all(), key


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ad_gcl"])
def test_it_learns(name):
    """The loss falls. With a queue or a bank, compare with the second epoch, as the negatives change in the first.

    The value of a game need not fall: `test_ad_gcl.py` tests each player.
    """
    _, history = trained(name, epochs=12)
    values = [record.loss for record in history]
    assert all(math.isfinite(value) for value in values)
    first = values[1] if name in ("moco", "memory_bank") else values[0]
    assert statistics.median(values[-6:]) < first - 0.02 * abs(first), values


@each_name
def test_it_repeats_bit_by_bit(name):
    """The given generator determines the result, and the global generator is not used."""
    before = torch.get_rng_state()
    (first, one), (second, two) = trained(name), trained(name)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_state(first.state_dict(), second.state_dict())
    assert [record.loss for record in one] == [record.loss for record in two]
    other = trained(name, generator=2, epochs=1)[0].state_dict()
    assert any(not torch.equal(each, other[key]) for key, each in first.model.state_dict(prefix="model.").items())


@each_name
def test_training_is_the_documented_step(name):
    """`train` equals a manual loop: forward with ids, backward, step, `after_step`, and `after_epoch` per epoch."""
    (same,) = pools(name, Identity())
    data, method, by_hand = graphs(N), build(name, view=same), build(name, view=same)
    loader, generator = ResidentLoader(data, 8, shuffle=True, generator=seeded(0)), seeded(1)
    history = train(method, loader, same, same, epochs=2, generator=generator)

    optimiser, generator = torch.optim.Adam(trainable(by_hand), lr=0.01, fused=True), seeded(1)
    order, means = seeded(0), []
    for _ in range(2):
        values = []
        ids = torch.randperm(N, generator=order)
        views = two_views(pick(data, ids.tolist()), *by_hand.augmentations(same, same), generator)
        for part, *pair in zip(ids.split(8), *(split(view, [8, 8, 8]) for view in views), strict=True):
            values.append(step(by_hand, optimiser, pair, part.tolist(), generator).loss.item())
        by_hand.after_epoch()
        means.append(sum(values) / len(values))
    assert_same_state(method.state_dict(), by_hand.state_dict())
    assert [record.loss for record in history] == pytest.approx(means, rel=1e-6)


@each_name
@pytest.mark.parametrize("steps", [0, 4])
def test_training_from_a_checkpoint_is_identical(name, steps):
    """Load the states of method and optimiser from a file into objects made with another seed."""

    def method_and_optimiser(seed):
        method = build(name, seed=seed)
        return method, torch.optim.Adam(trainable(method), lr=0.03)

    first, second = method_and_optimiser(0), method_and_optimiser(1)
    data, plan = graphs(N), schedule(N, 7, steps + 2)
    for number, ids in enumerate(plan[:steps]):
        step(*first, views_of(first[0], data, ids, number), ids, seeded(number))
    assert not torch.equal(next(first[0].parameters()), next(second[0].parameters()))
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(through_a_file(old.state_dict()))
    assert_same_state(second[0].state_dict(), first[0].state_dict())
    for number, ids in enumerate(plan[steps:]):
        values = [
            step(*each, views_of(each[0], data, ids, 50 + number), ids, seeded(number)).loss for each in (first, second)
        ]
        assert torch.equal(*values), f"step {number + 1} after loading"
        assert_same_state(first[0].state_dict(), second[0].state_dict())
    states = [optimiser.state_dict()["state"] for _, optimiser in (first, second)]
    assert states[0].keys() == states[1].keys()
    for number, state in states[0].items():
        assert_same_state(states[1][number], state)


@each_name
def test_a_copy_trains_independently(name):
    method = build(name)
    optimiser, data, ids = torch.optim.Adam(trainable(method), lr=0.03), graphs(N), list(range(8))
    step(method, optimiser, views_of(method, data, ids, 0), ids, seeded(0))
    twin = copy.deepcopy(method)
    before = copy.deepcopy(method.state_dict())
    step(twin, torch.optim.Adam(trainable(twin), lr=0.03), views_of(twin, data, ids, 1), ids, seeded(1))
    twin.after_epoch()
    assert_same_state(method.state_dict(), before)


@each_name
def test_labels_are_never_looked_at_unasked(name):
    states = []
    for shift in (0, 1):
        data = graphs(N)
        for number, graph in enumerate(data):
            graph.y = torch.tensor([(number + shift) % 2])
        (view,) = pools(name, NodeDrop(0.1))
        method = build(name, view=view)
        loader = ResidentLoader(data, 8, shuffle=True, generator=seeded(0))
        train(method, loader, view, view, epochs=1, generator=seeded(1))
        states.append(method.state_dict())
    assert_same_state(*states)


@each_name
def test_bfloat16(name):
    method, history = trained(name, amp=True)
    assert all(math.isfinite(record.loss) for record in history)
    for key, value in method.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            assert value.dtype == torch.float32, key
            assert value.isfinite().all(), key


# -- arguments ---------------------------------------------------------------------------------------------------------


@each_name
def test_defaults_are_accepted(name):
    assert methods.problems(name, {}) == []
    assert methods.problems(name, methods.arguments(name).defaults) == []
    needed = {"vectors": vectors(N)} if name == "clip" else {}
    build(name, **methods.arguments(name).defaults | needed)


@each_name
def test_arguments_out_of_range_get_one_line(name):
    assert set(OUT_OF_RANGE[name]) == set(methods.arguments(name).defaults)
    for argument, values in OUT_OF_RANGE[name].items():
        for wrong in values:
            with pytest.raises(InputError, match=rf"^`{argument}` must be in \S+ \S+, got {wrong}") as caught:
                build(name, **{argument: wrong})
            assert "\n" not in str(caught.value)
            assert methods.problems(name, {argument: wrong}) == [str(caught.value)]


@pytest.mark.parametrize(("name", "argument"), [(n, a) for n in NAMES for a in methods.arguments(n).defaults])
def test_arguments_of_a_wrong_type_get_one_line(name, argument):
    default = methods.arguments(name).defaults[argument]
    for wrong in ([], *([] if default is None else [None]), *([] if isinstance(default, str) else ["nonsense"])):
        with pytest.raises(InputTypeError, match=rf"^`{argument}` must be .*, got {re.escape(repr(wrong))}") as caught:
            build(name, **{argument: wrong})
        assert "\n" not in str(caught.value)
        assert methods.problems(name, {argument: wrong}) == [str(caught.value)]


@pytest.mark.parametrize("momentum", [0, 1])
@pytest.mark.parametrize("name", [name for name in NAMES if "momentum" in methods.arguments(name).defaults])
def test_the_ends_of_the_momentums_range_are_legal(name, momentum):
    method = build(name, momentum=momentum)
    ids = list(range(8))
    step(method, torch.optim.Adam(trainable(method)), views_of(method, graphs(N), ids, 0), ids, seeded(0))
    assert all(value.isfinite().all() for value in method.parameters())


@pytest.mark.parametrize("name", ["two_views", "joao", "joao_v2", "simgrace", "ad_gcl", "clip"])
@pytest.mark.parametrize("loss", ["byol", "simsiam"])
def test_a_loss_without_negatives_is_rejected(name, loss):
    line = rf"^loss `{loss}` pushes nothing apart, so with method `{name}` .*; use method `{loss}`\.$"
    with pytest.raises(InputError, match=line):
        build(name, loss)


@pytest.mark.parametrize("name", ["moco", "memory_bank", "infograph"])
@pytest.mark.parametrize(
    "loss", [each for each in losses if not (Loss(each).accepts("queue") and Loss(each).accepts("symmetric"))]
)
def test_a_loss_without_external_negatives_is_rejected(name, loss):
    with pytest.raises(InputError, match=rf"^method `{name}` passes `.*` to the loss, which `{loss}` does not take;"):
        build(name, loss)


@pytest.mark.parametrize("name", ["moco", "byol"])
def test_the_momentum_encoder_starts_as_a_copy(name):
    method = build(name)
    for target, source in zip(method.momentum_model.parameters(), method.model.parameters(), strict=True):
        assert torch.equal(target, source)
        assert target.data_ptr() != source.data_ptr()


@each_name
def test_an_unknown_argument(name):
    (problem,) = methods.problems(name, {"nonsense": 1})
    assert problem.startswith("`nonsense` is not a known key")
    assert all(argument in problem for argument in methods.arguments(name).defaults)
    with pytest.raises(TypeError, match="nonsense") as caught:
        build(name, nonsense=1)
    assert "\n" not in str(caught.value)


@each_name
def test_a_misspelt_name_brings_the_nearest(name):
    with pytest.raises(InputError, match=f"unknown method '{name[:-1]}x'; did you mean .*{name}"):
        methods[name[:-1] + "x"]


# -- the command line --------------------------------------------------------------------------------------------------

QUICK = ["--epochs", "2", "--seeds", "0", "--eval", "knn", "--evaluation.folds", "3", "--evaluation.inner-folds", "2"]
QUICK += ["--encoder.hidden", "8", "--batch-size", "8", "--report", "false"]
ORIGINAL_AND_POOL = ["--views.first", "identity", "--views.second", "random4"]
JOAO = ["--method", "joao_v2", "--method.gamma", "0.5", *ORIGINAL_AND_POOL]
SIMGRACE = ["--method", "simgrace"]
MOCO = ["--method", "moco", "--loss", "adnce", "--method.queue_size", "32"]


@pytest.fixture
def go(saved_graphs, tmp_path, capfd):
    """Return `run(*words)`, which runs the command line and returns exit code, stdout, stderr and run folder."""

    def run(*words, out="run"):
        code = main(["--dataset", saved_graphs(), *QUICK, "--out", str(tmp_path / out), *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err, tmp_path / out

    return run


@pytest.mark.parametrize(
    ("words", "method", "loss"),
    [
        (MOCO, {"name": "moco", "queue_size": 32, "momentum": 0.999}, "adnce"),
        (["--loss", "moco"], {"name": "moco", "momentum": 0.999, "queue_size": 4096}, "moco"),
        (["--loss", "instance_nce"], {"name": "memory_bank", "momentum": 0.5, "noise": 4096}, "instance_nce"),
        (["--loss", "byol"], {"name": "byol", "momentum": 0.99, "hidden": None}, "byol"),
        (["--method", "joao"], {"name": "joao", "gamma": 0.1, "step_size": 1.0}, "infonce"),
        ([*JOAO, "--loss", "adnce"], {"name": "joao_v2", "gamma": 0.5}, "adnce"),
        (["--method", "simgrace", "--loss", "dcl"], {"name": "simgrace", "eta": 1.0}, "dcl"),
        (["--method", "infograph"], {"name": "infograph"}, "jsd"),
        (["--method", "clip", "--method.vectors", vectors(36)], {"name": "clip", "hidden": 512}, "infonce"),
        (["--method", "ad_gcl"], {"name": "ad_gcl", "drop_penalty": 5.0, "hidden": 64}, "dcl"),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value) if isinstance(value, list) else "",
)
def test_a_run(go, words, method, loss):
    code, printed, err, out = go(*words)
    assert (code, err) == (0, "")
    assert f"method: {method['name']}; loss: Loss({loss}" in printed
    result = json.loads((out / "result.json").read_text())
    assert method.items() <= result["config"]["method"].items()
    assert result["config"]["loss"]["name"] == loss
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["loss"]) for line in lines)
    assert np.isfinite(np.load(out / "embeddings.npz")["h"]).all()
    # The saved encoder is the trained encoder, not the momentum encoder.
    (state,) = torch.load(out / "encoder.pt", weights_only=True)["weights"].values()
    assert all(key.split(".")[0] in ("convs", "norms") for key in state)


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["--loss", "moco", "--method.queue_size", "5"], {"name": "moco", "queue_size": 5}),
        (["--loss", "instance_nce", "--method.noise", "5"], {"name": "memory_bank", "noise": 5}),
        (["--loss", "simsiam", "--method.hidden", "4"], {"name": "simsiam", "hidden": 4}),
    ],
    ids=["moco", "memory_bank", "simsiam"],
)
def test_settings_of_the_method_that_the_loss_is_made_for(words, method, capsys):
    """Without `--method`, `--method.KEY` refers to the method that the loss is designed for."""
    code = main([*words, "--print-config"])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    assert method.items() <= yaml.safe_load(captured.out)["method"].items()


@pytest.mark.parametrize(
    "words",
    [MOCO, ["--loss", "byol"], JOAO],
    ids=["moco", "byol", "joao_v2"],
)
def test_a_runs_configuration_repeats_it(go, words, tmp_path):
    _, _, _, out = go(*words)
    assert main(["--config", str(out / "config.yaml"), "--out", str(tmp_path / "again")]) == 0
    first, second = (np.load(folder / "embeddings.npz")["h"] for folder in (out, tmp_path / "again"))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--method", "moco", "--loss", "vicreg"], "method `moco` passes `queue` and `symmetric` to the loss"),
        (["--method", "memory_bank", "--loss", "barlow_twins"], "method `memory_bank` passes `queue` and `symmetric`"),
        (["--method", "moco", "--loss", "byol"], "method `moco` passes `queue` and `symmetric` to the loss"),
        (["--method", "two_views", "--loss", "simsiam"], "loss `simsiam` pushes nothing apart"),
        (
            ["--method", "infograph", "--loss", "vicreg"],
            "method `infograph` passes `queue` and `symmetric` to the loss",
        ),
        (["--method", "infograph", "--loss.negatives", "all"], "`negatives` must not be all with method `infograph`"),
        (["--loss", "supcon", "--method.labels", "true"], "`loss` supcon trains on the labels"),
        (["--method", "two_views", "--method.labels", "true"], "`labels` is true, but loss `infonce` takes no labels."),
        (["--method", "moco", "--method.momentum", "1.5"], "`method.momentum` must be in [0, 1], got 1.5."),
        (["--method", "moco", "--method.queue_size", "-1"], "`method.queue_size` must be in [0, 1e7], got -1."),
        (
            ["--method", "byol", "--method.queue_size", "5"],
            "`method.queue_size` is not a known key; choose from: hidden",
        ),
        (
            ["--method", "joao", "--views.first", "identity", "--views.second", "node_drop"],
            "method `joao` needs a pool of augmentations as a view, got Identity() and NodeDrop(",
        ),
        (
            ["--method", "joao_v2", "--loss", "vicreg"],
            "method `joao_v2` passes `reduction` to the loss, which `vicreg`",
        ),
        (["--method", "joao", "--loss", "barlow_twins"], "method `joao` passes `reduction` to the loss"),
        (["--method", "joao", "--loss", "byol"], "loss `byol` pushes nothing apart, so with method `joao` all"),
        (["--method", "joao", "--method.gamma", "-1"], "`method.gamma` must be in [0, inf), got -1."),
        (
            [*SIMGRACE, "--views.second", "random4"],
            "`views` must be identity with method simgrace, which takes the original graphs; got identity and random4.",
        ),
        ([*SIMGRACE, "--loss", "simsiam"], "loss `simsiam` pushes nothing apart, so with method `simgrace` all"),
        ([*SIMGRACE, "--method.eta", "-1"], "`method.eta` must be in [0, inf), got -1."),
        (["--method", "mocco"], "`method`: unknown method 'mocco'; did you mean moco"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_gets_one_line_and_code_2(go, words, line):
    code, printed, err, out = go(*words)
    assert code == 2
    assert err.startswith(f"graphcl: {line}")
    assert err.count("\n") == 1
    assert printed.count("\n") <= 1  # "loading NAME ..."
    assert not out.exists()
