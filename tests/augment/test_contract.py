"""Test every registered augmentation by one contract; `ENTRIES` describes each of them.

A checker `check_...(augment, batch)` raises AssertionError if an augmentation breaks the contract. The checkers are
also run on augmentations that are broken on purpose, which must fail.
"""

import copy
import inspect
import math
import pickle
import re
from dataclasses import dataclass
from itertools import combinations

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

import graphcl.augment
from graphcl.augment import (
    AttributeMask,
    Augmentation,
    Compose,
    Decision,
    EdgeDrop,
    EdgePerturb,
    FeatureMask,
    Identity,
    NodeDrop,
    OneOf,
    Subgraph,
    apply_decision,
    random3,
    two_views,
)
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
    induced,
    kept_nodes,
    lollipop,
    loops,
    make_batch,
    make_graph,
    needs_cuda,
    path,
    ratio_count,
    ratios,
    seeded,
    snapshot,
    star,
    typical_batch,
)

# -- rules: what an augmentation may do to one graph -------------------------------------------------------------------


def assert_same_except(after, before, changed):
    for key in before.keys():  # noqa: SIM118
        if key not in changed:
            assert_same_value(after[key], before[key], key)


def same(augment, before, after, mean):
    assert_same_graph(after, before)


def drops_nodes(augment, before, after, mean):
    kept = kept_nodes(after)
    assert len(kept) == before.num_nodes - ratio_count(augment.ratio, before.num_nodes)
    assert_same_graph(after, induced(before, kept))


def keeps_region(augment, before, after, mean):
    """Growth cuts at most one component, to a connected part; `one_hop` keeps neighbours of one node only."""
    kept, removed = kept_nodes(after), ratio_count(augment.ratio, before.num_nodes)
    if augment.growth == "boundary" or removed == 0:
        drops_nodes(augment, before, after, mean)
        whole = nx.Graph(before.edge_index.t().tolist())
        whole.add_nodes_from(range(before.num_nodes))
        cut = [part & set(kept) for part in nx.connected_components(whole) if 0 < len(part & set(kept)) < len(part)]
        assert len(cut) <= 1
        assert all(nx.is_connected(whole.subgraph(part)) for part in cut)
        return
    assert_same_graph(after, induced(before, kept))
    around = [{node} for node in range(before.num_nodes)]
    for u, v in before.edge_index.t().tolist():
        around[u].add(v)
    sizes = {u: min(before.num_nodes - removed, len(near)) for u, near in enumerate(around)}
    assert any(u in kept and set(kept) <= around[u] and len(kept) == sizes[u] for u in sizes)


def drops_edges(augment, before, after, mean):
    assert_same_except(after, before, EDGE_LEVEL)
    kept = torch.isin(before.edge_id, after.edge_id)
    assert_same_value(after.edge_index, before.edge_index[:, kept])


def perturbs_edges(augment, before, after, mean):
    """The right number of node pairs goes and, with `add`, moves to pairs that were not connected."""
    assert_same_except(after, before, EDGE_LEVEL)
    old, new = (
        dict(zip((graph.edge_id % 100).tolist(), map(tuple, graph.edge_index.t().tolist()), strict=True))
        for graph in (before, after)
    )
    pairs, stayed, moved = {}, 0, []
    for i, (u, v) in old.items():
        pairs.setdefault(frozenset((u, v)), []).append(i)
    loops_ = [pairs.pop(pair) for pair in [*pairs] if len(pair) == 1]
    assert all(new[i] == old[i] for entries in loops_ for i in entries), "a self-loop was touched"
    for entries in pairs.values():
        ends = [new.get(i) for i in entries]
        stayed += ends == [old[i] for i in entries]
        if None in ends:
            assert set(ends) == {None}, "a pair is partly gone"
        elif ends != [old[i] for i in entries]:
            renamed = {(a, b) for i, end in zip(entries, ends, strict=True) for a, b in zip(old[i], end, strict=True)}
            assert len(renamed) == len(dict(renamed)) == 2, "directions got mixed up"
            moved.append(frozenset(ends[0]))
    absent = {frozenset(pair) for pair in combinations(range(before.num_nodes), 2)} - set(pairs)
    removed = ratio_count(augment.ratio, len(pairs))
    assert stayed == len(pairs) - removed
    assert len(moved) == len(set(moved)) == (min(removed, len(absent)) if augment.add else 0)
    assert set(moved) <= absent


