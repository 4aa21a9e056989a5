"""Test that mined negatives are the hardest targets that the rules allow."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl import InputError
from graphcl.datasets.pair_file import make_relation
from graphcl.loaders.mining import mine_hard_negatives
from tests.strategies import QUICK, seeded


@QUICK
@given(
    seed=st.integers(0, 99),
    k=st.integers(1, 3),
    skip=st.integers(0, 2),
    margin=st.sampled_from([0.0, 0.2]),
    relative=st.sampled_from([0.0, 0.3]),
    within=st.booleans(),
    shared=st.booleans(),
)
def test_the_negatives_equal_a_loop_over_all_targets(seed, k, skip, margin, relative, within, shared):
    draw, n = seeded(seed), 9
    h = [torch.randn(n, 3, generator=draw) for _ in range(2)]
    h[1] = h[0] if shared else h[1]
    ends = torch.randint(n, (8, 2), generator=draw).unique(dim=0).tolist()
    pairs = [(i, j) for i, j in ends if i != j or not shared]
    if len(pairs) < 2:
        return
    relation = make_relation(pairs, range(n), None if shared else range(n))
    place = torch.randint(2, (n if shared else 2 * n,), generator=draw)
    found = mine_hard_negatives(
        *h, relation, k, margin=margin, relative_margin=relative, skip=skip, within=place if within else None
    )
    known = set(pairs) | ({(j, i) for i, j in pairs} | {(i, i) for i in range(n)} if shared else set())
    cosine = torch.nn.functional.cosine_similarity(h[0][:, None], h[1][None], dim=2)
    for row, (i, j) in enumerate(pairs):
        allowed = [m for m in sorted({m for _, m in pairs}) if (i, m) not in known]
        if within:
            allowed = [m for m in allowed if place[m if shared else n + m] == place[i]]
        allowed = sorted(allowed, key=lambda m: -float(cosine[i, m]))[skip:]
        limit = float(cosine[i, j]) - max(margin, relative * abs(float(cosine[i, j])))
        allowed = [m for m in allowed if cosine[i, m] <= limit or not (margin or relative)]
        assert found.negatives[1][found.negatives[0] == row].tolist() == allowed[:k]


ONE = torch.eye(3)


@pytest.mark.parametrize(
    ("queries", "targets", "says"),
    [
        (ONE, ONE[:2], r"`targets` must have one row for each of 3 graphs, got \[2, 3\]\."),
        (ONE[0], ONE, r"`queries` must have one row for each of 3 graphs, got \[3\]\."),
        (ONE, torch.rand(3, 4), r"`queries` and `targets` must have equally many columns, got 3 and 4\."),
        (ONE, ONE.index_fill(0, torch.tensor([1]), math.nan), r"`targets` is not finite in row 1\."),
        (ONE.double() * 1e308 * 10, ONE, r"`queries` is not finite in row 0\."),
    ],
)
def test_wrong_rows_are_one_line(queries, targets, says):
    relation = make_relation([(0, 1), (2, 0)], range(3))
    with pytest.raises(InputError, match=f"^{says}"):
        mine_hard_negatives(queries, targets, relation)


def test_rows_of_numpy_and_of_other_types():
    relation, rows = make_relation([(0, 1), (2, 0)], range(3)), torch.rand(3, 4, generator=seeded(0))
    expected = mine_hard_negatives(rows, rows, relation).negatives
    for other in (rows.numpy(), rows.double(), rows.numpy().astype(np.float64), rows.tolist(), rows.requires_grad_()):
        assert torch.equal(mine_hard_negatives(other, other, relation).negatives, expected)
