"""Test the scale of columns of numbers, standardising by it, and the warning of columns that differ in scale."""

import warnings

import numpy as np
import pytest
import torch

from graphcl import errors
from graphcl.graphs import columns
from graphcl.graphs.columns import column_scale, standardise, warn_of_scales


def test_columns_are_standardised_and_labels_stay(monkeypatch):
    monkeypatch.setattr(columns, "_ROWS", 3)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(20, 3, generator=generator) * torch.tensor([1e-3, 1, 1e6]) + torch.tensor([0, -5, 1e6])
    label, same, zero = (torch.arange(20) % 2)[:, None], torch.full((20, 1), 0.1), torch.zeros(20, 1)
    values = torch.cat([numbers, label, same, zero], dim=1)
    scale = column_scale(values)
    expected = values.double().numpy()
    np.testing.assert_allclose(scale[0], [*expected[:, :3].mean(0), 0, np.float32(0.1), 0], rtol=1e-9)
    np.testing.assert_allclose(scale[1], [*expected[:, :3].std(0), 1, 1, 1], rtol=1e-9)
    found = standardise(values, torch.tensor(scale, dtype=torch.float64))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[:, :3].mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(found[:, :3].std(0, correction=0), torch.ones(3))
    assert torch.equal(found[:, 3:], torch.cat([label, zero, zero], dim=1))
    assert column_scale(values[:, 0])[1] == scale[1][:1]


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (([0.0, 3.0, 1.0], [2.0, 21.0, 4.0]), "x: column 1 has deviation 21, column 0 2; an encoder"),
        (([0.0, 3.0], [1.0, 5.1]), "x: column 1 has deviation 5.1, column 0 0.5;"),  # of a label
        (([0.0, 3.0], [0.04, 1.0]), None),  # a constant column
        (([0.0, 3.0], [2.0, 20.0]), None),
        (([0.0, 0.0], [1.0, 1.0]), None),
    ],
)
def test_columns_of_another_scale_are_named(scale, says):
    errors._SHOWN.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_scales(scale, "x")
    assert [str(each.message).startswith(says) for each in caught] == [True] * (says is not None)
