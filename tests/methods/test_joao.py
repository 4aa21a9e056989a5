"""Test the method `joao`: drawn augmentations, their losses, and the update of the probabilities."""

import json
import math

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from graphcl.augment import AttributeMask, Compose, Identity, NodeDrop, OneOf, Subgraph, random2, random4, two_views
from graphcl.datasets.resident import ResidentLoader
from graphcl.errors import InputError
from graphcl.graphs.batching import split
from graphcl.losses import Loss, infonce
from graphcl.methods import JOAO, JOAOv2, TwoViews
from graphcl.methods.pool import Distribution, LearnedPool, names
from graphcl.registry import losses
from graphcl.run import main
from graphcl.training.loop import train
from tests.methods.small import graphs, make_model, pick, seeded, step, through_a_file, trainable
from tests.strategies import assert_law, assert_same_batch, assert_true_batch

IDS = list(range(12))
TERMWISE = [
    name
    for name in losses
    if losses.facts(name)["repels"] == "yes"
    and "reduction" in losses.arguments(name).defaults
    and "labels" not in losses.arguments(name).tensors
    and losses.arguments(name).defaults.get("negatives") != "queue"
]
MASKS = [AttributeMask(0.9, noise_mean=value, noise_std=0) for value in (10, 20, 30)]
"""Augmentations that mark the features, so that a graph's features show which augmentation it drew."""


def joao(loss="infonce", first=None, second=None, dtype=torch.float32, **options):
    first, second = first or Identity(), second or random4()
    return JOAO(make_model().to(dtype), Loss(loss), first, second, **options).to(dtype)


def views_of(method, ids=IDS, seed=0, dtype=torch.float32):
    return two_views(pick(graphs(dtype=dtype), ids), *method.augmentations(*method._given), seeded(seed))


def set_p(method, *values):
    for pool, p in zip(method._pools.values(), values, strict=True):
        pool.distribution.p.copy_(torch.tensor(p))


# -- what was drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [[0.25, 0.25, 0.5], [0.0, 0.9, 0.1], [1.0, 0.0, 0.0]])
def test_members_are_drawn_by_their_probabilities(p):
    method = joao(second=OneOf(MASKS))
    set_p(method, p)
    whole = pick(graphs(), list(range(20)) * 400)
    view = method.augmentations(Identity(), OneOf(MASKS))[1](whole, seeded(3))
    assert_law(view.drawn.tolist(), dict(enumerate(p)))
    # Each graph is augmented by what is said of it.
    largest = torch.zeros(view.num_graphs).scatter_reduce(0, view.batch, view.x[:, 0], "amax")
    assert torch.equal(largest, 10.0 * (view.drawn + 1))


def test_the_record_goes_where_the_graphs_go():
    method = joao(second=OneOf(MASKS))
    whole = pick(graphs(), IDS)
    view = method.augmentations(Identity(), OneOf(MASKS))[1](whole, seeded(0))
    assert_true_batch(view)
    assert "drawn" not in whole
    assert "drawn" not in whole._slice_dict
    assert [int(graph.drawn) for graph in view.to_data_list()] == view.drawn.tolist()
    parts = split(view, [5, 4, 3])
    assert torch.cat([part.drawn for part in parts]).tolist() == view.drawn.tolist()
    assert [part.drawn.numel() for part in parts] == [5, 4, 3]


def test_the_record_of_a_view_in_which_nothing_changed():
    whole = pick(graphs(), IDS)
    view = joao(second=OneOf([Identity(), Identity()])).augmentations(Identity(), OneOf([Identity()] * 2))[1](whole)
    assert view is not whole
    assert "drawn" not in whole
    assert view.drawn.shape == (12,)
    del view.drawn
    assert torch.equal(view.x, whole.x)


def test_the_members_do_what_they_do_in_a_pool_that_is_not_learned():
    """With probability 1 for one member, the view equals the view made by this member."""
    for number, member in enumerate([NodeDrop(0.3), Subgraph(0.3), AttributeMask(0.5)]):
        pool = LearnedPool(OneOf([NodeDrop(0.3), Subgraph(0.3), AttributeMask(0.5)]))
        pool.distribution.p.copy_(torch.eye(3)[number])
        view = pool(pick(graphs(), IDS), seeded(0))
        assert (view.drawn == number).all()
        if number == 2:
            assert view.num_nodes == pick(graphs(), IDS).num_nodes
        else:
            expected = member(pick(graphs(), IDS), seeded(1))
            assert torch.equal(view.ptr, expected.ptr)


