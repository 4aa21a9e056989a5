"""Test the contract of all registered augmentations.

A checker is a function `check_...(augment, batch)` that raises AssertionError if an augmentation breaks the contract.
The tests run each checker on every registered augmentation, with several arguments. They also run the checkers on
augmentations that are broken on purpose, which must fail.
"""

import copy
import inspect
import math
import pickle
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData

from graphcl.augment import AttributeMask, Augmentation, Decision, EdgePerturb, NodeDrop, Subgraph, apply
from graphcl.errors import InputError, InputTypeError
from graphcl.registry import augmentations
from tests.strategies import (
    EDGE_LEVEL,
    NODE_LEVEL,
    QUICK,
    TYPICAL,
    assert_same_batch,
    assert_same_graph,
    assert_same_graphs,
    assert_same_value,
    assert_true_batch,
    batches,
    lollipop,
    loops,
    make_batch,
    make_graph,
    needs_cuda,
    path,
    seeded,
    snapshot,
    star,
    typical_batch,
)

NAMES = list(augmentations)


def members():
    """Return members for composed augmentations; each removes nodes, rewires edges or changes features."""
    return [NodeDrop(0.4), EdgePerturb(0.4), AttributeMask(0.4)]


def build(name, **arguments):
    wanted = set(augmentations.arguments(name).required) - {"self"}
    assert wanted <= {"members"}, f"do not know how to build {name}"
    return augmentations[name](*[members() for _ in wanted], **arguments)


def function_of(name):
    target = augmentations[name]
    return inspect.unwrap(target.__init__ if inspect.isclass(target) else target)


def switches(name):
    """Yield each boolean or `Literal` argument of an augmentation, with its possible values."""
    hints = get_type_hints(function_of(name))
    for argument in augmentations.arguments(name).defaults:
        if get_origin(hints[argument]) is Literal:
            yield argument, get_args(hints[argument])
        elif hints[argument] is bool:
            yield argument, (False, True)


def variants():
    """Yield every augmentation with its defaults, with a large ratio, and with each other value of its switches."""
    for name in NAMES:
        yield pytest.param(name, {}, id=name)
        defaults = augmentations.arguments(name).defaults
        large = {"ratio": 0.7} if "ratio" in defaults else {}
        if large:
            yield pytest.param(name, large, id=f"{name}-ratio=0.7")
        for argument, choices in switches(name):
            for choice in choices:
                if choice != defaults[argument]:
                    yield pytest.param(name, {argument: choice, **large}, id=f"{name}-{argument}={choice}")


def having(argument):
    return [name for name in NAMES if argument in augmentations.arguments(name).defaults]


each_name = pytest.mark.parametrize("name", NAMES)
each_variant = pytest.mark.parametrize(("name", "arguments"), list(variants()))
FEW = settings(QUICK, max_examples=5)  # examples per variant, as there are many variants
any_batch = batches(needs=("x",))  # attribute masking needs `x`


# -- the checkers ------------------------------------------------------------------------------------------------------


def check_true_batch(augment, batch):
    """Check that a view is a valid PyG batch with the same number of graphs, and that no graph is empty."""
    view = augment(batch, seeded(0))
    assert isinstance(view, Batch)
    assert view.num_graphs == batch.num_graphs == len(view.to_data_list())
    sizes = view.ptr.diff()
    assert (sizes >= 1).all(), f"sizes {sizes.tolist()}"
    assert torch.equal(view.batch, torch.arange(view.num_graphs).repeat_interleave(sizes))
    source, target = view.edge_index
    assert torch.equal(view.batch[source], view.batch[target]), "an edge across graphs"
    assert_true_batch(view)


def check_attributes_are_carried(augment, batch):
    """Check that node and edge rows follow their node or edge, and graph-level attributes stay; only `x` may change."""
    view = augment(batch, seeded(0))
    assert set(view.keys()) == set(batch.keys())
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        assert type(after) is type(before)
        kept_nodes, kept_edges = after.node_id % 100, after.edge_id % 100
        assert kept_nodes.unique().numel() == kept_nodes.numel() == after.num_nodes
        assert kept_edges.unique().numel() == kept_edges.numel() == after.num_edges
        for key in before.keys():  # noqa: SIM118
            if key in NODE_LEVEL and key != "x":
                assert_same_value(after[key], before[key][kept_nodes], key)
            elif key in EDGE_LEVEL and key != "edge_index":
                assert_same_value(after[key], before[key][kept_edges], key)
            elif key in ("x", "edge_index"):
                assert after[key].dtype == before[key].dtype
            elif key != "num_nodes":
                assert_same_value(after[key], before[key], key)
        assert after.x.shape == (after.num_nodes, before.x.size(1))


