"""Test the verdicts on hand-made tables of scores, and how scores are chosen, masked and compared."""

import numpy as np
import pytest

from graphcl.evaluate import FoldScores, paired_test
from graphcl.extensions.diagnosis.answers import AS_IS, Interval, Scored, answer, best, gain, verdict

FOLDS, SIZE = 10, 20


def scored(rates, seed=0, inner=None, metric="accuracy"):
    """Return a score of 10 folds of 20 test graphs, of which `rates` are right."""
    tested = tuple(np.arange(SIZE) + SIZE * fold for fold in range(FOLDS))
    values = tuple((np.arange(SIZE) < round(SIZE * rate)).astype(float) for rate in np.broadcast_to(rates, FOLDS))
    means = tuple(100 * float(each.mean()) for each in values)
    inner = means if inner is None else tuple(np.broadcast_to(inner, FOLDS).astype(float))
    return Scored(FoldScores(seed, means, (1.0,) * FOLDS, inner, FOLDS, 3, metric), tested, values)


def seeds(rate, spread=0.05):
    """Return the scores of three seeds around `rate`, in whole graphs."""
    steps = spread * np.array([-1, 0, 1, 0, -1, 1, 0, 0, 1, -1])
    return [scored(rate + np.roll(steps, seed), seed) for seed in range(3)]


def table(as_is=0.5, edges=0.5, features=0.5, sizes=0.5):
    """Return a table of the row `statistics` on the graphs as they are, and what is left without each part."""
    by_control = {AS_IS: as_is, "no edges": edges, "constant features": features, "sizes only": sizes}
    return {name: {"majority": seeds(0.5, 0), "statistics": seeds(rate)} for name, rate in by_control.items()}


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ({}, "nothing"),
        ({"as_is": 0.8, "edges": 0.8}, "features"),
        ({"as_is": 0.8, "features": 0.8}, "edges"),
        ({"as_is": 0.9, "edges": 0.7, "features": 0.7}, "both"),
        ({"as_is": 0.8, "edges": 0.5, "features": 0.5}, "both"),
        ({"as_is": 0.8, "edges": 0.8, "features": 0.8, "sizes": 0.8}, "size"),
        ({"as_is": 0.8, "edges": 0.8, "features": 0.8}, "either"),
        ({"as_is": 0.8, "edges": 0.9, "features": 0.9, "sizes": 0.9}, "size"),
    ],
)
def test_the_verdict_follows_from_what_is_left_without_edges_and_features(rates, kind):
    found = answer(table(**rates))
    assert found.kind == kind
    assert found.scores["none"] == 50


def test_copies_carry_a_score_that_is_chance_without_them():
    copied = np.zeros((3, FOLDS * SIZE), bool)
    copied[:, np.arange(FOLDS * SIZE) % SIZE < 12] = True
    found = table(as_is=0.8)
    for each in found[AS_IS]["statistics"]:  # all copies are right, and half of the others
        for fold, values in enumerate(each.values):
            values[:] = np.arange(SIZE) < 12
            values[np.arange(12, 20) if fold % 2 else [12, 13]] = [1, 0] * 4 if fold % 2 else 1
    for each in found[AS_IS]["majority"]:
        for values in each.values:
            values[:] = np.arange(SIZE) % 2
    answers = answer(found, copied)
    assert (answers.kind, answers.leak) == ("leak", 0.6)
    assert answers.scores["best_without_copies"] == pytest.approx(100 * (0.5 + 0.25) / 2)
    assert answers.scores["none_without_copies"] == 50
    y = (np.arange(FOLDS * SIZE) % SIZE < 18).astype(int)  # class 1 for three of four graphs without a copy
    assert answer(found, copied, y=y).scores["none_without_copies"] == 75
    assert answer(found, ~np.ones_like(copied)).kind == "both"  # as no graph has a copy


def test_test_graphs_without_copies_in_one_fold_have_no_interval():
    found = table(as_is=0.8, edges=0.5, features=0.5)
    copied = np.ones((3, FOLDS * SIZE), bool)
    copied[:, :2] = False
    for other in (0, SIZE):  # in two folds, but of the first seed in one
        copied[1:, other] = False
        answers = answer(found, copied)
        assert answers.leak == pytest.approx(1 - 0.2 / FOLDS, abs=0.01)
        assert "without_copies" not in answers.gains
    copied[:, 2 * SIZE] = False
    assert "without_copies" in answer(found, copied).gains


