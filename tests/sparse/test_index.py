"""The inverted index against dense products."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from graphcl.errors import InputError
from graphcl.sparse.index import SparseIndex
from graphcl.sparse.rows import SparseRows


def random_rows(n, seed, columns=40, most=12):
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, most, n)
    sizes[0] = 0
    ids = np.sort(draw.integers(-(2**63), 2**63 - 1, columns))
    column = np.concatenate([ids[np.sort(draw.choice(columns, size, replace=False))] for size in sizes])
    value = torch.from_numpy(draw.integers(1, 4, len(column)).astype(np.float32))  # small integers, so many ties
    return SparseRows(torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])), torch.from_numpy(column), value)


def brute_force(h, queries, k):
    both, _ = SparseRows.cat([h, queries]).scipy()
    scores = (both[len(h) :] @ both[: len(h)].T).toarray()
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


def test_search_equals_brute_force():
    h, queries = random_rows(50, 0), SparseRows.cat([random_rows(9, 0), random_rows(9, 1)])
    for k in (1, 5, 50):
        scores, rows = SparseIndex(h).search(queries, k)
        wanted, order = brute_force(h, queries, k)
        np.testing.assert_allclose(scores, wanted)
        np.testing.assert_array_equal(rows, order)


def test_columns_are_skipped_without_changing_results(monkeypatch):
    """Frequent columns of small weight are looked up for few rows only; scores are those of all columns."""
    draw, n = np.random.default_rng(0), 400
    rare, frequent = draw.integers(0, 100, (n, 3)), 100 + np.argsort(draw.random((n, 30)), axis=1)[:, :20]
    column = torch.from_numpy(np.hstack([np.sort(rare + 200 * np.arange(3), axis=1), frequent + 600]))
    value = torch.from_numpy(np.hstack([draw.random((n, 3)) + 1, draw.random((n, 20)) / 50]))
    h = SparseRows(torch.arange(n + 1) * 23, column.flatten(), value.flatten())
    index, read = SparseIndex(h[:200]), []
    index.add(h[200:])
    product = csr_array.__getitem__
    with monkeypatch.context() as patch:
        patch.setattr(csr_array, "__getitem__", lambda self, key: read.append(len(key)) or product(self, key))
        scores, rows = index.search(h, 5)
    assert 0 < sum(read) < 0.5 * n * 2 * 23
    wanted, order = brute_force(h, h, 5)
    np.testing.assert_allclose(scores, wanted, rtol=1e-12)
    np.testing.assert_array_equal(rows, order)


def test_added_rows_are_found_and_saved(tmp_path):
    h, more, queries = random_rows(30, 0), random_rows(20, 0), random_rows(9, 0)
    index = SparseIndex(h)
    index.add(more)
    index.save(tmp_path / "index")
    loaded = SparseIndex.load(tmp_path / "index")
    assert len(loaded) == 50
    for each in (index, loaded):
        scores, rows = each.search(queries, 10)
        wanted, order = brute_force(SparseRows.cat([h, more]), queries, 10)
        np.testing.assert_allclose(scores, wanted)
        np.testing.assert_array_equal(rows, order)
    assert all(isinstance(part.value, np.memmap) for part in loaded._segments)


def test_additions_to_a_saved_index_leave_its_files_as_they_are(tmp_path):
    parts = [random_rows(size, seed) for seed, size in enumerate((30, 20))]
    SparseIndex(parts[0]).save(tmp_path / "index")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "index").rglob("*.npy")}
    index = SparseIndex.load(tmp_path / "index")
    index.add(parts[1])
    index.save(tmp_path / "index")
    assert {file: file.stat().st_mtime_ns for file in before} == before
    queries = random_rows(9, 0)
    scores, _ = SparseIndex.load(tmp_path / "index").search(queries, 10)
    np.testing.assert_allclose(scores, brute_force(SparseRows.cat(parts), queries, 10)[0])
    with pytest.raises(InputError, match="holds another index; pass a new folder"):
        SparseIndex(parts[1]).save(tmp_path / "index")


def test_an_index_is_saved_again_after_more_rows(tmp_path):
    parts = [random_rows(size, seed) for seed, size in enumerate((30, 20))]
    index = SparseIndex()
    for part in parts:
        index.add(part)
        index.save(tmp_path / "index")
    queries = random_rows(9, 0)
    scores, _ = SparseIndex.load(tmp_path / "index").search(queries, 10)
    np.testing.assert_allclose(scores, brute_force(SparseRows.cat(parts), queries, 10)[0])


def test_errors(tmp_path):
    with pytest.raises(InputError, match=r"`k` must be in 1 \.\. 30, the number of rows, got 31."):
        SparseIndex(random_rows(30, 0)).search(random_rows(3, 0), 31)
    with pytest.raises(InputError, match="holds no index"):
        SparseIndex.load(tmp_path)
    SparseIndex(random_rows(3, 0)).save(tmp_path)
    (tmp_path / "000000-3" / "row.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"row\.npy cannot be read"):
        SparseIndex.load(tmp_path)
