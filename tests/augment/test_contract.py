"""Test every registered augmentation by one contract; `ENTRIES` describes each of them.

A checker `check_...(augment, batch)` raises AssertionError if an augmentation breaks the contract. The checkers are
also run on augmentations that are broken on purpose, which must fail.
"""

import copy
import inspect
import math
import pickle
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

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
from graphcl.augment.transform import alike
from graphcl.errors import InputError, InputTypeError
from graphcl.methods.joao import LearnedPool
from graphcl.registry import augmentations
from tests.conftest import assert_entries
from tests.strategies import (
    EDGE_LEVEL,
    QUICK,
    TYPICAL,
    assert_same_batch,
    assert_same_graph,
    assert_same_value,
    assert_true_batch,
    batches,
    induced,
    kept_nodes,
    lollipop,
    loops,
    make_batch,
    make_graph,
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
    """Growth cuts at most one component, to a connected part; `one_hop` may keep fewer nodes."""
    kept, wanted = kept_nodes(after), before.num_nodes - ratio_count(augment.ratio, before.num_nodes)
    assert_same_graph(after, induced(before, kept))
    whole = nx.Graph(before.edge_index.t().tolist())
    whole.add_nodes_from(range(before.num_nodes))
    cut = [part & set(kept) for part in nx.connected_components(whole) if 0 < len(part & set(kept)) < len(part)]
    assert len(cut) <= 1
    assert all(nx.is_connected(whole.subgraph(part)) for part in cut)
    assert len(kept) == wanted or (augment.growth == "one_hop" and 0 < len(kept) < wanted)


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
    """One member changed the graph."""
    for member in augment.members:
        with suppress(AssertionError):
            return entry_of(member).rule(member, before, after, mean)
    raise AssertionError(f"no member of {augment} does this")


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
NAMES = [name for name in augmentations if name in ENTRIES]
RATIO = [name for name in NAMES if "ratio" in augmentations.arguments(name).defaults]
BAD_RATIOS = [
    *(({"ratio": each}, rf"`ratio` must be in \[0, 1\), got {each}") for each in (1.0, 1.5, -0.1, math.nan, math.inf)),
    *(({"ratio": each}, f"`ratio` must be a number, got {re.escape(repr(each))}") for each in ("a", True, None, [0.2])),
]
VARIANTS = [(name, setting) for name in NAMES for setting in ENTRIES[name].settings]
REMOVES_NODES = ["node_drop", "subgraph", "random2", "random3", "random4", "one_of", "compose"]
NEEDS_FEATURES = ["attribute_mask", "random4", "feature_mask", "drop_and_mask", "compose", "one_of"]

each_name = pytest.mark.parametrize("name", NAMES)
each_variant = pytest.mark.parametrize(("name", "setting"), VARIANTS, ids=str)


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
    assert view.num_graphs == batch.num_graphs == len(view.to_data_list())
    assert torch.equal(view.batch.unique(), torch.arange(view.num_graphs))
    assert_true_batch(view)


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


CHECKERS = [check_true_batch, check_input_stays, check_replay, check_randomness, check_other_graphs, check_rule]


# -- over the registry -------------------------------------------------------------------------------------------------


def test_every_augmentation_has_an_entry_and_no_name_hides_a_module():
    assert_entries(augmentations, ENTRIES, "ENTRIES in tests/augment/test_contract.py")
    for name, entry in ENTRIES.items():
        refused = {argument for arguments, _ in entry.wrong for argument in arguments} | {"ratio", "members"}
        assert set(augmentations.arguments(name).defaults) <= refused, f"{name}: an argument without an invalid value"
    assert not [name for name in graphcl.augment.__all__ if inspect.ismodule(getattr(graphcl.augment, name))]


PECULIAR = ("x", "edge_attr", "y", "ragged", "name")
BATCHES = {
    "typical": typical_batch(),
    "one entry per graph, as many edges": make_batch(*[(5, [(0, 1)])] * 3),
    "as many nodes as edges": make_batch((4, [(0, 1), (1, 2), (2, 3), (3, 0)]), (2, [(1, 0), (0, 1)]), keys=PECULIAR),
    "self-loops only": make_batch((1, [(0, 0)]), (3, [(0, 0), (1, 1), (2, 2)]), (4, []), keys=PECULIAR),
    "parallel": make_batch((5, [(0, 1)] * 6), (3, [(2, 1), (2, 1), (1, 2)]), keys=PECULIAR),
    "complete, large, sparse": make_batch((4, [*combinations(range(4), 2)]), (50, path(50)), (1, []), (30, star(29))),
}


@each_variant
def test_known_batches(name, setting):
    """All settings see the typical batch, the first one of a single augmentation also the peculiar batches."""
    alone = setting is ENTRIES[name].settings[0] and not ENTRIES[name].members
    for batch in [*BATCHES][: None if alone else 1]:
        for check in CHECKERS:
            try:
                check(build(name, setting), BATCHES[batch])
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} on {batch}: {error}") from None


