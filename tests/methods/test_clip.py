"""Test `clip`: graphs against vectors that describe them."""

import numpy as np
import pytest
import torch

from graphcl.errors import InputError
from graphcl.losses import Loss
from graphcl.methods import CLIP
from graphcl.methods.clip import standardise
from tests.methods.small import Summed, graphs, make_model, pick


def saved(folder, rows):
    np.save(folder / "rows.npy", rows)
    return str(folder / "rows.npy")


def test_columns_are_standardised_and_clamped():
    rows = np.random.default_rng(0).normal(3, 2, size=(40, 4))
    rows[:, 1], rows[0, 2] = 0.1, 1e6
    rows[:, 3] += 1e9
    found = standardise(rows)
    for column in (0, 3):
        deviations = (rows[:, column] - rows[:, column].mean()) / rows[:, column].std()
        assert found[:, column] == pytest.approx(deviations, abs=1e-5)
    assert np.ptp(found[:, 1]) == 0
    assert found[0, 2] == 5.0
    for unit in (1e200, 1e-200):  # squares would over- or underflow
        assert standardise(rows * unit) == pytest.approx(found, abs=1e-6)


def test_a_graph_is_contrasted_with_its_own_row(tmp_path):
    """The loss equals the mean of both directions' cross-entropies between graphs and the rows of their `ids`."""
    rows = np.random.default_rng(0).normal(size=(24, 3))
    file = saved(tmp_path, np.asfortranarray(rows))  # as pandas gives
    method = CLIP(make_model(encoder=Summed), Loss("infonce", temperature=0.5), 24, vectors=file, hidden_channels=7)
    ids = torch.tensor([20, 3, 11, 8])
    batch = pick(graphs(), ids.tolist())
    outcome = method(batch, None, ids=ids)
    a = method.model(batch)
    b = method.projector(torch.from_numpy(standardise(rows)).float()[ids])
    torch.testing.assert_close(outcome.z1, a)
    torch.testing.assert_close(outcome.z2, b)
    cosines = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2) / 0.5
    expected = sum(torch.nn.functional.cross_entropy(each, torch.arange(4)) for each in (cosines, cosines.T)) / 2
    assert float(outcome.loss) == pytest.approx(float(expected), rel=1e-5)


def test_bad_files_get_one_line(tmp_path):
    (tmp_path / "text.npy").write_text("1, 2")
    np.savez(tmp_path / "two.npz", np.eye(2), np.eye(2))
    for number, (rows, line) in enumerate((
        (np.zeros(5), r"numbers \[n, d\], one row per graph; .* holds \[5\] of float64\.$"),
        (np.zeros((2, 0)), r"holds \[2, 0\] of float64\.$"),
        (np.array([["a"], ["b"]]), r"holds \[2, 1\] of <U1\.$"),
        (np.array([[1.0], [np.nan]]), "has NaN, infinity or numbers above 1e308; replace them"),
        (np.array([[{}], [1]], dtype=object), "^cannot read `vectors` .*: Object arrays cannot be loaded"),
        (np.eye(3), "must have one row per graph: .* has 3, the data set 2"),
        ("none.npy", "cannot read `vectors` .*No such file"),
        ("text.npy", r"cannot read `vectors` .*: This file contains pickled \(object\) data\.$"),
        ("two.npz", "holds several arrays"),
        (None, r"^method `clip` needs `vectors`, a \.npy file"),
    )):  # fmt: skip
        file = "" if rows is None else str(tmp_path / rows) if isinstance(rows, str) else saved(tmp_path, rows)
        with pytest.raises(InputError, match=line) as caught:
            CLIP(make_model(), Loss("infonce"), 2, vectors=file)
        assert "\n" not in str(caught.value), number