def test_loader_chunks_keep_graphs_and_records_together():
    """`train` augments several batches at once and splits them. Each graph must keep its index `drawn`."""
    seen = []

    class Watched(JOAO):
        def forward(self, view1, view2, **options):
            largest = torch.zeros(view2.num_graphs).scatter_reduce(0, view2.batch, view2.x[:, 0], "amax")
            seen.append((largest, 10.0 * (view2.drawn + 1)))
            return super().forward(view1, view2, **options)

    pool = OneOf(MASKS)
    method = Watched(make_model(), Loss("infonce"), Identity(), pool)
    train(method, ResidentLoader(graphs(), 7, shuffle=True, generator=seeded(0)), Identity(), pool, epochs=2, lr=1e-4,
          generator=seeded(1))  # fmt: skip
    assert [marks.numel() for marks, _ in seen] == [7, 7, 7, 3] * 2
    assert all(torch.equal(marks, records) for marks, records in seen)


# -- what it cost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TERMWISE)
def test_the_value_is_that_of_two_views(name):
    method = joao(name, dtype=torch.float64)
    views = views_of(method, dtype=torch.float64)
    got, expected = method(*views), TwoViews(method.model, Loss(name))(*views)
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-12, atol=1e-12)
    assert torch.equal(got.z2, expected.z2)
    got.loss.backward()


@pytest.mark.parametrize("symmetric", [False, True])
def test_losses_of_augmentations_against_a_plain_loop(symmetric):
    """Compute InfoNCE of each anchor, and its mean over the graphs that drew each augmentation."""
    method = JOAO(
        make_model().double(), Loss("infonce", temperature=0.3, symmetric=symmetric), random2(), OneOf(MASKS)
    ).double()
    total = [[0.0] * 2, [0.0] * 3]
    count = [[0] * 2, [0] * 3]
    optimiser = torch.optim.SGD(trainable(method), lr=0.0)
    for seed, ids in enumerate([IDS, IDS[3:], [5, 2, 20, 21]]):
        views = views_of(method, ids, seed, torch.float64)
        outcome = step(method, optimiser, views)
        for b in range(len(ids)):
            anchors = []
            for here, there in ((outcome.z1, outcome.z2), (outcome.z2, outcome.z1))[: 1 + symmetric]:
                s = [
                    float(torch.nn.functional.cosine_similarity(here[b], other, dim=0).detach()) / 0.3
                    for other in there
                ]
                anchors.append(-s[b] + math.log(sum(math.exp(each) for each in s)))
            for view in (0, 1):
                member = int(views[view].drawn[b])
                total[view][member] += sum(anchors) / len(anchors)
                count[view][member] += 1
    for pool, sums, numbers in zip(method._pools.values(), total, count, strict=True):
        assert min(numbers) > 0
        expected = torch.tensor(sums, dtype=torch.float64) / torch.tensor(numbers)
        torch.testing.assert_close(pool.distribution.means(), expected, rtol=1e-10, atol=1e-10)
        assert pool.distribution.draws.tolist() == numbers


def test_the_terms_of_both_views_anchors_lie_one_view_after_the_other():
    """The method relies on this order: only terms i and B + i belong to graph i as the anchor."""
    z1, z2 = torch.randn(2, 5, 4, generator=seeded(0), dtype=torch.float64).requires_grad_()
    for name in TERMWISE:
        terms = losses[name](z1, z2, reduction="none", **({"symmetric": True} if "symmetric" in
                             losses.arguments(name).defaults else {}))  # fmt: skip
        assert terms.shape == (10,) or "symmetric" not in losses.arguments(name).defaults, name
    terms = infonce(z1, z2, reduction="none", temperature=0.01)
    a, b = (torch.nn.functional.normalize(z, dim=1) for z in (z1, z2))
    s = a @ b.T / 0.01
    expected = torch.cat([s.logsumexp(1) - s.diagonal(), s.logsumexp(0) - s.diagonal()])
    torch.testing.assert_close(terms, expected)