def check_input_stays(augment, batch):
    before = snapshot(batch)
    versions = {key: value._version for key, value in batch._store.items() if isinstance(value, torch.Tensor)}
    augment(batch, seeded(0))
    assert list(batch._store) == list(before[0])
    assert_same_value(snapshot(batch), before, "input")
    for key, version in versions.items():
        assert batch[key]._version == version, f"`{key}` was written to"


def check_replay(augment, batch):
    """Check that `decide` followed by `apply` equals a call, and that applying a decision again gives the same view."""
    view = augment(batch, seeded(1))
    before = snapshot(batch)
    decision = augment.decide(batch, seeded(1))
    assert_same_value(snapshot(batch), before, "input")
    assert isinstance(decision, Decision)
    for _ in range(2):
        assert_same_batch(apply(batch, decision), view)
    assert_same_value(snapshot(batch), before, "input")


def check_randomness(augment, batch):
    """Check that only the given generator determines the view, or only torch's global generator if none is given."""
    state = torch.get_rng_state()
    first = augment(batch, seeded(2))
    assert torch.equal(torch.get_rng_state(), state), "draws from the global generator"
    torch.rand(3)
    assert_same_batch(augment(batch, seeded(2)), first)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        globally = augment(batch)
        torch.manual_seed(2)
        assert_same_batch(augment(batch), globally)


def check_untouched_graphs(augment, batch):
    """Check that unselected graphs are bitwise unchanged, and that selected graphs follow the decision."""
    for graphs in (torch.arange(batch.num_graphs) % 2 == 0, torch.zeros(batch.num_graphs, dtype=torch.bool)):
        held = graphs.clone()
        view = augment(batch, seeded(3), graphs=graphs)
        assert_true_batch(view)
        for touched, after, before in zip(graphs, view.to_data_list(), batch.to_data_list(), strict=True):
            if not touched:
                assert_same_graph(after, before)
        assert torch.equal(graphs, held)
        assert_same_batch(apply(batch, augment.decide(batch, seeded(3), graphs)), view)
    everything = torch.ones(batch.num_graphs, dtype=torch.bool)
    assert_same_batch(augment(batch, seeded(3), everything), augment(batch, seeded(3)))


def check_documented(target):
    text = inspect.getdoc(target) or ""
    assert re.match(r"[A-Z].*\.(\n|$)", text.split("\n\n")[0].replace("\n", " ")), "no summary sentence"
    assert re.search(r"^Example:$", text, re.MULTILINE), "no section Example"
    assert ">>> " in text, "no runnable example"
    arguments = [name for name in inspect.signature(target).parameters if name != "self"]
    if arguments:
        assert re.search(r"^Args:$", text, re.MULTILINE), "no section Args"
    for argument in arguments:
        assert re.search(rf"^ +{argument}: ", text, re.MULTILINE), f"`{argument}` is not documented"
    if "ratio" in arguments:
        assert re.search(r"^References:$", text, re.MULTILINE), "no section References"


def check_tested(names, folder):
    missing = [name for name in names if not (folder / f"test_{name}.py").is_file()]
    assert not missing, f"no test file of its own: {', '.join(missing)}"


CHECKERS = [
    check_true_batch,
    check_attributes_are_carried,
    check_input_stays,
    check_replay,
    check_randomness,
    check_untouched_graphs,
]


# -- over the registry -------------------------------------------------------------------------------------------------


def test_every_augmentation_has_a_test_file_of_its_own():
    check_tested(NAMES, Path(__file__).parent)


def test_the_registry_knows_the_public_augmentations():
    public = {"identity", "node_drop", "edge_perturb", "subgraph", "attribute_mask", "compose", "one_of"}
    assert public | {"random2", "random3", "random4"} <= set(NAMES)
    assert len(augmentations) == len(NAMES)