def masks_rows(augment, before, after, mean):
    assert_same_except(after, before, ("x",))
    replaced = (after.x != before.x).any(dim=1)
    assert int(replaced.sum()) == ratio_count(augment.ratio, before.num_nodes)
    if augment.fill != "gaussian":
        expected = mean if augment.fill == "mean" else torch.zeros_like(mean)
        torch.testing.assert_close(after.x[replaced], expected.expand_as(after.x[replaced]))


def masks_columns(augment, before, after, mean):
    assert_same_except(after, before, ("x",))
    assert_same_value(after.x, before.x * (after.x != 0).all(dim=0))


def one_member(augment, before, after, mean):
    """Exactly one member changed the graph."""
    failed = []
    for member in augment.members:
        try:
            return entry_of(member).rule(member, before, after, mean)
        except AssertionError as error:
            failed.append(error)
    raise AssertionError(f"no member of {augment} does this: {failed}")


def all_members(augment, before, after, mean):
    """Each member counts what the members before it have left."""
    left = before.num_nodes
    for member in augment.members:
        left -= ratio_count(member.ratio, left) if isinstance(member, NodeDrop | Subgraph) else 0
    assert after.num_nodes == left


@dataclass
class Entry:
    """Description of an augmentation.

    Args:
        kind: class of the augmentation.
        rule: function (augmentation, graph, its view, mean of `x`) that asserts what happened to the graph.
        settings: arguments to test; a drawn `ratio` replaces the one given here.
        wrong: arguments that are refused, and the message.
        members: classes of the members of a pool or composition.
    """

    kind: type
    rule: object
    settings: tuple = ({},)
    wrong: tuple = ()
    members: tuple = ()


def choice(argument, *values):
    return ({argument: "nonsense"}, rf"`{argument}` must be .*{values[-1]}.*, got 'nonsense'")