@each_variant
@settings(QUICK, max_examples=5)
@given(batch=batches(needs=("x",)), ratio=ratios, every=st.integers(0, 4))
def test_any_batch(name, setting, batch, ratio, every):
    """Every drawn batch obeys the rule; one in five passes all checkers."""
    for check in CHECKERS if every == 0 else [check_rule]:
        check(build(name, setting, ratio), batch)


@pytest.mark.parametrize("name", RATIO)
def test_the_ends_of_the_ratio(name):
    batch = typical_batch()
    assert_same_batch(build(name, ratio=0)(batch, seeded(0)), batch)
    check_true_batch(build(name, ratio=math.nextafter(1, 0)), batch)
    assert NodeDrop(0.29)(make_batch((100, [])), seeded(0)).num_nodes == 71  # the decimal number


@each_variant
def test_the_same_seed_gives_the_same_view_without_a_compiler(name, setting):
    for shapes in (TYPICAL, [(40, path(40)), (9, lollipop()), (30, star(20)), (12, [])] * 5):
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


def test_augmentations_are_alike_if_their_class_and_arguments_are():
    found = [build(name, setting) for name, entry in ENTRIES.items() for setting in entry.settings]
    again = [build(name, setting) for name, entry in ENTRIES.items() for setting in entry.settings]
    for i, one in enumerate(found):
        assert [alike(one, other) for other in again] == [repr(one) == repr(other) for other in again], i
    pool = LearnedPool(random3())
    assert alike(pool, pool)
    assert not alike(pool, LearnedPool(random3()))  # each learns its own probabilities


# -- messages ----------------------------------------------------------------------------------------------------------


@each_name
def test_bad_arguments_get_one_line(name):
    for arguments, message in [*(BAD_RATIOS if name in RATIO else []), *ENTRIES[name].wrong]:
        with pytest.raises(InputError, match=message) as caught:
            augmentations[name](**arguments)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, InputTypeError) or "must be a number" not in message


def test_bad_graphs_get_one_line():
    for wrong in (None, torch.ones(3), HeteroData()):
        with pytest.raises(InputError, match=rf"`Data` or `Batch`, got {type(wrong).__name__}") as caught:
            NodeDrop()(wrong)
        assert "\n" not in str(caught.value)


@each_name
def test_missing_attributes_get_one_line(name):
    if name != "identity":
        with pytest.raises(InputError, match="edge_index"):
            build(name)(Data(x=torch.ones(3, 2)))
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