def test_only_training_counts_and_only_after_the_step():
    method = joao()
    (pool,) = method._pools.values()
    method.eval()
    method(*views_of(method))
    method.train()
    method(*views_of(method))
    assert pool.distribution.draws.sum() == 0
    method.after_step()
    method.after_step()
    assert pool.distribution.draws.sum() == 12


# -- the step ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=5),
    st.integers(0, 1000),
    st.floats(0, 2),
    st.floats(0.01, 2),
)
def test_the_step_of_the_probabilities(weights, seed, gamma, step_size):
    """Compare with the formula in the paper, projected by bisection as in the released code."""
    n = len(weights)
    mine = Distribution(weights, n).double()
    drawn = torch.randint(n, (40,), generator=seeded(seed))
    loss = torch.rand(40, generator=seeded(seed + 1), dtype=torch.float64) * 3
    p = mine.p.clone()
    mine.add(drawn[:25], loss[:25])
    mine.add(drawn[25:], loss[25:])
    means = [float(loss[drawn == i].mean()) if (drawn == i).any() else float(loss.mean()) for i in range(n)]
    b = [float(p[i]) + step_size * (means[i] - gamma * (float(p[i]) - 1 / n)) for i in range(n)]
    low, high = min(b) - 1, max(b)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(each - middle, 0) for each in b) > 1 else (low, middle)
    mine.ascend(gamma, step_size)
    torch.testing.assert_close(mine.p, torch.tensor([max(each - low, 0) for each in b]).double(), rtol=0, atol=1e-6)
    assert mine.losses.tolist() == mine.draws.tolist() == [0] * n


def test_what_was_never_drawn_comes_back_by_gamma_alone():
    mine = Distribution([1.0, 0.0, 0.0, 0.0], 4)
    mine.add(torch.zeros(50, dtype=torch.long), torch.full((50,), 3.0))
    assert mine.means().tolist() == [3.0] * 4
    mine.ascend(0.2, 0.5)
    torch.testing.assert_close(mine.p, torch.tensor([1 - 3 * 0.025, 0.025, 0.025, 0.025]))
    # Without the pull, never.
    mine = Distribution([1.0, 0.0], 2)
    mine.add(torch.zeros(50, dtype=torch.long), torch.full((50,), 3.0))
    mine.ascend(0.0, 1.0)
    assert mine.p.tolist() == [1.0, 0.0]


def test_an_epoch_without_graphs_only_pulls():
    mine = Distribution([3.0, 1.0], 2)
    mine.ascend(0.4, 1.0)
    torch.testing.assert_close(mine.p, torch.tensor([0.65, 0.35]))


def test_training_moves_towards_the_harder_augmentation():
    """The pool contains an augmentation that changes nothing and one that removes most of a graph."""
    pool = OneOf([Identity(), NodeDrop(0.8)])
    method = joao("dcl", second=pool, gamma=0.5, step_size=0.1)
    loader = ResidentLoader(graphs(48), 16, shuffle=True, generator=seeded(0))
    history = train(method, loader, Identity(), pool, epochs=8, generator=seeded(1))
    found = [record.diagnostics for record in history]
    assert all(set(each) == {"p_identity", "p_node_drop"} for each in found)
    for each in found:
        assert all(0 <= p <= 1 for p in each.values())
        assert sum(each.values()) == pytest.approx(1, abs=1e-6)
    assert found[-1]["p_node_drop"] > 0.8
    assert found[-1] == method.probabilities()
    # A large gamma holds it at equal shares.
    method = joao("dcl", second=pool, gamma=50.0, step_size=0.02)
    train(method, loader, Identity(), pool, epochs=4, generator=seeded(1))
    assert method.probabilities()["p_node_drop"] == pytest.approx(0.5, abs=0.06)


def test_two_pools_are_learned_apart():
    easy, hard = OneOf([Identity(), NodeDrop(0.1)]), OneOf([NodeDrop(0.8), Identity()])
    method = joao("dcl", first=easy, second=hard, step_size=0.05)
    loader = ResidentLoader(graphs(48), 16, shuffle=True, generator=seeded(0))
    history = train(method, loader, easy, hard, epochs=6, generator=seeded(1))
    last = history[-1].diagnostics
    assert list(last) == ["p1_identity", "p1_node_drop", "p2_node_drop", "p2_identity"]
    assert last["p2_node_drop"] > 0.6
    assert abs(last["p1_node_drop"] - 0.5) < last["p2_node_drop"] - 0.5


