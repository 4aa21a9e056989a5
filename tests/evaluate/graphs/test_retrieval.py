"""Test retrieval on a split by group and on folds, and the split itself."""

import numpy as np
import pytest
import torch

from graphcl import errors
from graphcl.errors import InputError
from graphcl.evaluate import rank_queries, retrieval
from graphcl.evaluate.folds import outer_folds
from graphcl.evaluate.on_split import check_groups_apart, group_split
from graphcl.evaluate.scores import interval_words
from tests.evaluate.data import blobs

pytestmark = pytest.mark.filterwarnings("ignore:the split by (project|group) has")  # expected


def pairs(n=200, noise=1.0, seed=0):
    """Return embeddings of n noisy pairs on scales that differ by column, and their groups."""
    rng = np.random.default_rng(seed)
    base = np.repeat(rng.normal(size=(n, 6)), 2, axis=0)
    return (base + noise * rng.normal(size=base.shape)) * [100, 1, 1, 1, 1, 1] + 5, np.repeat(np.arange(n), 2)


def test_ranks_the_test_part_with_the_scale_that_the_validation_part_chooses():
    h, group = pairs()
    parts = group_split(group)
    found = retrieval(h, None, group=group, seed=7)
    train = h[parts["train"]]
    scaled = (h - train.mean(0)) / train.std(0)
    expected = {part: rank_queries(scaled, group, parts[part], parts[part]).percent() for part in ("valid", "test")}
    raw = rank_queries(h, group, parts["valid"], parts["valid"]).percent()["mrr"]
    assert raw < expected["valid"]["mrr"]
    assert (found.metric, found.seed, found.chosen, found.folds, found.inner_folds) == ("mrr", 7, (1.0,), 1, 1)
    assert (found.accuracy, found.inner) == (
        (pytest.approx(expected["test"]["mrr"]),),
        (pytest.approx(expected["valid"]["mrr"]),),
    )
    figures = dict(found.figures)
    assert figures.pop("mrr_low") < found.mean < figures.pop("mrr_high")
    assert figures.pop("mrr_units") == len(np.unique(group[parts["test"]]))
    assert figures == pytest.approx({key: each for key, each in expected["test"].items() if key != "mrr"})
    split = {part: torch.from_numpy(rows) for part, rows in parts.items()}
    assert retrieval(torch.from_numpy(h), None, group=torch.from_numpy(group), split=split, seed=7) == found


def test_a_search_inside_a_place_also_scores_the_search_in_all_places():
    h, group = pairs()
    everywhere = retrieval(h, None, group=group)
    within = retrieval(h, None, group=group, place=group % 2)
    assert within.mean > everywhere.mean + 1
    assert within.figures["mrr_all"] == pytest.approx(everywhere.mean)
    assert within.figures["recall_at_1_all"] == pytest.approx(everywhere.figures["recall_at_1"])
    assert "mrr_all" not in everywhere.figures


def test_no_test_row_reaches_the_choice_of_the_scale():
    h, group = pairs()
    test = group_split(group)["test"]
    right = retrieval(h, None, group=group)
    h[test] = np.random.default_rng(1).normal(size=(len(test), 6))
    wrong = retrieval(h, None, group=group)
    assert (right.chosen, right.inner) == (wrong.chosen, wrong.inner)
    assert wrong.mean < right.mean


def test_a_constant_column_is_not_blown_up_by_its_rounding():
    h, group = pairs()
    noise = 1e7 * (1 + 1e-15 * np.random.default_rng(0).normal(size=(len(h), 1)))
    assert retrieval(np.hstack([h, noise]), None, group=group).mean == pytest.approx(
        retrieval(h, None, group=group).mean
    )


def test_by_class_the_queries_are_each_fold_and_the_candidates_the_others():
    h, y = blobs(n=60, classes=3)
    found = retrieval(h, y, folds=3, inner_folds=2, seed=4)
    for (train, held), mrr, scale in zip(outer_folds(y, 4, 3), found.accuracy, found.chosen, strict=True):
        z = (h - h[train].mean(0)) / h[train].std(0) if scale else h
        assert mrr == pytest.approx(rank_queries(z, y, held, train).percent()["mrr"])
    assert set(found.figures) == {"mrr_at_10", "recall_at_1", "recall_at_10", "map", "ndcg_at_10"}


def test_a_group_and_a_project_are_on_one_part():
    rng = np.random.default_rng(0)
    group, project = rng.integers(-1, 300, 1000), rng.integers(-1, 40, 1000)
    for parts in (group_split(group), group_split(np.arange(1000) // 4, project * 0 + np.arange(1000) // 8)):
        assert sorted(np.concatenate([*parts.values()]).tolist()) == list(range(1000))
        assert [round(len(rows) / 100) for rows in parts.values()] == [8, 1, 1]
    check_groups_apart(group_split(group), group)
    # group 0 joins the projects 0 and 1
    joined = group_split(np.array([0, 0, 1, 2, 3, 4]), np.array([0, 1, 0, 1, 2, 3]))
    part = {row: name for name, rows in joined.items() for row in rows}
    assert part[0] == part[1] == part[2] == part[3]
    assert {part[0], part[4], part[5]} == {"train", "valid", "test"}
    large = group_split(np.repeat([0, 1, 2, 3], [95, 2, 2, 1]))  # too large to hold out
    assert {name: len(rows) for name, rows in large.items()} == {"train": 95, "valid": 4, "test": 1}
    message = "by project has 56, 12 and 32 % .*, not 80, 10 and 10 %, as no project is divided; .* in `part`"
    sizes = np.array([400, 150, 700])
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        with pytest.warns(UserWarning, match=message):
            uneven = group_split(np.repeat(np.arange(1250), 2), np.repeat([0, 1, 2], 2 * sizes[order]))
        assert [len(rows) for rows in uneven.values()] == [1400, 300, 800]
        errors._SHOWN.clear()
    assert all(np.array_equal(group_split(group)[name], rows) for name, rows in group_split(group).items())
    assert not np.array_equal(group_split(group, seed=1)["test"], group_split(group)["test"])


H, GROUP = pairs(20)
INVALID = [
    ({"group": None}, r"retrieval needs groups or classes; give the graphs a `group`, or `y`\."),
    ({"group": np.zeros(40, int)}, r"a split by group needs 3 groups or more, for training, validation and test\."),
    (
        {"split": {"train": np.arange(1), "valid": np.arange(1, 20), "test": np.arange(20, 40)}},
        r"group 0 is in the parts train and valid; put each into one\.",
    ),
    (
        {"group": GROUP[:39]},
        r"`group` must hold one number for each of the 40 rows of `h`, got shape \[39\]\.",
    ),
    (
        {"group": np.arange(40)},
        r"valid part of 4 graphs: no query has a candidate of its own group; groups need two graphs or more\.",
    ),
]


def test_invalid_data():
    for arguments, message in INVALID:
        with pytest.raises(InputError, match=f"^{message}$"):
            retrieval(H, None, **{"group": GROUP, **arguments})


def test_one_group_has_no_interval():
    h, group = pairs(20)
    parts = {"train": np.arange(34), "valid": np.arange(34, 36), "test": np.arange(36, 40)}
    assert retrieval(h, None, group=group, split=parts).figures["mrr_units"] == 2
    parts["test"] = parts["test"][:2]
    assert not [key for key in retrieval(h, None, group=group, split=parts).figures if key.startswith("mrr_")][1:]
    assert interval_words(30) == ("30 groups", "")