MEMBERS = [NodeDrop(0.4), EdgePerturb(0.4), AttributeMask(0.4)]
GROUP = (
    {"members": MEMBERS},
    {"members": [Compose([NodeDrop(0.5), EdgePerturb(0.5)]), OneOf(["subgraph", "identity"])]},
)
NO_MEMBERS = tuple(
    ({"members": wrong}, r"`members` must be|unknown augmentation 'drop'; did you mean|needs `members`; pass an object")
    for wrong in ([], [None], [NodeDrop], [random3], ["drop"], ["one_of"], [lambda data: data], None, "nonsense")
)
BAD_WEIGHTS = tuple(
    ({"members": MEMBERS[:2], "weights": weights}, message)
    for weights, message in [
        *(([*each], r"^`weights` must be 2 numbers, one per member and not all 0, got \[") for each in ([1], [0, 0])),
        *(([0.5, each], rf"^`weights\.1` must be in \[0, inf\), got {each}") for each in (-0.1, math.nan, math.inf)),
        ("nonsense", "`weights` must be .*, got 'nonsense'"),
    ]
)
ENTRIES = {
    "identity": Entry(Identity, same),
    "node_drop": Entry(NodeDrop, drops_nodes),
    "subgraph": Entry(Subgraph, keeps_region, ({}, {"growth": "one_hop"}), (choice("growth", "one_hop"),)),
    "edge_drop": Entry(EdgeDrop, drops_edges),
    "edge_perturb": Entry(
        EdgePerturb, perturbs_edges, ({}, {"add": False}), (choice("add", "true"), ({"add": None}, "`add` must be"))
    ),
    "attribute_mask": Entry(
        AttributeMask, masks_rows, ({}, {"fill": "zero"}, {"fill": "mean"}), (choice("fill", "mean"),)
    ),
    "feature_mask": Entry(FeatureMask, masks_columns),
    "compose": Entry(Compose, all_members, GROUP[:1], NO_MEMBERS, (NodeDrop, EdgePerturb, AttributeMask)),
    "one_of": Entry(
        OneOf, one_member, (*GROUP, GROUP[0] | {"weights": [1, 0, 2]}), NO_MEMBERS + BAD_WEIGHTS,
        (NodeDrop, EdgePerturb, AttributeMask),
    ),
    "random2": Entry(OneOf, one_member, members=(NodeDrop, Subgraph)),
    "random3": Entry(OneOf, one_member, members=(NodeDrop, Subgraph, EdgePerturb)),
    "random4": Entry(OneOf, one_member, members=(NodeDrop, Subgraph, EdgePerturb, AttributeMask)),
    "drop_and_mask": Entry(
        Compose, all_members, ({}, {"edges": 0.5, "features": 0.5}),
        tuple(({each: 1.0}, rf"`{each}` must be in \[0, 1\), got 1") for each in ("edges", "features")),
        members=(EdgeDrop, FeatureMask),
    ),
}  # fmt: skip
NAMES = list(augmentations)
RATIO = [name for name in NAMES if "ratio" in augmentations.arguments(name).defaults]
BAD_RATIOS = [
    *(({"ratio": each}, rf"`ratio` must be in \[0, 1\), got {each}") for each in (1.0, 1.5, -0.1, math.nan, math.inf)),
    *(({"ratio": each}, f"`ratio` must be a number, got {re.escape(repr(each))}") for each in ("a", True, None, [0.2])),
]
VARIANTS = [
    pytest.param(name, setting, id=f"{name}-{number}")
    for name in NAMES
    for number, setting in enumerate(ENTRIES[name].settings)
]
REMOVES_NODES = ["node_drop", "subgraph", "random2", "random3", "random4", "one_of", "compose"]
NEEDS_FEATURES = ["attribute_mask", "random4", "feature_mask", "drop_and_mask", "compose", "one_of"]

each_name = pytest.mark.parametrize("name", NAMES)
each_variant = pytest.mark.parametrize(("name", "setting"), VARIANTS)


def build(name, setting=None, ratio=None):
    """Return the augmentation with its first setting, or the given one, and `ratio` if it has one."""
    chosen = ENTRIES[name].settings[0] if setting is None else setting
    return augmentations[name](**chosen, **({"ratio": ratio} if ratio is not None and name in RATIO else {}))


def entry_of(augment):
    return next(entry for entry in ENTRIES.values() if entry.kind is type(augment))


# -- the checkers ------------------------------------------------------------------------------------------------------


def check_true_batch(augment, batch):
    """Check that a view is a valid PyG batch with the same number of graphs, and that no graph is empty."""
    view = augment(batch, seeded(0))
    assert isinstance(view, Batch)
    assert view.num_graphs == batch.num_graphs == len(view.to_data_list())
    sizes = view.ptr.diff()
    assert (sizes >= 1).all(), f"sizes {sizes.tolist()}"
    assert torch.equal(view.batch, torch.arange(view.num_graphs).repeat_interleave(sizes))
    assert_true_batch(view)