def test_the_pools_weights_are_where_it_starts():
    method = joao(second=OneOf([NodeDrop(0.1), Subgraph(0.1), NodeDrop(0.3)], weights=[1, 3, 0]))
    assert method.probabilities() == {"p_node_drop": 0.25, "p_subgraph": 0.75, "p_node_drop_2": 0.0}
    assert joao(second=random4()).probabilities() == dict.fromkeys(
        ["p_node_drop", "p_subgraph", "p_edge_perturb", "p_attribute_mask"], 0.25
    )
    assert names([random2(), Compose([Identity()]), Identity()]) == ["one_of", "compose", "identity"]


def test_the_state_holds_the_probabilities_and_what_was_counted():
    pools = random4(), random2()
    method = joao(first=pools[0], second=pools[1])
    loader = ResidentLoader(graphs(), 8, shuffle=True, generator=seeded(0))
    train(method, loader, *pools, epochs=2, generator=seeded(1))
    step(method, torch.optim.Adam(trainable(method)), views_of(method))
    other = joao(first=pools[0], second=pools[1])
    assert other.probabilities() != method.probabilities()
    other.load_state_dict(through_a_file(method.state_dict()))
    assert other.probabilities() == method.probabilities()
    # What is loaded is drawn from, and what had been counted counts.
    assert_same_batch(views_of(other)[1], views_of(method)[1])
    assert method.after_epoch() == other.after_epoch()


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JOAO, JOAOv2])
def test_messages(kind):
    name = {JOAO: "joao", JOAOv2: "joao_v2"}[kind]
    model, pool = make_model(), random2()
    with pytest.raises(
        InputError, match=rf"^method `{name}` needs a pool .* got Identity\(\) and Compose\(.*\); make one with"
    ):
        kind(model, Loss("infonce"), Identity(), Compose([pool]))
    for loss in ("vicreg", "barlow_twins"):
        with pytest.raises(InputError, match=rf"^method `{name}` passes `reduction` to the loss, which `{loss}` does"):
            kind(model, Loss(loss), Identity(), pool)
    with pytest.raises(InputError, match=rf"^method `{name}` passes `reduction` .* this function does not take\.$"):
        kind(model, lambda z1, z2: infonce(z1, z2), Identity(), pool)
    with pytest.raises(InputError, match=rf"^loss `simsiam` pushes nothing apart, so with method `{name}` all"):
        kind(model, Loss("simsiam"), Identity(), pool)
    method = kind(model, lambda z1, z2, reduction: infonce(z1, z2), Identity(), pool)
    with pytest.raises(InputError, match=r"^the loss must return one term per anchor for 12 graphs, got \[\]\.$"):
        method(*views_of(method))
    batch: Batch = pick(graphs(), IDS)
    with pytest.raises(InputError, match=rf"^method `{name}` needs views that record the drawn .* its `augmentations"):
        method(batch, batch)
    with pytest.raises(InputError, match=rf"^method `{name}` was constructed with the view Identity\(\), got OneOf\("):
        train(method, ResidentLoader(graphs(), 8), pool, pool, epochs=1)


def test_a_function_with_terms_fits():
    method = JOAO(make_model(), lambda z1, z2, reduction: infonce(z1, z2, reduction=reduction), Identity(), random2())
    assert method(*views_of(method)).loss.isfinite()


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "loss"), [("joao", "dcl"), ("joao", "adnce"), ("joao_v2", "adnce")])
def test_the_command_line(method, loss, saved_graphs, tmp_path, capsys):
    words = ["--dataset", saved_graphs(), "--batch-size", "16", "--evaluation.folds", "3", "--report", "false"]
    words += ["--method", method, "--views.first", "identity", "--views.second", "random4"]
    words += ["--loss", loss, "--epochs", "2", "--seeds", "0", "--eval", "knn", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        p = [line[f"p_{name}"] for name in ("node_drop", "subgraph", "edge_perturb", "attribute_mask")]
        assert sum(p) == pytest.approx(1, abs=1e-6)
        assert min(p) >= 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["method"] == {"name": method, "gamma": 0.1, "step_size": 1.0}
