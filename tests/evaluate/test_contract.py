"""Tests that every evaluator must pass: folds, messages, and no influence of the test fold on the choice."""

import inspect
import sys

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphcl.errors import InputError
from graphcl.evaluate import FoldScores
from graphcl.evaluate.folds import pair_dots, stratified
from graphcl.evaluate.needs import takes
from graphcl.registry import evaluators
from tests.evaluate.data import blobs

FOLDS = sys.modules["graphcl.evaluate.folds"]
ON_FOLDS = [name for name in evaluators if takes(name, "folds")]
OF_TARGETS = [name for name in evaluators if evaluators.fact(name, "needs") == "targets"]
GRIDS = {name: evaluators.arguments(name).defaults["grid"][::2] for name in ON_FOLDS if takes(name, "grid")}
every = pytest.mark.parametrize("name", ON_FOLDS)


def run(name, h, y, **arguments):
    grid = {"grid": GRIDS[name]} if name in GRIDS else {}
    return evaluators[name](h, y, **{"folds": 3, "inner_folds": 2, **grid, **arguments})


@every
def test_any_dtype_and_labels_without_mutation(name):
    h, y = blobs(n=36, classes=3)
    kept = h.copy()
    odd = torch.tensor([-4, 7, 1000], dtype=torch.int32)[y]
    expected = run(name, h, y)
    assert isinstance(expected, FoldScores)
    assert run(name, torch.from_numpy(h).requires_grad_(), odd) == expected
    assert run(name, np.asfortranarray(h), y, workers=2) == expected
    assert (h == kept).all()
    half = torch.from_numpy(h).half()
    assert run(name, half, y) == run(name, half.double().numpy(), y)


@every
def test_only_the_seed_shuffles(name):
    h, y = blobs(n=61)
    before = np.random.get_state(), torch.get_rng_state()
    expected, grid = run(name, h, y, seed=1), {"grid": np.array(GRIDS[name])} if name in GRIDS else {}
    assert run(name, h, y, seed=np.int64(1), workers=1, **grid) == expected  # NumPy numbers are valid settings
    assert run(name, h, y, seed=2).accuracy != expected.accuracy
    np.testing.assert_equal(np.random.get_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def leaks(evaluate, monkeypatch):
    """Return True if flipped or shuffled labels in a test fold change the hyper-parameter chosen for this fold."""
    h, y = blobs(n=90, seed=2)
    split = FOLDS._outer_parts(np.unique(y), y, 0, 3, 2)
    monkeypatch.setattr(FOLDS, "_outer_parts", lambda *_, **__: split)  # fixed, as stratification uses all labels
    right = evaluate(h, y)
    for fold, (_, test) in enumerate(split[0]):
        for wrong in (1 - y[test], np.random.default_rng(0).permutation(y[test])):
            fooled = y.copy()
            fooled[test] = wrong
            found = evaluate(h, fooled)
            if (found.chosen[fold], found.inner[fold]) != (right.chosen[fold], right.inner[fold]):
                return True
    return False


@every
def test_no_label_of_the_test_fold_reaches_the_choice(name, monkeypatch):
    assert not leaks(lambda h, y: run(name, h, y), monkeypatch)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in ON_FOLDS), ("svm", {"scale": True})])
def test_no_embedding_of_the_test_fold_reaches_the_choice(name, options):
    h, y = blobs(n=90, seed=2)
    right = run(name, h, y, **options)
    for fold, (_, test) in enumerate(StratifiedKFold(3, shuffle=True, random_state=0).split(h, y)):
        other = h.copy()
        other[test] = 1e3 * np.random.default_rng(0).normal(size=(len(test), 5))
        found = run(name, other, y, **options)
        assert found.chosen[fold] == right.chosen[fold]
        assert found.inner[fold] == pytest.approx(right.inner[fold])


def test_stratified_folds_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for seed in range(40):
        folds, classes = rng.integers(2, 6, 2)
        y = rng.permutation(np.r_[np.repeat(np.arange(classes), folds), rng.integers(0, classes, rng.integers(0, 60))])
        split = StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y)
        for found, expected in zip(stratified(y, folds, seed), split, strict=True):
            assert [rows.tolist() for rows in found] == [rows.tolist() for rows in expected], (seed, y)


@every
def test_a_small_class_reduces_the_folds_with_a_warning(name):
    y = np.where(np.arange(40) < 4, 9, 2)
    message = r"^class 9 has only 4 graphs: 4 outer and 3 inner folds instead of 10 and 5\.$"
    with pytest.warns(UserWarning, match=message) as caught:
        result = run(name, blobs(n=40)[0], y, folds=10, inner_folds=5)
    assert caught[0].filename == __file__
    assert (result.folds, result.inner_folds, len(result.accuracy)) == (4, 3, 4)


