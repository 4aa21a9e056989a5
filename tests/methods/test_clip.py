"""Test `clip`: graphs against vectors that describe them."""

import numpy as np
import pytest
import torch

from graphcl import GraphCL, load_dataset
from graphcl.config import make_config
from graphcl.errors import InputError
from graphcl.experiment.trial import warn_of_vectors
from graphcl.graphs.columns import standardised_vectors
from graphcl.losses import Loss
from graphcl.methods import CLIP
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs
from tests.methods.small import Summed, graphs, make_model, pick


def saved(folder, rows):
    np.save(folder / "rows.npy", rows)
    return str(folder / "rows.npy")


def test_columns_are_standardised_and_clamped():
    rows = np.random.default_rng(0).normal(3, 2, size=(40, 4))
    rows[:, 1], rows[0, 2] = 0.1, 1e6
    rows[:, 3] += 1e9
    found = standardised_vectors(rows)
    for column in (0, 3):
        deviations = (rows[:, column] - rows[:, column].mean()) / rows[:, column].std()
        assert found[:, column] == pytest.approx(deviations, abs=1e-5)
    assert found[:, 1] == pytest.approx(0)
    assert found[0, 2] == 5.0
    for unit in (1e200, 1e-200):  # squares would over- or underflow
        assert standardised_vectors(rows * unit) == pytest.approx(found, abs=1e-6)


def test_a_graph_is_contrasted_with_its_own_row(tmp_path):
    """The loss equals the mean of both directions' cross-entropies between graphs and the rows of their `ids`."""
    rows = np.random.default_rng(0).normal(size=(24, 3))
    file = saved(tmp_path, np.asfortranarray(rows))  # as pandas gives
    method = CLIP(make_model(encoder=Summed), Loss("infonce", temperature=0.5), 24, vectors=file, hidden_channels=7)
    ids = torch.tensor([20, 3, 11, 8])
    batch = pick(graphs(), ids.tolist())
    outcome = method(batch, None, ids=ids)
    a = method.model(batch)
    b = method.projector(torch.from_numpy(standardised_vectors(rows)).float()[ids])
    torch.testing.assert_close(outcome.z1, a)
    torch.testing.assert_close(outcome.z2, b)
    cosines = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=2) / 0.5
    expected = sum(torch.nn.functional.cross_entropy(each, torch.arange(4)) for each in (cosines, cosines.T)) / 2
    assert float(outcome.loss) == pytest.approx(float(expected), rel=1e-5)


def test_missing_cells_do_not_count(tmp_path):
    """Columns are standardised over the present cells; q receives 0 in the missing ones, and a mask."""
    rows = np.random.default_rng(0).normal(3, 2, size=(24, 4))
    rows[::3, 1], rows[5:, 2], rows[:, 3] = np.nan, np.nan, np.nan
    found = standardised_vectors(rows)
    assert np.array_equal(np.isnan(found), np.isnan(rows))
    for column in (0, 1, 2):
        known = rows[~np.isnan(rows[:, column]), column]
        assert found[~np.isnan(rows[:, column]), column] == pytest.approx((known - known.mean()) / known.std())
    loss = Loss("infonce", temperature=0.5)
    method = CLIP(make_model(encoder=Summed), loss, 24, vectors=saved(tmp_path, rows))
    ids = torch.tensor([0, 1, 6, 9])
    given = torch.from_numpy(np.hstack([np.nan_to_num(found), ~np.isnan(rows)])[ids]).float()
    torch.testing.assert_close(method(pick(graphs(), ids.tolist()), None, ids=ids).z2, method.projector(given))


@pytest.mark.parametrize("missing", [False, True])
def test_regression_is_the_mean_square_over_present_cells(tmp_path, missing):
    """With w = 1 contrast has no influence: only the encoder, its projector and the linear layer learn."""
    rows = np.random.default_rng(0).normal(size=(24, 3))
    if missing:
        rows[::2, 1] = np.nan
    file, ids = saved(tmp_path, rows), torch.tensor([20, 3, 11, 8])
    torch.manual_seed(0)
    method = CLIP(make_model(encoder=Summed), Loss("infonce"), 24, vectors=file, regression=1.0)
    outcome = method(batch := pick(graphs(), ids.tolist()), None, ids=ids)
    errors = (method.head(method.model(batch)).detach().numpy() - standardised_vectors(rows)[ids]) ** 2
    square = np.mean([row[~np.isnan(row)].mean() for row in errors])
    assert float(outcome.loss) == pytest.approx(square, rel=1e-5)
    outcome.loss.backward()
    assert all(not each.grad.any() for each in method.projector.parameters())
    assert all(each.grad.any() for each in (method.head.weight, *method.model.parameters()))
    method.regression = 0.25
    mixed = 0.75 * method.loss(outcome.z1, outcome.z2) + 0.25 * square
    assert float(method(batch, None, ids=ids).loss) == pytest.approx(float(mixed), rel=1e-5)