def check_attributes(augment, batch):
    """Check that node and edge rows follow their node or edge, and graph-level attributes stay; only `x` may change."""
    view = augment(batch, seeded(0))
    assert set(view.keys()) == set(batch.keys())
    for after, before in zip(view.to_data_list(), batch.to_data_list(), strict=True):
        assert type(after) is type(before)
        kept = {**dict.fromkeys(NODE_LEVEL, after.node_id % 100), **dict.fromkeys(EDGE_LEVEL, after.edge_id % 100)}
        assert kept["x"].unique().numel() == after.num_nodes
        assert kept["edge_id"].unique().numel() == after.num_edges
        for key in before.keys():  # noqa: SIM118
            if key in ("x", "edge_index"):
                assert after[key].dtype == before[key].dtype
            elif key in kept:
                assert_same_value(after[key], before[key][kept[key]], key)
            elif key != "num_nodes":
                assert_same_value(after[key], before[key], key)
        assert after.x.shape == (after.num_nodes, before.x.size(1))


def check_input_stays(augment, batch):
    before, state = snapshot(batch), list(batch._store)
    versions = {key: value._version for key, value in batch._store.items() if isinstance(value, torch.Tensor)}
    augment(batch, seeded(0))
    assert list(batch._store) == state
    assert_same_value(snapshot(batch), before, "input")
    for key, version in versions.items():
        assert batch[key]._version == version, f"`{key}` was written to"


def check_replay(augment, batch):
    """Check that applying a decision, also twice, equals a call, and that both advance the generator alike."""
    calling, deciding = seeded(1), seeded(1)
    view, before = augment(batch, calling), snapshot(batch)
    decision = augment.decide(batch, deciding)
    assert isinstance(decision, Decision)
    assert torch.equal(calling.get_state(), deciding.get_state())
    for _ in range(2):
        assert_same_batch(apply_decision(batch, decision), view)
    assert_same_value(snapshot(batch), before, "input")


def check_randomness(augment, batch):
    """Check that only the given generator determines the view, or only torch's global generator if none is given."""
    state = torch.get_rng_state()
    first = augment(batch, seeded(2))
    assert torch.equal(torch.get_rng_state(), state), "draws from the global generator"
    with torch.random.fork_rng(devices=[]):
        torch.rand(3)
        assert_same_batch(augment(batch, seeded(2)), first)
        torch.manual_seed(2)
        globally = augment(batch)
        torch.manual_seed(2)
        assert_same_batch(augment(batch), globally)


def check_other_graphs(augment, batch):
    """Check that unselected graphs are bitwise unchanged, and that selected graphs follow the decision."""
    for graphs in (torch.arange(batch.num_graphs) % 2 == 0, torch.zeros(batch.num_graphs, dtype=torch.bool)):
        held = graphs.clone()
        view = augment(batch, seeded(3), graphs=graphs)
        assert_true_batch(view)
        for touched, after, before in zip(graphs, view.to_data_list(), batch.to_data_list(), strict=True):
            if not touched:
                assert_same_graph(after, before)
        assert torch.equal(graphs, held)
        assert_same_batch(apply_decision(batch, augment.decide(batch, seeded(3), graphs)), view)
    everything = torch.ones(batch.num_graphs, dtype=torch.bool)
    assert_same_batch(augment(batch, seeded(3), everything), augment(batch, seeded(3)))


def check_rule(augment, batch):
    """Check the rule of the entry for each graph, and for the chosen graphs alone."""
    mean, graphs = batch.x.mean(dim=0, keepdim=True), torch.arange(batch.num_graphs) % 2 == 0
    for chosen in (None, graphs):
        view = augment(batch, seeded(4), chosen)
        for g, pair in enumerate(zip(batch.to_data_list(), view.to_data_list(), strict=True)):
            if chosen is None or chosen[g]:
                entry_of(augment).rule(augment, *pair, mean)


CHECKERS = [
    check_true_batch, check_attributes, check_input_stays, check_replay, check_randomness, check_other_graphs,
    check_rule,
]  # fmt: skip


# -- over the registry -------------------------------------------------------------------------------------------------


def test_every_augmentation_has_an_entry_and_no_name_hides_a_module():
    assert set(ENTRIES) == set(NAMES)
    for name, entry in ENTRIES.items():
        refused = {argument for arguments, _ in entry.wrong for argument in arguments} | {"ratio", "members"}
        assert set(augmentations.arguments(name).defaults) <= refused, f"{name}: an argument without an invalid value"
    hidden = [name for name in graphcl.augment.__all__ if inspect.ismodule(getattr(graphcl.augment, name))]
    assert not hidden


