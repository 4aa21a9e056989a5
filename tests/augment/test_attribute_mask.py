"""Test attribute masking: which rows are replaced, and by which values."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch_geometric.data import Batch, Data

from graphcl.augment import AttributeMask
from graphcl.augment.attribute_mask import MASK
from graphcl.augment.decision import Decision, apply
from graphcl.errors import InputError
from tests.strategies import (
    QUICK,
    assert_law,
    assert_same_batch,
    assert_same_value,
    batches,
    copies,
    generators,
    make_batch,
    path,
    ratio_count,
    ratios,
    seeded,
    typical_batch,
    uniform,
)

FILLS = ("gaussian", "zero", "mean")


@QUICK
@given(batches(needs=("x",)), ratios, st.sampled_from(FILLS), generators)
def test_each_graph_has_its_share_of_rows_replaced_and_nothing_else(batch, ratio, fill, generator):
    view = AttributeMask(ratio, fill)(batch, generator)
    replaced = (view.x != batch.x).any(dim=1)
    for g in range(batch.num_graphs):
        nodes = batch.batch == g
        count = ratio_count(ratio, int(nodes.sum()))
        # A masked row always changes; in a graph of one node, no row is masked.
        assert int(replaced[nodes].sum()) == count
    if fill == "zero":
        assert (view.x[replaced] == 0).all()
    elif fill == "mean":
        torch.testing.assert_close(view.x[replaced], batch.x.mean(dim=0).expand_as(view.x[replaced]))
    for key in batch.keys():  # noqa: SIM118
        if key != "x":
            assert_same_value(view[key], batch[key], key)


@pytest.mark.parametrize("fill", FILLS)
def test_all_subsets_of_rows_are_equally_likely(fill):
    draws = 10_000
    batch = copies(draws, 5, [])
    batch.x = torch.randn(batch.x.shape, generator=seeded(1)) + 5
    view = AttributeMask(0.4, fill)(batch, seeded(0))
    replaced = (view.x != batch.x).any(dim=1).view(draws, 5)
    outcomes = [tuple(row) for row in replaced.nonzero()[:, 1].view(draws, 2).tolist()]
    assert_law(outcomes, uniform(combinations(range(5), 2)))


@pytest.mark.parametrize("arguments", [{}, {"noise_mean": -2.0, "noise_std": 3.0}, {"noise_mean": 0, "noise_std": 1}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussian_noise_has_the_law_asked_for(arguments, dtype):
    batch = copies(100, 100, [])
    batch.x = torch.full((10_000, 3), 99.0, dtype=dtype)
    view = AttributeMask(0.5, **arguments)(batch, seeded(1))
    assert view.x.dtype == dtype
    noise = view.x[(view.x != 99).any(dim=1)].double()
    assert noise.shape == (5_000, 3)
    mean, std = arguments.get("noise_mean", 0.5), arguments.get("noise_std", 0.5)
    assert kstest((noise.flatten().double().numpy() - mean) / std, "norm").pvalue > 1e-6
    correlation = torch.corrcoef(noise.t()) - torch.eye(3)
    assert correlation.abs().max() < 5 / 5_000**0.5
    neighbours = torch.corrcoef(torch.stack([noise[:-1, 0], noise[1:, 0]]))[0, 1]
    assert neighbours.abs() < 5 / 5_000**0.5


def test_noise_without_spread_is_the_mean():
    view = AttributeMask(0.5, noise_mean=7, noise_std=0)(typical_batch(), seeded(0))
    assert int((view.x == 7).all(dim=1).sum()) == sum(n // 2 for n in typical_batch().ptr.diff().tolist())


def test_the_mean_is_that_of_the_whole_batch():
    batch = make_batch((2, []), (4, []))
    view = AttributeMask(0.5, "mean")(batch, seeded(0))
    mean = batch.x.mean(dim=0)
    assert [int((view[g].x == mean).all(dim=1).sum()) for g in range(2)] == [1, 2]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_whole_numbers_become_zero_or_the_mask_s_number(dtype):
    batch = make_batch((4, path(4)), (6, []))
    batch.x = torch.ones(10, 2, dtype=dtype)
    view = AttributeMask(0.5, "zero")(batch, seeded(0))
    assert view.x.dtype == dtype
    assert [int((view[g].x == 0).all(dim=1).sum()) for g in range(2)] == [2, 3]
    if dtype.is_signed:
        view = AttributeMask(0.5)(batch, seeded(0))
        assert view.x.dtype == dtype
        assert [int((view[g].x == MASK).all(dim=1).sum()) for g in range(2)] == [2, 3]
        assert int((view.x == 1).all(dim=1).sum()) == 5
    for fill in ("mean",) if dtype.is_signed else ("gaussian", "mean"):
        with pytest.raises(InputError, match=rf"fill='{fill}' needs floating-point `x`, got {dtype}"):
            AttributeMask(0.5, fill)(batch)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fill", FILLS)
def test_half_precision_stays(fill, dtype):
    batch = typical_batch()
    batch.x = batch.x.to(dtype)
    view = AttributeMask(0.5, fill)(batch, seeded(0))
    assert view.x.dtype == dtype
    assert torch.isfinite(view.x).all()


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_rows_of_any_shape(fill, shape):
    graphs = [Data(x=torch.ones(4, *shape) * 5, edge_index=torch.empty(2, 0, dtype=torch.long)) for _ in range(3)]
    graphs[2].x *= 2
    batch = Batch.from_data_list(graphs)
    view = AttributeMask(0.5, fill)(batch, seeded(0))
    assert view.x.shape == batch.x.shape
    assert int((view.x != batch.x).flatten(1).all(dim=1).sum() if shape else (view.x != batch.x).sum()) == 6


def test_without_features():
    batch = make_batch((3, path(3)), (2, []), keys=("pos",))
    for fill in FILLS:
        with pytest.raises(InputError, match="needs node features `x`"):
            AttributeMask(0.5, fill)(batch)
        with pytest.raises(InputError, match="needs node features `x`"):
            AttributeMask(0.5, fill).decide(batch)


@pytest.mark.parametrize("argument", ["noise_mean", "noise_std"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_noise_that_is_not_finite(argument, wrong):
    with pytest.raises(InputError, match=rf"`{argument}` must be in .*, got {wrong}"):
        AttributeMask(**{argument: wrong})


def test_a_negative_spread():
    with pytest.raises(InputError, match=r"`noise_std` must be in \[0, inf\), got -0.1"):
        AttributeMask(noise_std=-0.1)


@pytest.mark.parametrize("fill", FILLS)
def test_the_same_decision_masks_other_features_alike(fill):
    """A decision names the rows and their new features, so applying it to its own result changes nothing."""
    from graphcl.augment import apply

    batch = typical_batch()
    decision = AttributeMask(0.5, fill).decide(batch, seeded(0))
    view = apply(batch, decision)
    assert_same_batch(apply(view, decision), view)


def test_a_node_that_is_masked_and_dropped_is_gone():
    """Mask indices refer to the batch before nodes are removed."""
    batch = Batch.from_data_list([Data(x=torch.arange(5.0)[:, None], edge_index=torch.zeros(2, 0, dtype=torch.long))])
    keep = torch.tensor([True, False, True, False, True])
    masked = Decision(keep_node=keep, masked=torch.tensor([1, 4, 2]), features=torch.tensor([[-1.0], [-4.0], [-2.0]]))
    assert apply(batch, masked).x.flatten().tolist() == [0, -2, -4]
    assert batch.x.flatten().tolist() == [0, 1, 2, 3, 4]
