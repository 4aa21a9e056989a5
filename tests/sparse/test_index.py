"""The inverted index against dense products."""

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize("block", [1, 7, 64])
def test_search_equals_brute_force(block):
    h, queries = random_rows(50, 0), SparseRows.cat([random_rows(9, 0), random_rows(9, 1)])
    for k in (1, 5, 50):
        scores, rows = SparseIndex(h).search(queries, k, block)
        wanted, order = brute_force(h, queries, k)
        np.testing.assert_allclose(scores, wanted)
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


def test_errors(tmp_path):
    with pytest.raises(InputError, match=r"`k` must be in 1 \.\. 30, the number of rows, got 31."):
        SparseIndex(random_rows(30, 0)).search(random_rows(3, 0), 31)
    with pytest.raises(InputError, match="holds no index"):
        SparseIndex.load(tmp_path)
    SparseIndex(random_rows(3, 0)).save(tmp_path)
    (tmp_path / "000000-3" / "row.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"row\.npy cannot be read"):
        SparseIndex.load(tmp_path)