PECULIAR = ("x", "edge_attr", "y", "ragged", "name")
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
def test_known_batches(name, setting):
    """All settings see the typical batch, the first one also the peculiar batches."""
    for batch in [*BATCHES][: None if setting is ENTRIES[name].settings[0] else 1]:
        for check in CHECKERS:
            try:
                check(build(name, setting), BATCHES[batch])
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} on {batch}: {error}") from None


@each_variant
@settings(QUICK, max_examples=10)
@given(batch=batches(needs=("x",)), ratio=ratios, every=st.integers(0, 4))
def test_any_batch(name, setting, batch, ratio, every):
    """Every drawn batch obeys the rule; one in five passes all checkers."""
    for check in CHECKERS if every == 0 else [check_rule]:
        check(build(name, setting, ratio), batch)


@each_name
def test_the_ends_of_the_ratio_and_successive_calls(name):
    batch, generator = make_batch(*TYPICAL, *[(8, path(8))] * 20), seeded(0)
    if name in RATIO:
        assert_same_batch(build(name, ratio=0)(batch, seeded(0)), batch)
        view = build(name, ratio=math.nextafter(1, 0))(batch, seeded(0))
        assert (view.ptr.diff() >= 1).all()
    augment = build(name, ratio=0.5)
    views = [augment(batch, generator) for _ in range(3)]
    same = [all(torch.equal(each[key], views[0][key]) for key in ("x", "edge_id", "edge_index")) for each in views[1:]]
    assert all(same) == (name == "identity")
    graphs = views[0].to_data_list()[len(TYPICAL) :]
    seen = {str((graph.node_id % 100, graph.edge_index, graph.x[:, 0] - graph.node_id)) for graph in graphs}
    assert len(seen) == 1 if name == "identity" else len(seen) >= 4, "equal graphs get equal draws"


@each_variant
@pytest.mark.parametrize("shapes", [TYPICAL, [(40, path(40)), (9, lollipop()), (30, star(20)), (12, [])] * 5])
def test_the_same_seed_gives_the_same_view_without_a_compiler(name, setting, shapes):
    batch, views, states = make_batch(*shapes), [], []
    for compiled in (True, False):
        with loops(compiled):
            generator = seeded(0)
            views.append(build(name, setting)(batch, generator))
            states.append(generator.get_state())
    assert_same_batch(*views)
    assert torch.equal(*states)


@each_name
def test_form(name):
    """Documentation, members, repr, copies, pickling, autograd."""
    target, augment, entry = augmentations[name], build(name), ENTRIES[name]
    text, arguments = inspect.getdoc(target), [each for each in inspect.signature(target).parameters if each != "self"]
    assert re.match(r"[A-Z].*\.(\n|$)", text.split("\n\n")[0].replace("\n", " ")), "no summary sentence"
    sections = ["Example", *["Args"] * bool(arguments), *["References"] * ("ratio" in arguments)]
    assert all(re.search(rf"^{each}:$", text, re.MULTILINE) for each in sections)
    assert all(re.search(rf"^ +{each}: ", text, re.MULTILINE) for each in arguments)
    assert type(augment) is entry.kind
    assert tuple(map(type, getattr(augment, "members", ()))) == entry.members
    if name in RATIO and entry.members:
        assert {member.ratio for member in build(name, ratio=0.35).members} == {0.35}
    assert repr(augment).startswith(f"{entry.kind.__name__}(")
    assert all(f"{argument}={value!r}" in repr(augment) for argument, value in vars(augment).items())
    for again in (copy.deepcopy(augment), pickle.loads(pickle.dumps(augment))):
        assert repr(again) == repr(augment)
        assert_same_batch(again(typical_batch(), seeded(5)), augment(typical_batch(), seeded(5)))
    batch = typical_batch(keys=("x", "edge_attr"))
    for key in ("x", "edge_attr"):
        batch[key].requires_grad_()
    view = augment(batch, seeded(0))
    (view.x.sum() + view.edge_attr.sum()).backward()
    assert batch.x.grad is not None
    assert batch.edge_attr.grad is not None