PECULIAR = ("x", "edge_attr", "y", "ragged", "name")
"""Attributes of the peculiar batches; the others have all."""
BATCHES = {
    "typical": typical_batch(),
    "one entry per graph, as many edges": make_batch(*[(5, [(0, 1)])] * 3),
    "no edge at all": make_batch((3, []), (2, []), (4, []), keys=PECULIAR),
    "one node": make_batch((1, []), keys=PECULIAR),
    "single nodes": make_batch((1, []), (1, [(0, 0)]), (1, []), keys=PECULIAR),
    "as many nodes as edges": make_batch((4, [(0, 1), (1, 2), (2, 3), (3, 0)]), (2, [(1, 0), (0, 1)]), keys=PECULIAR),
    "self-loops only": make_batch((3, path(3)), (3, [(0, 0), (1, 1), (2, 2)]), (4, []), keys=PECULIAR),
    "parallel": make_batch((5, [(0, 1)] * 6), (3, [(2, 1), (2, 1), (1, 2)]), keys=PECULIAR),
    "nodes after the last edge": make_batch(*[(4, path(4))] * 3, (6, []), keys=PECULIAR),
}


@each_variant
def test_known_batches(name, arguments):
    """Other than default arguments are tested on every third batch."""
    for batch in [*BATCHES][:: 3 if arguments else 1]:
        for check in CHECKERS:
            try:
                check(build(name, **arguments), BATCHES[batch])
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} on {batch}: {error}") from None


@each_variant
@FEW
@given(batch=any_batch)
def test_any_batch(name, arguments, batch):
    augment = build(name, **arguments)
    for check in CHECKERS:
        check(augment, batch)


@pytest.mark.parametrize("name", having("ratio"))
@FEW
@given(batch=any_batch)
def test_ratio_zero_changes_nothing(name, batch):
    assert_same_batch(build(name, ratio=0)(batch, seeded(0)), batch)


@pytest.mark.parametrize("name", having("ratio"))
def test_the_largest_legal_ratio_leaves_a_node(name):
    view = build(name, ratio=math.nextafter(1, 0))(typical_batch(), seeded(0))
    assert (view.ptr.diff() >= 1).all()
    assert len(view.to_data_list()) == view.num_graphs == len(TYPICAL)


@each_name
def test_successive_calls_differ(name):
    batch, generator = typical_batch(), seeded(0)
    augment = build(name, **({"ratio": 0.5} if name in having("ratio") else {}))
    views = [augment(batch, generator) for _ in range(4)]
    same = [
        all(torch.equal(view[key], views[0][key]) for key in ("x", "node_id", "edge_id", "edge_index"))
        for view in views[1:]
    ]
    assert all(same) == (name == "identity")


@each_name
def test_a_batch_of_many_graphs_at_once(name):
    """Draws differ between thirty equal graphs."""
    batch = make_batch(*[(8, path(8))] * 30)
    augment = build(name, **({"ratio": 0.5} if name in having("ratio") else {}))
    check_true_batch(augment, batch)
    graphs = augment(batch, seeded(0)).to_data_list()
    seen = {str((graph.node_id % 100, graph.edge_index, graph.x[:, 0] - graph.node_id)) for graph in graphs}
    assert len(seen) == 1 if name == "identity" else len(seen) >= 5


@each_name
def test_a_generator_advances_alike_for_the_call_and_for_the_decision(name):
    calling, deciding = seeded(4), seeded(4)
    build(name)(typical_batch(), calling)
    build(name).decide(typical_batch(), deciding)
    assert torch.equal(calling.get_state(), deciding.get_state())


@each_variant
@pytest.mark.parametrize("shapes", [TYPICAL, [(40, path(40)), (9, lollipop()), (30, star(20)), (12, [])] * 5])
def test_the_same_seed_gives_the_same_view_without_a_compiler(name, arguments, shapes):
    batch, views, states = make_batch(*shapes), [], []
    for compiled in (True, False):
        with loops(compiled):
            generator = seeded(0)
            views.append(build(name, **arguments)(batch, generator))
            states.append(generator.get_state())
    assert_same_batch(*views)
    assert torch.equal(*states)


@each_name
def test_autograd_goes_through(name):
    batch = typical_batch(keys=("x", "edge_attr"))
    batch.x.requires_grad_()
    batch.edge_attr.requires_grad_()
    view = build(name)(batch, seeded(0))
    (view.x.sum() + view.edge_attr.sum()).backward()
    assert batch.x.grad is not None
    assert batch.edge_attr.grad is not None


@each_name
def test_copies_and_pickles(name):
    augment = build(name)
    expected = augment(typical_batch(), seeded(5))
    for again in (copy.deepcopy(augment), pickle.loads(pickle.dumps(augment))):
        assert repr(again) == repr(augment)
        assert_same_batch(again(typical_batch(), seeded(5)), expected)


