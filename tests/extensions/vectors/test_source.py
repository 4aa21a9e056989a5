"""Test reading vectors: kinds of files and objects, ids, missing cells, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from graphcl import load_dataset
from graphcl.datasets.load import load_targets
from graphcl.extensions.vectors.source import VectorDataset
from tests.datasets.graphs import one_line

ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype("f4")
IDS = ["a", "b", "c", "d", "e"]


def test_files_and_objects_hold_the_same_vectors(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    np.save(tmp_path / "v.npy", ROWS)
    np.savez(tmp_path / "only.npz", vectors=ROWS, id=np.array(IDS))
    np.savez(tmp_path / "h.npz", h=ROWS, id=np.arange(5), other=np.eye(2))
    named = {"id": IDS, **{f"h{k}": column for k, column in enumerate(ROWS.T)}}
    parquet.write_table(pa.table(named | {"y": np.arange(5)}), tmp_path / "columns.parquet")
    parquet.write_table(pa.table({"id": IDS, "text": list(ROWS)}), tmp_path / "lists.parquet")
    named = ("only.npz", "columns.parquet", "lists.parquet")
    for source in ("v.npy", "h.npz", *named):
        found = load_dataset(tmp_path / source)
        assert isinstance(found, VectorDataset)
        assert found.ids.tolist() == (IDS if source in named else [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(found._data.x, ROWS)
        assert (found[1].num_nodes, found[1].num_edges) == (1, 0)
    several = (ROWS, torch.from_numpy(ROWS), csr_matrix(ROWS), {"h": ROWS, "id": IDS}, ROWS.astype("f8"))
    for source in (*several, ROWS.tolist(), list(ROWS)):
        np.testing.assert_array_equal(load_targets(source)._data.x, ROWS)
    assert load_targets({"h": ROWS, "id": IDS}).ids.tolist() == IDS
    assert repr(load_targets(ROWS)) == "VectorDataset('vectors', 5 vectors of 3 numbers)"


def test_a_square_matrix_is_a_graph_unless_targets_are_wanted():
    square = np.eye(4)
    assert (len(load_dataset(square)), len(load_targets(square))) == (1, 4)


def test_a_table_with_texts_is_not_one_of_vectors(tmp_path):
    pytest.importorskip("rdkit")
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"id": [3, 4], "smiles": ["CCO", "CC"], "y": [0.5, 1.5]}), tmp_path / "m.parquet")
    assert len(load_dataset(tmp_path / "m.parquet")[0].x[0]) == 9


def test_what_is_no_matrix_of_numbers_gets_one_line(tmp_path):
    (tmp_path / "text.npy").write_text("1, 2")
    np.savez(tmp_path / "two.npz", np.eye(2), np.eye(2))
    for source, line in (
        (tmp_path / "text.npy", "text.npy': This file contains pickled (object) data."),
        (tmp_path / "two.npz", "two.npz holds 2 matrices; name the one of the vectors `h`"),
        ({"h": np.zeros(5)}, "vectors must hold numbers [n, d], a row per vector, got [5] float64"),
        ({"h": np.array([["a"], ["b"]])}, "got [2, 1] <U1"),
        ({"h": np.array([[1.0], [np.inf]])}, "row 1 of vectors has infinity or a number above 3e38"),
        ({"h": np.array([[1e39], [1.0]])}, "row 0 of vectors has infinity or a number above 3e38"),
        ({"h": np.array([[1.0], [np.nan]])}, "row 1 of vectors has no number; leave it out, also of the pairs"),
        ({"h": ROWS, "id": IDS[:3]}, "vectors has 5 rows, but 3 ids"),
    ):
        one_line(lambda source=source: load_targets(source), line)
