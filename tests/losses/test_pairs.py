"""Test the choice of pairs by `compare`: counts, order, invariances and normalisation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.losses import adnce, compare, dcl, flatnce, infonce
from graphcl.losses.engine.dense import off_diagonal
from graphcl.losses.engine.pairs import normalize
from tests.losses import loops
from tests.losses.loops import SWITCHES

LOSSES = [infonce, dcl, flatnce, adnce]


def ordered(rows):
    """Return the negatives of each anchor, sorted, as their order is arbitrary."""
    return torch.as_tensor(rows, dtype=torch.float64).sort(dim=1).values


# -- who ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(data=st.data(), negatives=st.sampled_from(["cross", "all"]), symmetric=st.booleans())
def test_equals_the_enumeration(data, negatives, symmetric):
    z1, z2 = data.draw(loops.projections(most_graphs=6))
    expected = loops.cosines(loops.compared(z1.tolist(), z2.tolist(), negatives=negatives, symmetric=symmetric))
    pairs = compare(torch.tensor(z1), torch.tensor(z2), negatives, symmetric)
    np.testing.assert_allclose(pairs.positive, [positive for positive, _ in expected], atol=1e-14)
    np.testing.assert_allclose(ordered(pairs.negative), ordered([keys for _, keys in expected]), atol=1e-14)
    assert pairs.count.tolist() == [len(keys) for _, keys in expected]


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
def test_an_anchor_sees_its_own_keys_and_no_others(views, negatives, symmetric):
    """The rows with a nonzero gradient are exactly the anchor and its keys."""
    count = 4
    views_ = torch.stack(views(count, 3)).requires_grad_()
    pairs = compare(*views_, negatives, symmetric)
    places = [[(view, i) for i in range(count)] for view in (0, 1)]
    expected = loops.compared(*places, negatives=negatives, symmetric=symmetric)
    for anchor, (own, positive, keys) in enumerate(expected):
        (moved,) = torch.autograd.grad(pairs.negative[anchor].sum(), views_, retain_graph=True)
        assert {tuple(row) for row in moved.abs().sum(dim=2).nonzero().tolist()} == {own, *keys}
        (moved,) = torch.autograd.grad(pairs.positive[anchor], views_, retain_graph=True)
        assert {tuple(row) for row in moved.abs().sum(dim=2).nonzero().tolist()} == {own, positive}


@pytest.mark.parametrize("count", [2, 3, 8])
def test_off_diagonal_is_exact(count):
    square = torch.arange(count * count).view(count, count)
    expected = [[count * i + j for j in range(count) if j != i] for i in range(count)]
    assert off_diagonal(square).tolist() == expected
    # A transposed matrix is not contiguous.
    expected = [[count * j + i for j in range(count) if j != i] for i in range(count)]
    assert off_diagonal(square.T).tolist() == expected


# -- invariances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("negatives", "symmetric"), SWITCHES)
@pytest.mark.parametrize(("dtype", "tolerance", "decades"), [(torch.float64, 1e-12, 100), (torch.float32, 1e-5, 15)])
def test_only_directions_count(views, negatives, symmetric, dtype, tolerance, decades):
    """Row norms vary over many decades, but stay above 1e-12, below which a row counts as zero."""
    z1, z2 = views(6, 3, dtype=dtype)
    lengths = 10 ** torch.linspace(-10, decades, 12, dtype=dtype).view(2, 6, 1)
    for loss in LOSSES:
        arguments = {"negatives": negatives, "symmetric": symmetric, "reduction": "none"}
        expected = loss(z1, z2, **arguments)
        got = loss(z1 * lengths[0], z2 * lengths[1], **arguments)
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


# -- cosines -----------------------------------------------------------------------------------------------------------


def test_normalized_rows_have_length_one_or_stay_zero(views):
    z = views(5, 3)[0]
    z[2] = 0
    lengths = normalize(z).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1, 1, 0, 1, 1], dtype=torch.float64))


def test_strides_do_not_matter(views):
    z1, z2 = views(5, 4)
    columns = (z.T.contiguous().T for z in (z1, z2))
    strided = (z.repeat_interleave(2, dim=0)[::2] for z in (z1, z2))
    expected = compare(z1, z2, "all")
    for a, b in (columns, strided):
        torch.testing.assert_close(compare(a, b, "all").negative, expected.negative, rtol=0, atol=1e-15)