@each_name
def test_repr_shows_every_argument(name):
    augment = build(name)
    assert isinstance(augment, Augmentation)
    text = repr(augment)
    assert text.startswith(f"{type(augment).__name__}(")
    for argument, value in vars(augment).items():
        assert f"{argument}={value!r}" in text


@each_name
def test_documented(name):
    check_documented(augmentations[name])


# -- messages: the argument, the rule, the value -----------------------------------------------------------------------


@pytest.mark.parametrize("name", having("ratio"))
@pytest.mark.parametrize("wrong", [1.0, 1, 1.5, -0.1, math.nan, math.inf, -math.inf], ids=str)
def test_ratios_out_of_range(name, wrong):
    message = rf"`ratio` must be in \[0, 1\), got {float(wrong)}"
    with pytest.raises(InputError, match=message):
        build(name, ratio=wrong)
    (problem,) = augmentations.problems(name, {"ratio": wrong})
    assert re.match(message, problem)


@pytest.mark.parametrize("name", having("ratio"))
@pytest.mark.parametrize("wrong", ["a", "0.2", True, None, [0.2]], ids=repr)
def test_ratios_of_a_wrong_type(name, wrong):
    with pytest.raises(InputTypeError, match=f"`ratio` must be a number, got {re.escape(repr(wrong))}"):
        build(name, ratio=wrong)


@each_name
def test_every_argument_refuses_a_wrong_type(name):
    choices = dict(switches(name))
    for argument in augmentations.arguments(name).defaults:
        optional = augmentations.arguments(name).defaults[argument] is None
        for wrong in ("nonsense", 3) if optional else ([], "nonsense", None):
            with pytest.raises(InputError, match=f"`{argument}` must be .*, got {re.escape(repr(wrong))}") as caught:
                build(name, **{argument: wrong})
            assert "\n" not in str(caught.value)
            if argument not in choices:
                assert isinstance(caught.value, InputTypeError)
    for argument, legal in choices.items():
        with pytest.raises(InputError) as caught:
            build(name, **{argument: "nonsense"})
        assert all(str(choice).lower() in str(caught.value) for choice in legal)


@each_name
@pytest.mark.parametrize("wrong", [None, "graph", torch.ones(3), [], HeteroData(), {"x": 1}], ids=type)
def test_what_is_no_graph(name, wrong):
    with pytest.raises(InputTypeError, match=rf"`Data` or `Batch`, got {type(wrong).__name__}"):
        build(name)(wrong)


@each_name
def test_a_batch_of_heterogeneous_graphs(name):
    hetero = HeteroData()
    hetero["a"].x = torch.ones(2, 1)
    with pytest.raises(InputTypeError, match="homogeneous"):
        build(name)(Batch.from_data_list([hetero, hetero]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "identity"])
def test_graphs_without_edge_index(name):
    for data in (Data(x=torch.ones(3, 2)), Batch.from_data_list([Data(x=torch.ones(3, 2))] * 2)):
        with pytest.raises(InputError, match="edge_index"):
            build(name)(data)


REMOVES_NODES = ["node_drop", "subgraph", "random2", "random3", "random4", "one_of", "compose"]


def with_faces(number=0):
    graph = make_graph(5, path(5), number)
    graph.face = torch.tensor([[0, 1], [1, 2], [2, 4]])
    return graph


class Paired(Data):
    """Data class with a node index attribute, `partner`, that only its own `__inc__` knows."""

    def __inc__(self, key, value, *args, **kwargs):
        return self.num_nodes if key == "partner" else super().__inc__(key, value, *args, **kwargs)


PAIRED = Paired(**make_graph(5, path(5)).to_dict(), partner=torch.tensor([3, 4, 0, 1, 2]))
INDICES = {
    "batch": Batch.from_data_list([with_faces(0), with_faces(1)]),
    "batch of one": Batch.from_data_list([with_faces(0)]),
    "graph": with_faces(),
    "hand-made": Batch(
        x=torch.ones(4, 1), edge_index=torch.tensor([[0], [1]]), batch=torch.tensor([0, 0, 1, 1]),
        face=torch.tensor([[0], [1], [1]]),
    ),
    "batch by its class": Batch.from_data_list([PAIRED] * 3),
    "batch of one by its class": Batch.from_data_list([PAIRED]),
    "graph by its class": PAIRED,
}  # fmt: skip


@pytest.mark.parametrize("name", REMOVES_NODES)
@pytest.mark.parametrize("data", INDICES)
def test_node_indices_cannot_survive_the_removal_of_nodes(name, data):
    with pytest.raises(InputError, match=r"`(face|partner)`.*indices"):
        build(name)(INDICES[data], seeded(0))


