"""Test that every method uses or refuses whatever a list of pairs holds, before training begins."""

import pytest
import torch
from torch_geometric.data import Batch

from graphcl import GraphCL, InputError, ListedPairs, Loss, ResidentLoader, load_dataset, train
from graphcl.augment import Identity, NodeDrop, OneOf, two_views
from graphcl.datasets.pair_file import make_relation
from graphcl.experiment.trial import Trial
from graphcl.methods import MoCo, TwoViews
from graphcl.methods.joao import Distribution
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.wrapper import Tower, TwoTowers
from graphcl.registry import methods
from graphcl.run import main
from tests.conftest import overriding
from tests.methods.small import OF_GRAPHS, Summed, graphs, seeded
from tests.methods.small import make_model as model_of

N = 24
DATA = graphs(N)
USE_WEIGHTS = [name for name in OF_GRAPHS if "weight" in methods.facts(name).get("pairs", "")]
PAIRS = {"query": list(range(0, N, 2)), "target": list(range(1, N, 2))}
COLUMNS = {
    "target": [*range(3, N, 2), 1],
    "weight": [1 + 9 * (number % 2) for number in range(N // 2)],
    "negative": [(query + 7) % N for query in PAIRS["query"]],
}
REFUSED = r"^(the pairs have negatives \(.+\), which method `\w+` does not use; |`positives` pairs has no effect).+"


def rows(pairs, targets=None, **settings):
    settings = {"epochs": 2, "batch_size": 4, "encoder": {"name": "gin", "hidden_channels": 8}, **settings}
    return torch.as_tensor(GraphCL(**settings).fit(DATA, pairs=pairs, targets=targets).transform(DATA))


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_every_column_of_pairs_changes_the_rows_or_is_refused(name):
    takes_pairs, used = methods.facts(name).get("pairs") != "no", ("target", "weight", "negative")
    used = () if not takes_pairs else used if name == "two_views" else used[:2]
    for column, values in COLUMNS.items():
        pairs = {**PAIRS, column: values}
        if column in used:
            assert not torch.equal(rows(pairs, method=name), rows(PAIRS, method=name))
        else:
            with pytest.raises(InputError, match=REFUSED):
                rows(pairs, method=name)


def test_a_loss_that_ignores_a_column_is_refused(tmp_path, capsys):
    """A run is refused before it makes a folder; `train` before its first step, also for a function as the loss."""
    torch.save(DATA, tmp_path / "graphs.pt")
    for column in ("negative", "weight"):
        lines = [f"{q},{t},{value}" for q, t, value in zip(*PAIRS.values(), COLUMNS[column], strict=True)]
        (tmp_path / f"{column}.csv").write_text("\n".join([f"query,target,{column}", *lines]))
    words = f"--dataset {tmp_path}/graphs.pt --out {tmp_path}/run --epochs 1 --eval none --report false".split()
    for pairs, others, line in (
        (
            "negative",
            "--method moco",
            "a `label` 0, or `hard_negatives`), which method `moco`",
        ),
        (
            "negative",
            "--loss vicreg",
            "a `label` 0, or `hard_negatives`), which loss `vicreg`",
        ),
        (
            "weight",
            "--loss vicreg --hard-negatives 1 --epochs 2",
            "weights (the column `weight`), which loss `vicreg` does not",
        ),
        ("weight", "--method memory_bank --loss instance_nce", "`loss.symmetric` false encodes the queries only"),
    ):
        assert main([*overriding(words, *others.split()), "--positives", f"{tmp_path}/{pairs}.csv"]) == 2
        err = capsys.readouterr().err
        assert line in err
        assert err.count("\n") == 1
        assert not (tmp_path / "run").exists()
    data, steps = load_dataset(DATA), []
    for make, column in (
        (lambda model: MoCo(model, "infonce"), "negative"),
        (lambda model: TwoViews(model, "vicreg"), "weight"),
        (lambda model: TwoViews(model, lambda z1, z2: (z1 - z2).square().mean()), "weight"),
    ):
        sampler = ListedPairs(make_relation({**PAIRS, column: COLUMNS[column]}, range(N)), 4)
        with pytest.raises(InputError, match=r"^the pairs have .* leave them out or use"):
            train(
                make(model_of()),
                ResidentLoader(data, batch_sampler=sampler),
                "identity",
                "identity",
                on_step=steps.append,
            )
    assert not steps


def view_pair(name, weight):
    """Return the views of eight pairs with this weight, and a new method, equal in every call."""
    pool = OneOf([NodeDrop(0.2), Identity()]) if name.startswith("joao") else Identity()
    given = {"num_graphs": N // 2, "first": pool, "second": pool}
    arguments = {key: given[key] for key in methods.arguments(name).required if key in given}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method = methods[name](model_of(0), Loss("infonce"), **arguments)
    both = [Batch.from_data_list([DATA[row] for row in PAIRS[side][:8]]) for side in ("query", "target")]
    views = two_views(both, *method.augmentations(pool, pool), seeded(1))
    if weight is not None:
        views[0].pair_weight = torch.as_tensor(weight, dtype=torch.float32)
    return method, views


@pytest.mark.parametrize("name", USE_WEIGHTS)
def test_the_loss_is_the_weighted_mean_of_the_terms_of_the_pairs(name):
    def loss(weight):
        method, views = view_pair(name, weight)
        return method(*views, ids=torch.arange(8), generator=seeded(2)).loss.double()

    terms = torch.stack([loss(torch.eye(8)[number]) for number in range(8)])
    weight = torch.tensor([1.0, 2, 0, 5, 0.25, 0, 3, 1])
    torch.testing.assert_close(loss(weight), (weight * terms).sum() / weight.sum(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss(torch.ones(8)), loss(None))
    torch.testing.assert_close(loss(None), terms.mean(), rtol=1e-5, atol=1e-6)


def test_the_losses_of_drawn_augmentations_are_weighted():
    found = Distribution(None, 3)
    found.add(torch.tensor([0, 0, 1]), torch.tensor([1.0, 5.0, 4.0]), torch.tensor([0.3, 0.1, 0.2]))
    expected = [(0.3 * 1 + 0.1 * 5) / 0.4, 4.0, (0.3 * 1 + 0.1 * 5 + 0.2 * 4) / 0.6]
    assert found.means().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_both_towers_are_trained_or_separate_towers_are_refused(name):
    """Queries and targets have other columns, so that a row by the wrong tower is an error too."""
    targets = [graph.clone() for graph in DATA]
    for graph in targets:
        graph.x = graph.x[:, :3]
    pairs, config = [(number, number) for number in range(N)], []
    given = {"towers": "separate", "epochs": 1, "batch_size": 8, "method": name}
    estimator = GraphCL(**given)
    if "towers" not in methods.facts(name).get("pairs", ""):
        with pytest.raises(
            InputError, match=f"^(method `{name}` trains one encoder only|`positives` pairs has no effect)"
        ):
            estimator.fit(DATA, pairs=pairs, targets=targets)
        return
    with pytest.MonkeyPatch.context() as patch:
        original = Trial.try_step
        patch.setattr(Trial, "try_step", lambda trial: config.append(trial.task) or original(trial))
        found = estimator.fit(DATA, pairs=pairs, targets=targets).model_
    before = config[0].make_model(estimator.seed_)
    assert len(list(before.target.parameters())) > 10
    for (key, one), other in zip(before.named_parameters(), found.parameters(), strict=True):
        assert not torch.equal(one, other), key


def test_a_method_of_the_user_says_what_it_uses():
    class Mine(TwoViews):
        """A subclass has what its base uses."""

    two = TwoTowers(Tower(Summed(), 4), Tower(Summed(), 4))
    Mine(two, "infonce").check_pairs(True, weights=True, negatives=True)
    with pytest.raises(InputError, match=r"^method `moco` trains one encoder only"):
        MoCo(two, "infonce")
    Mine(ContrastiveModel(Summed()), lambda z1, z2, **others: z1.sum()).check_pairs(True, weights=True)