def test_two_views_are_drawn_in_order_from_one_generator_and_the_original():
    batch, generator = typical_batch(), seeded(0)
    expected = NodeDrop(0.2)(batch, generator), Subgraph(0.5)(batch, generator)
    for view, wanted in zip(two_views(batch, "node_drop", Subgraph(0.5), seeded(0)), expected, strict=True):
        assert_same_batch(view, wanted)


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [(name, *case) for name in NAMES for case in [*(BAD_RATIOS if name in RATIO else []), *ENTRIES[name].wrong]],
    ids=lambda value: value if isinstance(value, str) and value in NAMES else "",
)
def test_bad_arguments_get_one_line(name, arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        augmentations[name](**arguments)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputTypeError) or "must be a number" not in message
    if isinstance(arguments.get("ratio"), float):
        assert augmentations.problems(name, arguments) == [str(caught.value)]


HETERO = HeteroData()
HETERO["atom"].x = torch.ones(2, 1)
NO_ADJACENCY = Data(x=torch.ones(3, 2))
TWO = make_batch((4, []), (5, []))
BAD_INPUT = [
    *(((wrong,), rf"`Data` or `Batch`, got {type(wrong).__name__}") for wrong in (None, "graph", torch.ones(3), [])),
    ((HETERO,), r"homogeneous.* got HeteroData; heterogeneous graphs are not supported, use its to_homogeneous\(\)\.$"),
    ((Batch.from_data_list([HETERO]),), "got HeteroDataBatch; heterogeneous graphs are not supported"),
    ((TemporalData(src=torch.arange(2), dst=torch.arange(2)),), "got TemporalData; temporal graphs are not supp"),
    ((TWO, None, torch.tensor([9, 1])), "`graphs` must be a boolean tensor, .*, got a tensor of torch.int64"),
    ((TWO, None, [True, False]), "`graphs` must be a boolean tensor, true for graphs to augment, got list"),
    ((TWO, None, torch.ones(3).bool()), r"`graphs` must have shape \[2\], one per graph, got \[3\]"),
]


@each_name
def test_bad_graphs_get_one_line(name):
    for arguments, message in BAD_INPUT:
        with pytest.raises(InputError, match=message):
            build(name)(*arguments)
    for data in (NO_ADJACENCY, Batch.from_data_list([NO_ADJACENCY] * 2)):
        if name != "identity":
            with pytest.raises(InputError, match="edge_index"):
                build(name)(data)
    bare = make_batch((3, path(3)), (2, []), keys=("pos",))
    if name in NEEDS_FEATURES:
        with pytest.raises(InputError, match=r"needs (floating-point )?node features `x`"):
            build(name)(bare)
    else:
        assert_true_batch(build(name)(bare, seeded(0)))


class Paired(Data):
    """Data class with a node index attribute, `partner`, that only its own `__inc__` knows."""

    def __inc__(self, key, value, *args, **kwargs):
        return self.num_nodes if key == "partner" else super().__inc__(key, value, *args, **kwargs)


def test_node_indices_are_refused_where_nodes_go_and_kept_where_they_stay():
    face, plain = torch.tensor([[0, 1], [1, 2], [2, 4]]), make_graph(5, path(5)).to_dict()
    by_name, by_class = Data(**plain, face=face), Paired(**plain, partner=torch.tensor([3, 4, 0, 1, 2]))
    hand_made = Batch(x=torch.ones(4, 1), edge_index=face[:2, :1], batch=torch.tensor([0, 0, 1, 1]), face=face[:, :1])
    for graph in (by_name, by_class):
        batch = Batch.from_data_list([graph] * 3)
        for name in NAMES:
            for data in (graph, batch, Batch.from_data_list([graph]), hand_made) if name in REMOVES_NODES else ():
                with pytest.raises(InputError, match=r"`(face|partner)`.*indices"):
                    build(name)(data, seeded(0))
            if name not in REMOVES_NODES:
                view = build(name)(batch, seeded(0))
                key = "face" if graph is by_name else "partner"
                assert_same_value(view[key], batch[key])
                assert_true_batch(view)