@pytest.mark.parametrize("name", ["identity", "edge_perturb", "attribute_mask"])
def test_node_indices_survive_where_nodes_stay(name):
    batch = Batch.from_data_list([with_faces(0), with_faces(1)])
    view = build(name)(batch, seeded(0))
    assert_same_value(view.face, batch.face)
    assert_true_batch(view)


# -- batches not made by from_data_list --------------------------------------------------------------------------------


def hand_made(**more):
    """Return a batch of two paths of three nodes and a single node, built without `from_data_list`."""
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
    ids = {"node_id": torch.arange(7), "edge_id": torch.arange(8)}
    batch = torch.tensor([0, 0, 0, 1, 1, 1, 2])
    return Batch(x=torch.arange(14.0).view(7, 2), edge_index=edge_index, batch=batch, **ids, **more)


@each_variant
@pytest.mark.parametrize("edges", [8, 3], ids=["more-edges-than-graphs", "as-many-edges-as-graphs"])
def test_hand_made_batches(name, arguments, edges):
    """`to_data_list()` of the view either works or raises PyG's error for such batches."""
    y, edge_attr = torch.tensor([7, 8, 9]), torch.arange(8.0)
    batch = hand_made(y=y)
    batch.edge_index, batch.edge_id = batch.edge_index[:, :edges], batch.edge_id[:edges]
    if edges == 8:
        batch.edge_attr = edge_attr
    view = build(name, **arguments)(batch, seeded(0))
    assert view.num_graphs == 3
    # Identity returns the batch unchanged, without `ptr`.
    sizes = view.batch.bincount(minlength=3) if view.get("ptr") is None else view.ptr.diff()
    assert torch.equal(view.batch, torch.arange(3).repeat_interleave(sizes))
    assert (sizes >= 1).all()
    assert torch.equal(view.batch, batch.batch[view.node_id])
    assert torch.equal(view.get("edge_attr", edge_attr[view.edge_id]), edge_attr[view.edge_id])
    assert torch.equal(view.y, y)
    assert view.edge_index.shape == (2, view.edge_id.numel())
    assert torch.equal(view.batch[view.edge_index[0]], view.batch[view.edge_index[1]])
    assert "ptr" not in batch
    assert set(view.keys()) - {"ptr"} == set(batch.keys())
    if hasattr(view, "_slice_dict"):
        assert_true_batch(view)
        assert all(set(graph.keys()) == set(batch.keys()) - {"batch"} for graph in view.to_data_list())
    else:
        with pytest.raises(RuntimeError, match="from_data_list"):
            view.to_data_list()


@each_name
@pytest.mark.parametrize("followed", [["x", "edge_attr"], ["edge_index"]], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param(TYPICAL, id="typical"),
        pytest.param([(2, [(0, 1)]), (1, [(0, 0), (0, 0)])], id="as-many-nodes-as-pointers"),
        pytest.param([(4, path(4)[:4]), (5, []), (3, [])], id="as-many-edges-as-pointers"),
    ],
)
def test_followed_attributes(name, shapes, followed):
    """`follow_batch` adds `x_batch` and `x_ptr`, which belong to the batch, not to its graphs."""
    augment = build(name, **({"ratio": 0.5} if name in having("ratio") else {}))
    plain = make_batch(*shapes, keys=("x", "y", "edge_attr"))
    batch = Batch.from_data_list(plain.to_data_list(), follow_batch=followed)
    view = augment(batch, seeded(0))
    edge_batch = view.batch[view.edge_index[0]]
    edge_ptr = torch.tensor([int((edge_batch < g).sum()) for g in range(batch.num_graphs + 1)])
    for key in followed:
        expected = (view.batch, view.ptr) if key == "x" else (edge_batch, edge_ptr)
        for made, value in zip((f"{key}_batch", f"{key}_ptr"), expected, strict=True):
            if made in view:  # an augmentation may remove it
                assert_same_value(view[made].sort().values, value.sort().values, made)
    assert_same_graphs(view.to_data_list(), augment(plain, seeded(0)).to_data_list())


# -- CUDA --------------------------------------------------------------------------------------------------------------


def on_cpu(decision):
    if decision is None:
        return None
    fields = vars(decision).items()
    return Decision(**{key: value.cpu() if isinstance(value, torch.Tensor) else on_cpu(value) for key, value in fields})


