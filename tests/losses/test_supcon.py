"""Test `supcon` against float64 reference loops."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.losses import infonce, nt_xent, supcon
from tests.losses import loops

LABELS = [[0, 1], [5, 5], [0, 1, 0], [-3, 7, 7, -3], [2, 2, 2, 1, 1], [10**12, 0, 1, 10**12, 2]]


@loops.whole
def slow(z1, z2, labels, temperature=0.2):
    """Return, for each of the 2N rows i, the mean over p in P(i) of -s_ip + log sum_{a != i} e^{s_ia}."""
    rows, labels = z1 + z2, labels + labels
    values = []
    for i, row in enumerate(rows):
        logits = {a: loops.cosine(row, key) / temperature for a, key in enumerate(rows) if a != i}
        total = loops.log_sum_exp(list(logits.values()))
        pulled = [total - s for a, s in logits.items() if labels[a] == labels[i]]
        values.append(math.fsum(pulled) / len(pulled))
    return values


def test_the_loops_by_hand():
    """Row 0 has cosine 1 with its other view, and 0 and -1 with the rows of the second graph."""
    z1, z2 = [[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [-1.0, 0.0]]
    total = math.log(math.e + 1 + 1 / math.e)
    assert slow(z1, z2, [0, 1], temperature=1.0)[0] == pytest.approx(total - 1)
    assert slow(z1, z2, [4, 4], temperature=1.0)[0] == pytest.approx(total - (1 + 0 - 1) / 3)
    assert slow(z1, z2, [4, 4], temperature=1.0)[1] == pytest.approx(math.log(3))


@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_value_and_gradient_equal_the_loops(views, labels, temperature):
    z1, z2 = views(len(labels), 3, seed=len(labels))
    own = {"labels": torch.tensor(labels), "temperature": temperature}
    loops.agree(supcon, slow, z1, z2, **own)
    weight = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0])[: len(labels)].double()
    loops.agree(supcon, slow, z1, z2, **own, weight=weight)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), temperature=st.floats(0.02, 2), engine=st.sampled_from(["dense", "tiled"]))
def test_equals_the_loops_everywhere(data, temperature, engine):
    z1, z2 = data.draw(loops.projections())
    labels = data.draw(st.lists(st.integers(-2, 2), min_size=len(z1), max_size=len(z1)))
    own = {"labels": torch.tensor(labels), "temperature": temperature, "engine": engine}
    got = supcon(torch.tensor(z1), torch.tensor(z2), reduction="none", **own)
    expected = slow(z1.tolist(), z2.tolist(), labels, temperature)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_labels_that_all_differ_give_nt_xent(views, gradients):
    z1, z2 = views(6, 4)
    own = {"temperature": 0.3, "weight": torch.arange(6.0).double()}
    loss = partial(supcon, labels=torch.tensor([3, 1, 4, 15, 9, 2]), **own)
    for plain in (partial(nt_xent, **own), partial(infonce, negatives="all", **own)):
        for reduction in ("none", "mean"):
            torch.testing.assert_close(
                loss(z1, z2, reduction=reduction), plain(z1, z2, reduction=reduction), rtol=1e-12, atol=1e-12
            )
        np.testing.assert_allclose(gradients(loss, z1, z2), gradients(plain, z1, z2), rtol=1e-11, atol=1e-12)


def test_only_who_shares_a_label_matters_not_its_name(views):
    z1, z2 = views(5, 3)
    for kind in (torch.int64, torch.int32, torch.uint8):
        first = supcon(z1, z2, labels=torch.tensor([0, 1, 0, 2, 1], dtype=kind))
        second = supcon(z1, z2, labels=torch.tensor([200, 7, 200, 0, 7]))
        assert first.item() == pytest.approx(second.item(), rel=1e-13)


@pytest.mark.parametrize("same", [0.0, 1.0])
def test_equal_cosines_give_log_of_the_number_of_others(same):
    z = torch.full((4, 3), same, dtype=torch.float64)
    for labels in ([0, 0, 0, 0], [0, 1, 0, 2]):
        loss = partial(supcon, labels=torch.tensor(labels))
        assert loss(z, z).item() == pytest.approx(math.log(7), rel=1e-12)
        loops.finite(loss, z, z)
        loops.finite(partial(loss, temperature=0.005), z, -z)