@each_name
def test_node_indices_are_refused_where_nodes_go_and_kept_where_they_stay(name):
    face, plain = torch.tensor([[0, 1], [1, 2], [2, 4]]), make_graph(5, path(5)).to_dict()
    paired = Paired(**plain, partner=torch.arange(5).flip(0))
    for key, graph in (("face", Data(**plain, face=face)), ("partner", paired)):
        for data in (graph, Batch.from_data_list([graph] * 3)):
            if name in REMOVES_NODES:
                with pytest.raises(InputError, match=rf"`{key}`.*indices"):
                    build(name)(data, seeded(0))
            else:
                assert_same_value(build(name)(data, seeded(0))[key], data[key])


# -- batches not made by from_data_list --------------------------------------------------------------------------------


@each_name
def test_hand_made_batches(name):
    """`to_data_list()` of the view either works or raises PyG's error for such batches."""
    for edges in (8, 3):  # more edges than graphs, or as many
        edge_index = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])[:, :edges]
        batch = Batch(x=torch.arange(14.0).view(7, 2), edge_index=edge_index, batch=torch.tensor([0, 0, 0, 1, 1, 1, 2]))
        batch.node_id, batch.edge_id, batch.y = torch.arange(7), torch.arange(edges), torch.tensor([7, 8, 9])
        view = build(name)(batch, seeded(0))
        assert view.batch.unique().tolist() == [0, 1, 2]
        assert torch.equal(view.batch, batch.batch[view.node_id])
        assert torch.equal(view.y, batch.y)
        assert torch.equal(view.batch[view.edge_index[0]], view.batch[view.edge_index[1]])
        assert "ptr" not in batch
        assert set(view.keys()) - {"ptr"} == set(batch.keys())
        if hasattr(view, "_slice_dict"):
            assert_true_batch(view)
        else:
            with pytest.raises(RuntimeError, match="from_data_list"):
                view.to_data_list()


# -- as PyG transforms -------------------------------------------------------------------------------------------------


class Molecule(Data):
    """Custom Data class with a property and an attribute outside of PyG's stores."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        self.__dict__["source"] = "a file"

    @property
    def twice(self):
        return 2 * self.num_nodes


@each_name
def test_boundaries_that_do_not_fit_the_batch(name):
    """Those of edges are ignored, as a transform may have changed the edges; a wrong `ptr` is refused."""
    data = [Data(x=torch.ones(n, 3), edge_index=torch.tensor([range(n), [*range(1, n), 0]])) for n in (5, 7, 6)]
    augment = build(name)

    def view(change):
        batch = Batch.from_data_list(data)
        change(batch)
        return augment(batch, seeded(1))

    expected = view(lambda batch: batch._slice_dict.pop("edge_index"))
    large = [0, 5, 12, 10**9], [0, 5, 12, 2**62], [2**62] * 4
    for wrong in (*large, [0, -5, 12, 18], [0, 12, 5, 18], [3, 5, 12, 18], [0, 5, 18], [0], []):
        got = view(lambda batch, wrong=wrong: batch._slice_dict.update(edge_index=torch.tensor(wrong)))
        assert torch.equal(got.edge_index, expected.edge_index)
        assert torch.equal(got.batch, expected.batch)
        if name != "identity" and len(wrong) == 4:
            with pytest.raises(InputError, match=r"^`ptr` of the batch must ascend from 0 to its 18 nodes, got \["):
                view(lambda batch, wrong=wrong: setattr(batch, "ptr", torch.tensor(wrong)))


@each_name
def test_a_graph_gives_a_graph(name):
    """Also of a subclass, with attributes of the whole graph of any type, and with PyG's `EdgeIndex`."""
    more = {"count": 3, "flag": True, "scalar": torch.tensor(2.5), "names": ["a", "b"], "nested": {"a": 1, "b": "text"}}
    graph = Molecule(**make_graph(6, path(6)).to_dict(), **more)
    again, augment = graph.clone(), build(name)
    view = augment(graph, seeded(0))
    assert type(view) is Molecule
    assert (view.source, view.twice) == ("a file", 2 * view.num_nodes)
    assert set(view.keys()) == set(graph.keys())
    assert_same_graph(graph, again)
    for key in [*more, "y", "target", "name", "scale"]:
        assert type(view[key]) is type(graph[key]), key
        assert str(view[key]) == str(graph[key]), key
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(6, 6), sort_order=None)
    other = augment(graph, seeded(0))
    assert torch.equal(torch.as_tensor(other.edge_index), view.edge_index)
    assert other.num_nodes == view.num_nodes