@pytest.mark.cuda
@needs_cuda
@each_variant
def test_cuda_applies_a_decision_as_the_cpu_does(name, arguments):
    augment, batch = build(name, **arguments), typical_batch()
    on_device = typical_batch().to("cuda")
    decision = augment.decide(on_device, seeded(0, "cuda"))
    view = apply(on_device, decision)
    assert view.x.is_cuda
    assert view.edge_index.is_cuda
    assert view.ptr.is_cuda
    assert_same_batch(view, apply(batch, on_cpu(decision)))
    assert_same_batch(augment(on_device, seeded(0, "cuda")), view)
    assert_true_batch(view)


# -- the checkers notice broken augmentations --------------------------------------------------------------------------


class Healthy(Augmentation):
    """Correct augmentation, from which the broken ones derive."""

    def decide(self, batch, generator=None, graphs=None):
        return build("compose").decide(batch, generator, graphs)


def bend(view_of):
    """Return an augmentation with `augment` replaced by `view_of`; its `decide` stays correct."""

    class Bent(Healthy):
        def augment(self, batch, generator, graphs):
            return view_of(batch, generator, graphs)

    return Bent()


def sound(batch, generator, graphs=None):
    return Healthy().augment(batch, generator, graphs)


def stale_ptr(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.ptr = batch.ptr
    return view


def stale_slices(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view._slice_dict = {**view._slice_dict, "x": batch._slice_dict["x"].clamp(max=view.num_nodes)}
    return view


def edge_to_the_next_graph(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.edge_index = view.edge_index.clone()
    view.edge_index[1, -1] = 0
    return view


def graphs_reversed(batch, generator, graphs):
    return Batch.from_data_list(sound(batch, generator, graphs).to_data_list()[::-1])


def last_graph_forgotten(batch, generator, graphs):
    return Batch.from_data_list(sound(batch, generator, graphs).to_data_list()[:-1])


def positions_left_behind(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.pos = batch.pos[: view.num_nodes]
    return view


def weights_left_behind(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.edge_weight = view.edge_weight.flip(0)
    return view


def labels_changed(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.y = view.y + 1
    return view


def double_precision(batch, generator, graphs):
    view = sound(batch, generator, graphs)
    view.x = view.x.double()
    return view


def writes_into_the_input(batch, generator, graphs):
    batch.x.mul_(1)
    return sound(batch, generator, graphs)


def adds_to_the_input(batch, generator, graphs):
    batch.augmented = True
    return sound(batch, generator, graphs)


def another_draw_when_called(batch, generator, graphs):
    torch.rand(1, generator=generator)
    return sound(batch, generator, graphs)


def own_generator(batch, generator, graphs):
    return sound(batch, None, graphs)


def ignores_the_mask(batch, generator, graphs):
    return sound(batch, generator)


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_the_checkers_pass_a_healthy_augmentation(check):
    check(Healthy(), typical_batch())
    check(bend(sound), typical_batch())


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (check_true_batch, stale_ptr),
        (check_true_batch, stale_slices),
        (check_true_batch, edge_to_the_next_graph),
        (check_true_batch, last_graph_forgotten),
        (check_attributes_are_carried, graphs_reversed),
        (check_attributes_are_carried, positions_left_behind),
        (check_attributes_are_carried, weights_left_behind),
        (check_attributes_are_carried, labels_changed),
        (check_attributes_are_carried, double_precision),
        (check_input_stays, writes_into_the_input),
        (check_input_stays, adds_to_the_input),
        (check_replay, another_draw_when_called),
        (check_randomness, own_generator),
        (check_untouched_graphs, ignores_the_mask),
    ],
)
def test_the_checkers_fail_a_broken_augmentation(check, broken):
    with pytest.raises(AssertionError):
        check(bend(broken), typical_batch())


def test_a_missing_section_is_noticed():
    def undocumented(ratio=0.2):
        """Says nothing of its argument.

        Example:
            >>> 1
            1
        """

    for target in (undocumented, len, sound):
        with pytest.raises(AssertionError):
            check_documented(target)
    for target in (NodeDrop, Subgraph, EdgePerturb, AttributeMask):
        check_documented(target)


def test_an_augmentation_without_a_test_file_is_noticed(tmp_path):
    (tmp_path / "test_known.py").touch()
    check_tested(["known"], tmp_path)
    with pytest.raises(AssertionError, match="forgotten"):
        check_tested(["known", "forgotten"], tmp_path)


@QUICK
@given(st.data())
def test_drawn_batches_reach_the_peculiar_cases(data):
    """Every drawn batch must be a valid PyG batch."""
    assert_true_batch(data.draw(batches()))