# -- batches not made by from_data_list --------------------------------------------------------------------------------


@each_name
@pytest.mark.parametrize("edges", [8, 3], ids=["more-edges-than-graphs", "as-many-edges-as-graphs"])
def test_hand_made_batches(name, edges):
    """`to_data_list()` of the view either works or raises PyG's error for such batches."""
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])[:, :edges]
    batch = Batch(x=torch.arange(14.0).view(7, 2), edge_index=edge_index, batch=torch.tensor([0, 0, 0, 1, 1, 1, 2]))
    batch.node_id, batch.edge_id, batch.y = torch.arange(7), torch.arange(edges), torch.tensor([7, 8, 9])
    if edges == 8:
        batch.edge_attr = torch.arange(8.0)
    view = build(name)(batch, seeded(0))
    assert view.num_graphs == 3
    sizes = view.batch.bincount(minlength=3)
    assert (sizes >= 1).all()
    assert torch.equal(view.batch, torch.arange(3).repeat_interleave(sizes))
    assert torch.equal(view.batch, batch.batch[view.node_id])
    assert torch.equal(view.get("edge_attr", view.edge_id.float()), view.edge_id.float())
    assert torch.equal(view.y, batch.y)
    assert torch.equal(view.batch[view.edge_index[0]], view.batch[view.edge_index[1]])
    assert "ptr" not in batch
    assert set(view.keys()) - {"ptr"} == set(batch.keys())
    if hasattr(view, "_slice_dict"):
        assert_true_batch(view)
    else:
        with pytest.raises(RuntimeError, match="from_data_list"):
            view.to_data_list()


@each_name
@pytest.mark.parametrize(
    "shapes", [TYPICAL, [(2, [(0, 1)]), (1, [(0, 0), (0, 0)])], [(4, path(4)[:4]), (5, []), (3, [])]],
    ids=["typical", "as-many-nodes-as-pointers", "as-many-edges-as-pointers"],
)  # fmt: skip
def test_followed_attributes(name, shapes):
    """`follow_batch` adds `x_batch` and `x_ptr`, which belong to the batch, not to its graphs."""
    augment, plain = build(name, ratio=0.5), make_batch(*shapes, keys=("x", "y", "edge_attr"))
    batch = Batch.from_data_list(plain.to_data_list(), follow_batch=["x", "edge_attr", "edge_index"])
    view = augment(batch, seeded(0))
    edge_batch = view.batch[view.edge_index[0]]
    edge_ptr = torch.tensor([int((edge_batch < g).sum()) for g in range(batch.num_graphs + 1)])
    for key in ("x", "edge_attr", "edge_index"):
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
def test_cuda_applies_a_decision_as_the_cpu_does(name, setting):
    augment, batch = build(name, setting), typical_batch()
    on_device = typical_batch().to("cuda")
    decision = augment.decide(on_device, seeded(0, "cuda"))
    view = apply_decision(on_device, decision)
    assert all(view[key].is_cuda for key in ("x", "edge_index", "ptr"))
    assert_same_batch(view, apply_decision(batch, on_cpu(decision)))
    assert_same_batch(augment(on_device, seeded(0, "cuda")), view)
    assert_true_batch(view)


# -- the checkers notice broken augmentations --------------------------------------------------------------------------