def test_isolated_nodes_are_counted_where_only_edges_tell_their_number():
    for more in ({}, {"y": torch.tensor([1])}, {"atom": torch.arange(8)}):
        graph = Data(edge_index=torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]]), **more)
        for augment, left in ((NodeDrop(0.5), 4), (Subgraph(0.5), 4), (EdgePerturb(0.5, add=False), 8)):
            assert augment(graph, seeded(0)).num_nodes == left, (augment, more)


@each_name
def test_on_batches_of_a_loader_and_in_chains(name):
    augment = build(name)
    graphs = [make_graph(4 + i, path(4 + i), i) for i in range(6)]
    (batch,) = DataLoader(graphs, batch_size=6, follow_batch=["x", "edge_attr"])
    for transform in (augment, T.Compose([augment, T.Constant(cat=True)])):
        view = transform(batch)
        assert isinstance(view, Batch)
        assert [graph.y.item() for graph in view.to_data_list()] == list(range(6))
        assert torch.equal(view.x_batch, view.batch)  # these belong to the batch, not to its graphs
        assert torch.equal(view.x_ptr, view.ptr)
        if "edge_attr_batch" in view:  # an augmentation may remove it
            assert torch.equal(view.edge_attr_batch.sort().values, view.batch[view.edge_index[0]].sort().values)
    chain = T.Compose([T.ToUndirected(), augment, T.LocalDegreeProfile(), T.Constant()])
    view = chain(make_graph(6, [(0, 1), (1, 2), (3, 4)], keys=("x", "y")))
    assert view.x.size(1) == 2 + 5 + 1
    assert view.validate()


# -- the checkers notice broken augmentations --------------------------------------------------------------------------


class Changed(Augmentation):
    """Compose `MEMBERS`; `change(view, batch, generator)` breaks the view."""

    def __init__(self, change):
        self.change = change

    def decide(self, batch, generator=None, graphs=None):
        return Compose(MEMBERS).decide(batch, generator, graphs)

    def augment(self, batch, generator, graphs):
        return self.change(Compose(MEMBERS).augment(batch, generator, graphs), batch, generator)


def put(key, value):
    """Return a change that sets the attribute `key` of a view to `value(view, batch)`."""

    def change(view, batch, generator):
        setattr(view, key, value(view, batch))
        return view

    return change


BROKEN = [
    (check_true_batch, put("ptr", lambda view, batch: batch.ptr)),
    (check_true_batch, put("_slice_dict", lambda view, batch: view._slice_dict | {"x": view._slice_dict["x"] // 2})),
    (check_true_batch, put("edge_index", lambda view, batch: view.edge_index * torch.tensor([[1], [0]]))),
    (check_true_batch, lambda view, *_: Batch.from_data_list(view.to_data_list()[:-1])),
    (check_input_stays, put("new", lambda view, batch: batch.x.mul_(1))),
    (check_input_stays, put("new", lambda view, batch: setattr(batch, "augmented", True))),
    (check_replay, lambda view, batch, generator: [torch.rand(1, generator=generator), view][1]),
    (check_randomness, lambda view, batch, _: Compose(MEMBERS)(batch)),
    (check_other_graphs, lambda view, batch, _: Compose(MEMBERS)(batch, seeded(3))),
]


def test_the_checkers_fail_a_broken_augmentation_and_pass_a_healthy_one():
    for check, change in BROKEN:
        check(Changed(lambda view, *_: view), typical_batch())
        with pytest.raises(AssertionError):
            check(Changed(change), typical_batch())