def test_bad_files_get_one_line(tmp_path):
    (tmp_path / "text.npy").write_text("1, 2")
    np.savez(tmp_path / "two.npz", np.eye(2), np.eye(2))
    for number, (rows, line) in enumerate((
        (np.zeros(5), r"numbers \[n, d\], one row per graph; .* holds \[5\] of float64\.$"),
        (np.zeros((2, 0)), r"holds \[2, 0\] of float64\.$"),
        (np.array([["a"], ["b"]]), r"holds \[2, 1\] of <U1\.$"),
        (np.array([[1.0, np.nan], [np.nan, np.nan]]), r"^row 1 of `vectors` .* has no number; leave that graph out"),
        (np.array([[1.0], [np.inf]]), "has infinity or numbers above 1e308; replace them, by NaN if missing"),
        (np.array([[{}], [1]], dtype=object), "^cannot read `vectors` .*: Object arrays cannot be loaded"),
        (np.eye(3), "must have one row per graph: .* has 3, the data set 2"),
        ("none.npy", "cannot read `vectors` .*No such file"),
        ("text.npy", r"cannot read `vectors` .*: This file contains pickled \(object\) data\.$"),
        ("two.npz", "holds several arrays"),
        (None, r"^method `clip` needs `vectors`, an array or a \.npy file with a row"),
    )):  # fmt: skip
        file = "" if rows is None else str(tmp_path / rows) if isinstance(rows, str) else saved(tmp_path, rows)
        with pytest.raises(InputError, match=line) as caught:
            CLIP(make_model(), Loss("infonce"), 2, vectors=file)
        assert "\n" not in str(caught.value), number


def test_vectors_may_be_an_array(tmp_path):
    rows = np.random.default_rng(0).normal(size=(24, 3))
    expected = CLIP(make_model(), Loss("infonce"), 24, vectors=saved(tmp_path, rows)).vectors
    for given in (rows, rows.astype(np.float64)):
        assert torch.equal(CLIP(make_model(), Loss("infonce"), 24, vectors=given).vectors, expected)
    for given, line in (
        (rows[:3], r"one row per graph: the array has 3, the data set 24\.$"),
        (rows[0], r"must be numbers \[n, d\], one row per graph, got \[3\] of float64\.$"),
        (np.full((24, 1), np.nan), "^row 0 of `vectors` has no number"),
        (rows.astype(str), r"got \[24, 3\] of <U"),
    ):
        with pytest.raises(InputError, match=line):
            CLIP(make_model(), Loss("infonce"), 24, vectors=given)


def test_vectors_of_all_lines_of_a_table_are_matched_with_the_graphs_that_were_read(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("rdkit")
    smiles = ["CCO", "C1CC", "CCN", "CCC", "CCCC"]
    every = np.random.default_rng(0).normal(size=(5, 3))
    every[1] = np.nan
    small = {"encoder": {"name": "molecule_gine", "hidden_channels": 4, "num_layers": 1}, "epochs": 1, "batch_size": 2}

    def embedded(vectors):
        fitted = GraphCL(method={"name": "clip", "vectors": vectors}, invalid="skip", **small)
        with pytest.warns(UserWarning, match="1 of 5 rows"):
            fitted.fit(pd.DataFrame({"smiles": smiles}))
        return fitted, fitted.transform(["CCO"])

    fitted, h = embedded(every)
    for vectors in (every[[0, 2, 3, 4]], saved(tmp_path, every)):
        np.testing.assert_array_equal(embedded(vectors)[1], h)
    fitted.save(tmp_path / "encoder.pt")
    np.testing.assert_array_equal(GraphCL.load(tmp_path / "encoder.pt").transform(["CCO"]), h)
    with pytest.raises(InputError, match=r"each of the 5 rows of the table, or of the 4 that were read, got 3\."):
        embedded(every[:3])


def test_a_run_warns_of_vectors_of_test_graphs(tmp_path):
    graphs, rows = small_graphs(), np.random.default_rng(0).normal(size=(36, 2))
    config = make_config({"method": {"name": "clip", "vectors": saved(tmp_path, rows)}})
    with pytest.warns(UserWarning, match="^training sees the `vectors` of graphs in the test folds too"):
        warn_of_vectors(make_task(config, load_dataset(graphs)))
    with pytest.raises(InputError, match="must be a file, to repeat it; write the array by"):
        warn_of_vectors(make_task(make_config({"method": {"name": "clip", "vectors": rows}}), load_dataset(graphs)))