def test_rows_that_read_smiles_count_for_training_only():
    found = table(as_is=0.8, edges=0.5, features=0.8)
    found[AS_IS] |= {"ecfp4": seeds(0.95), "trained": seeds(0.8)}
    answers = answer(found)
    assert (answers.kind, answers.scores["best"]) == ("edges", pytest.approx(80))
    assert answers.gains["training"].mean == pytest.approx(-15)


def test_an_unknown_gain_counts_for_nothing():
    up, none = Interval(5, 1, 9), Interval(1, -3, 5)
    assert verdict({"signal": up, "edges": up}) == "edges"  # graphs without features of their own
    assert verdict({"signal": up, "edges": none, "features": Interval(-5, -9, -1)}) == "undecided"
    assert verdict({"signal": up, "edges": none, "beyond_sizes": none, "sizes": up}) == "size"
    assert verdict({"signal": none, "edges": up, "features": up}) == "nothing"
    assert verdict({"signal": up, "edges": up, "without_copies": none}) == "edges"  # copies gain no more


def test_the_best_row_is_chosen_by_inner_folds_only():
    half = np.arange(FOLDS) < 5
    rows = {"a": [scored(0.3, inner=90 * half)], "b": [scored(0.9, inner=50)]}
    (found,) = best(rows)
    assert found.score.accuracy == pytest.approx((30.0,) * 5 + (90.0,) * 5)
    assert [each.sum() for each in found.values] == [6] * 5 + [18] * 5
    rows = {name: [scored(rate, inner=rate, metric="rmse")] for name, rate in (("a", 0.3), ("b", 0.9))}
    assert best(rows)[0].score.mean == pytest.approx(30)


def test_a_mask_leaves_out_test_graphs_and_folds_without_any():
    each, kept = scored(np.linspace(0.1, 1, 10)), np.zeros(FOLDS * SIZE, bool)
    kept[SIZE * 3 : SIZE * 3 + 10] = kept[SIZE * 9 :] = True
    found = each.only(kept)
    assert found.score.accuracy == pytest.approx((80.0, 100.0))
    assert [len(rows) for rows in found.tested] == [10, 20]


def test_the_interval_holds_zero_where_the_paired_test_does_not_reject():
    rng = np.random.default_rng(0)
    for shift in np.linspace(0, 0.1, 20):
        after = [scored(np.clip(0.6 + shift + 0.1 * rng.normal(size=FOLDS), 0, 1), seed) for seed in range(3)]
        before = [scored(np.clip(0.6 + 0.1 * rng.normal(size=FOLDS), 0, 1), seed) for seed in range(3)]
        pair = [[each.score for each in scores] for scores in (after, before)]
        for level in (0.9, 0.99):
            assert (gain(after, before, level=level).sign != 0) == (paired_test(*pair).p < 1 - level)
    one = [Scored(FoldScores(0, (60.0,), (1.0,), (1.0,), 1, 1))]
    assert gain([scored(0.6)], [scored(0.6)]) == Interval(0, 0, 0)
    assert gain(one, one).high == np.inf


def test_a_single_test_part_is_resampled_by_unit():
    values = np.random.default_rng(0).normal(1, 2, 400)

    def gain_of(values, unit=None):
        tested, score = (np.arange(100, 100 + len(values)),), FoldScores(0, (1.0,), (1.0,), (1.0,), 1, 1, "mrr")
        after, before = ([Scored(score, tested, (each,))] for each in (values / 100, values * 0))
        return gain(after, before, unit, level=0.95)

    alone, half = gain_of(values), 1.96 * 2 / 20
    assert alone.mean == pytest.approx(values.mean())
    assert [alone.low, alone.high] == pytest.approx([values.mean() - half, values.mean() + half], abs=0.05)
    together = gain_of(np.repeat(values, 4), np.arange(100, 2200) // 4)
    assert [together.low, together.high] == pytest.approx([alone.low, alone.high])