class Changed(Augmentation):
    """Compose `MEMBERS`; `change(view, batch, generator, graphs)` breaks the view."""

    def __init__(self, change):
        self.change = change

    def decide(self, batch, generator=None, graphs=None):
        return Compose(MEMBERS).decide(batch, generator, graphs)

    def augment(self, batch, generator, graphs):
        return self.change(Compose(MEMBERS).augment(batch, generator, graphs), batch, generator, graphs)


def put(key, value):
    """Return a change that sets the attribute `key` of a view to `value(view, batch)`."""

    def change(view, batch, generator, graphs):
        setattr(view, key, value(view, batch))
        return view

    return change


def last_edge_to_node_0(view, batch):
    index = view.edge_index.clone()
    index[1, -1] = 0
    return index


BROKEN = {
    "stale ptr": (check_true_batch, put("ptr", lambda view, batch: batch.ptr)),
    "stale slices": (check_true_batch, put("_slice_dict", lambda view, batch: {
        **view._slice_dict, "x": batch._slice_dict["x"].clamp(max=view.num_nodes)})),
    "edge to another graph": (check_true_batch, put("edge_index", last_edge_to_node_0)),
    "graph forgotten": (check_true_batch, lambda view, *_: Batch.from_data_list(view.to_data_list()[:-1])),
    "graphs reversed": (check_attributes, lambda view, *_: Batch.from_data_list(view.to_data_list()[::-1])),
    "positions left behind": (check_attributes, put("pos", lambda view, batch: batch.pos[: view.num_nodes])),
    "weights left behind": (check_attributes, put("edge_weight", lambda view, batch: view.edge_weight.flip(0))),
    "labels changed": (check_attributes, put("y", lambda view, batch: view.y + 1)),
    "double precision": (check_attributes, put("x", lambda view, batch: view.x.double())),
    "writes into the input": (check_input_stays, put("new", lambda view, batch: batch.x.mul_(1))),
    "adds to the input": (check_input_stays, put("new", lambda view, batch: setattr(batch, "augmented", True))),
    "draws once more": (check_replay, lambda view, batch, generator, _: [torch.rand(1, generator=generator), view][1]),
    "own generator": (check_randomness, lambda view, batch, *_: Compose(MEMBERS)(batch)),
    "ignores the mask": (check_other_graphs, lambda view, batch, *_: Compose(MEMBERS)(batch, seeded(3))),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_the_checkers_fail_a_broken_augmentation_and_pass_a_healthy_one(case):
    check, change = BROKEN[case]
    check(Changed(lambda view, *_: view), typical_batch())
    with pytest.raises(AssertionError):
        check(Changed(change), typical_batch())


RULES = [
    (NodeDrop(0.4), EdgeDrop(0.5)), (Subgraph(0.4), NodeDrop(0.4)), (Subgraph(0.4, "one_hop"), NodeDrop(0.4)),
    (EdgePerturb(0.5), EdgeDrop(0.5)), (EdgePerturb(0.5, add=False), EdgePerturb(0.5)),
    (AttributeMask(0.5, "zero"), AttributeMask(0.5)), (FeatureMask(0.5), AttributeMask(0.5)),
    (EdgeDrop(0.5), NodeDrop(0.5)), (OneOf([NodeDrop(0.5), EdgeDrop(0.5)]), AttributeMask(0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("augment", "other"), RULES, ids=str)
def test_the_rules_fail_another_augmentation(augment, other):
    """The view of `other` breaks the rule of `augment`."""

    class Other(type(augment)):
        def decide(self, batch, generator=None, graphs=None):
            return other.decide(batch, generator, graphs)

    wrong = Other.__new__(Other)
    vars(wrong).update(vars(augment))
    batch, mean = make_batch(*[(8, path(8))] * 9), torch.zeros(1, 2)
    pairs = zip(batch.to_data_list(), wrong(batch, seeded(0)).to_data_list(), strict=True)
    with pytest.raises(AssertionError):
        all(entry_of(augment).rule(augment, *pair, mean) is None for pair in pairs)