@pytest.mark.parametrize("name", GRIDS)
def test_the_first_of_equal_candidates_wins_and_every_inner_fold_is_reported(name):
    h, y = blobs(noise=0.01)  # every candidate classifies all rows
    for grid in ((1, 3), (3, 1)):
        seen = []
        found = run(name, h, y, inner_folds=3, grid=grid, on_fold=lambda *now, seen=seen: seen.append(now))
        assert set(found.chosen) == {grid[0]}
        assert seen == [(done, 9) for done in range(1, 10)]


@pytest.mark.parametrize("name", ["random_splits", *OF_TARGETS, "public_split"])
def test_no_test_row_of_a_split_reaches_the_choice(name):
    (h, y), order = blobs(n=200, noise=1.0), np.random.default_rng(0).permutation(200)
    split = dict(zip(["train", "valid", "test"], np.split(order, [20, 40]), strict=True))
    arguments = {"splits": 1} if name == "random_splits" else {"split": split}
    arguments |= {"eval_metric": "rocauc"} if name in OF_TARGETS else {}
    column = (slice(None), None) if name in OF_TARGETS else slice(None)
    before = ALL[name](h, y[column], **arguments)
    h[split["test"]] = 1e3 * np.random.default_rng(5).normal(size=(160, 5))
    y[split["test"]] = 1 - y[split["test"]]
    after = ALL[name](h, y[column], **arguments)
    assert (before.chosen, before.inner) == (after.chosen, after.inner)
    assert before.accuracy != after.accuracy


H, Y = blobs(n=12)


DATA = [
    (H[0], Y, r"`h` must be \[graphs, features\], got shape \[5\]\."),
    (np.where(np.arange(12)[:, None] < 3, np.nan, H), Y, r"`h` must be finite .* got 3 of 12 rows"),
    (H, Y[:7], r"`y` must be one label for each of the 12 rows of `h`, got shape \[7\]\."),
    (H, Y / 2, r"`y` must hold one class for each graph, got float64 that are not whole numbers\."),
    (H, np.full(12, 4), r"`y` must have two classes or more, got \[4\]\."),
    (H, np.arange(12) == 0, r"`y` must leave 2 graphs of every class in each training part, got 1 of class"),
]


@every
def test_invalid_data(name):
    for h, y, message in DATA:
        with pytest.raises(InputError, match=f"^{message}.*$"):
            run(name, h, y)


ALL = {name: evaluators[name] for name in evaluators if evaluators.fact(name, "needs") != "copies"}
INVALID = [
    ("cv", 3, r"`cv` must hold one or more pairs of training rows and test rows, got 3\."),
    ("h", 1j * H, r"`h` must hold real numbers, got complex128"),
    ("h", np.full((12, 1), 1e200), r"`h` must be finite and below 1e150, got 12 of 12 rows that are not"),
    ("y", [1j] * 12, r"`y` must hold .*, got complex128"),
    ("split", None, r"`split` must have the parts train, valid and test, got None"),
    ("split", dict.fromkeys(["train", "valid", "test"], 0), r"`split` must have three parts of different graphs"),
    ("eval_metric", "auc", r"`eval_metric` must be .*rocauc.*, got 'auc'"),
    ("folds", 1, r"`folds` must be in \[2, 1e9\), got 1"),
    ("inner_folds", 0, r"`inner_folds` must be in \[2, 1e9\), got 0"),
    ("splits", 0, r"`splits` must be in \[1, 1e9\), got 0"),
    ("group", [0.5] * 12, r"`group` must hold strings, or whole numbers, -1 for none, got float64"),
    ("pairs", [[0.5], [1]], r"`pairs` must hold whole numbers, got float64"),
    ("targets", [0.5], r"`targets` must hold whole numbers, got float64"),
    ("queries", [0.5], r"`queries` must hold whole numbers, got float64"),
    ("place", [0.5] * 12, r"`place` must hold whole numbers, got float64"),
    ("place", [1, 2], r"`place` must hold one number for each of 12 rows, got shape \[2\]"),
    ("seed", -1, r"`seed` must be in \[0, 4294967296\), got -1"),
    ("grid", (), r"`grid` must hold one value or more, got none"),
    ("grid", (1, -1), r"`grid\.1` must be in \[.*, got -1"),
    ("grid", ("1",), r"`grid\.0` must be a (whole )?number, got '1'"),
    ("grid", 5, r"`grid` must be a list, got 5"),
    ("scale", "yes", r"`scale` must be true or false, got 'yes'"),
    ("trees", 0, r"`trees` must be in \[1, 1e9\), got 0"),
    ("workers", 0, r"`workers` must be in \[1, 1e9\), got 0"),
    ("tasks", ["a", "b"], r"`tasks` must name the 1 columns of `y`, got 2 names"),
    ("on_predicted", 3, r"`on_predicted` must be a function, got 3"),
    ("on_fold", 3, r"`on_fold` must be a function, got 3"),
    ("on_test", 3, r"`on_test` must be a function, got 3"),
]


@pytest.mark.parametrize("name", ALL)
def test_every_argument_is_checked(name):
    taken = inspect.signature(ALL[name]).parameters
    split = dict(zip(["train", "valid", "test"], np.arange(12).reshape(3, 4), strict=True))
    y = Y[:, None] if "eval_metric" in taken else Y
    valid = {"h": H, "y": y, "split": split, "eval_metric": "acc", "folds": 2, "inner_folds": 2}
    assert not set(taken) - {argument for argument, _, _ in INVALID}
    for argument, value, message in INVALID:
        if argument in taken and (name, argument) != ("retrieval", "split"):  # it checks the split of groups only
            with pytest.raises(InputError, match=f"^{message}.*$") as caught:
                ALL[name](**{key: each for key, each in valid.items() if key in taken} | {argument: value})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in ALL if takes(name, "grid")])
def test_a_grid_has_one_candidate_or_more(name):
    """An empty grid is refused in `test_every_argument_is_checked`."""
    split = dict(zip(["train", "valid", "test"], np.arange(60).reshape(3, 20), strict=True))
    h, y = blobs(n=60)
    arguments = {"split": split, "eval_metric": "acc", "folds": 2, "inner_folds": 2, "splits": 1, "trees": 2}
    y = y[:, None] if takes(name, "eval_metric") else y
    for grid in ((1,), (1, 2, 5)):
        score = ALL[name](h, y, grid=grid, **{key: value for key, value in arguments.items() if takes(name, key)})
        assert {*score.chosen} <= {*grid}


@pytest.mark.parametrize("name", OF_TARGETS)
def test_targets_are_a_matrix_with_columns(name):
    split = dict(zip(["train", "valid", "test"], np.arange(12).reshape(3, 4), strict=True))
    for y, shape in ((Y, r"\[12\]"), (Y[:, None][:, :0], r"\[12, 0\]"), (1.0, r"\[\]")):
        with pytest.raises(InputError, match=rf"^`y` must be \[12, tasks\], got shape {shape}\.$"):
            ALL[name](H, y, split=split, eval_metric="acc")


def test_dots_of_equal_rows_are_equal_and_symmetric():
    h = np.random.default_rng(0).normal(size=(150, 96))
    h[[3, 70, 149]] = h[3]
    dots = pair_dots(h, workers=2)
    assert (dots == dots.T).all()
    assert (dots[3] == dots[70]).all()
    np.testing.assert_allclose(dots, h @ h.T, atol=1e-12)
    assert (dots[[3, 70, 149]][:, [3, 70, 149]] == dots[3, 3]).all()


@pytest.mark.parametrize("name", ["svm", "knn", "logreg"])
def test_own_splits_are_the_outer_folds(name):
    """Those of scikit-learn's splitter give the scores of the usual folds; a holdout gives one score."""
    h, y = blobs()
    usual = run(name, h, y)
    splits = StratifiedKFold(3, shuffle=True, random_state=0).split(h, y)
    assert run(name, h, y, cv=splits).accuracy == usual.accuracy
    train, test = np.arange(len(y)) % 3 != 0, np.arange(len(y)) % 3 == 0
    other = np.flatnonzero(train), torch.from_numpy(test)
    found = [run(name, h, y, cv=[each]) for each in ((train, test), other)]
    assert found[0].accuracy == found[1].accuracy
    assert (len(found[0].accuracy), found[0].folds) == (1, 1)


ROWS = np.arange(20)


@pytest.mark.parametrize(
    ("splits", "says"),
    [
        ([], r"`cv` must hold one or more pairs of training rows and test rows, got \[\]\."),
        ([(ROWS, ROWS)], "split 0 of `cv` must be a pair of different rows"),
        ([(ROWS, [])], r"`cv\[0\]` must hold indices or a mask, got float64"),
        ([([0, 2, 4, 1], [5])], r"`cv` must leave 2 graphs of every class to train on, got 1 of class 1 in the"),
    ],
)
def test_splits_that_do_not_fit_are_one_line(splits, says):
    y = np.arange(40) % 2
    with pytest.raises(InputError, match=f"^{says}"):
        run("svm", np.random.default_rng(0).normal(size=(40, 3)), y, cv=splits)
