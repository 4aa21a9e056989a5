"""The index against dense products, and files that are not as it writes them."""

import io
import os
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.extensions.sparse import index as module
from graphcl.extensions.sparse.index import SparseIndex, SparseRows


def random_rows(n, seed, columns=40, most=12):
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, most, n)
    sizes[:1] = 0
    ids = np.sort(draw.integers(-(2**63), 2**63 - 1, columns))
    column = [ids[np.sort(draw.choice(columns, size, replace=False))] for size in sizes]
    column = np.concatenate([*column, np.zeros(0, np.int64)])
    value = torch.from_numpy(draw.integers(-3, 4, len(column)).astype(np.float32))  # small integers, so many ties
    return SparseRows(torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])), torch.from_numpy(column), value)


def check(index, h, names, queries=None, ks=(1, 3)):
    """Compare a search with the dense product of the rows `h`, of ids `names`."""
    queries = random_rows(9, 0) if queries is None else queries
    assert index.ids.tolist() == list(names)
    both, _ = SparseRows.cat([h, queries]).scipy()
    products = (both[len(h) :] @ both[: len(h)].T).toarray()
    for k in (*ks, len(h)):
        order = np.argsort(-products, axis=1, kind="stable")[:, :k]
        scores, ids = index.search(queries, k)
        np.testing.assert_array_equal(scores, np.take_along_axis(products, order, 1))
        assert ids.tolist() == [[names[row] for row in rows] for rows in order]


def test_search_equals_the_dense_product():
    check(SparseIndex(random_rows(50, 0)), random_rows(50, 0), range(50))
    check(SparseIndex(random_rows(50, 0)), random_rows(50, 0), range(50), random_rows(0, 0))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 2**32)), max_size=9), st.booleans())
def test_any_additions_and_removals_leave_the_rows_that_one_expects(steps, texts):
    index, rows, names, used = SparseIndex(), random_rows(0, 0), [], 0
    for removal, size, seed in steps:
        draw = np.random.default_rng(seed)
        if removal:
            gone = {names[row] for row in draw.permutation(len(names))[:size]}
            index.remove(gone)
            left = [row for row, name in enumerate(names) if name not in gone]
            rows = SparseRows.cat([random_rows(0, 0), *(rows[row : row + 1] for row in left)])
            names = [names[row] for row in left]
        else:
            ids = [f"graph {used + row}" if texts else used + row for row in range(size)]
            more, used = random_rows(size, seed), used + size
            index.add(more, ids)
            rows, names = SparseRows.cat([rows, more]), names + ids
        assert len(index) == len(names)
    if names:
        check(index, rows, names, ks=(1,))


def test_ids_by_default_are_numbers_after_the_largest_one():
    index = SparseIndex(random_rows(3, 0), ids=[5, 9, 2])
    index.add(random_rows(2, 1))
    assert index.ids.tolist() == [5, 9, 2, 10, 11]


def test_an_index_is_saved_loaded_and_saved_again(tmp_path):
    parts, file = [random_rows(size, seed) for seed, size in enumerate((30, 20, 7))], tmp_path / "graphs.npz"
    names = [f"g{row}" for row in range(57)]
    index = SparseIndex(replace(parts[0], encoder="abc"), names[:30])
    index.save(file)
    for first, last, part in ((30, 50, parts[1]), (50, 57, parts[2])):
        index.add(part, names[first:last])
        index.save(file)
        index = SparseIndex.load(file)
    check(index, SparseRows.cat(parts), names)
    assert index.encoder == "abc"
    index.remove(names[:5])
    index.save(file)
    check(SparseIndex.load(file), SparseRows.cat(parts)[5:], names[5:])
    assert [path.name for path in tmp_path.iterdir()] == ["graphs.npz"]
    with np.load(file) as arrays:
        columns, wanted = arrays["column"], SparseRows.cat(parts)[5:].scipy()
    assert columns.tolist() == wanted[1].tolist()
    assert (scipy.sparse.load_npz(file).tocsr() != wanted[0]).nnz == 0


def test_an_empty_index_and_empty_additions_do_no_harm(tmp_path):
    index = SparseIndex(random_rows(0, 0))
    index.save(tmp_path / "i.npz")
    index = SparseIndex.load(tmp_path / "i.npz")
    assert len(index) == 0
    with pytest.raises(InputError, match=r"`k` must be in 1 \.\. 0, the number of rows, got 1"):
        index.search(random_rows(3, 0), 1)
    index.add(random_rows(5, 1))
    index.add(random_rows(0, 1), [])
    index.add(SparseRows(torch.zeros(3, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0)))
    check(index, SparseRows.cat([random_rows(5, 1), SparseRows.empty(2)]), range(7))
    index.save(tmp_path / "i.npz")


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "i.npz"
    index = SparseIndex(random_rows(5, 0))
    index.save(file)
    before = file.read_bytes()
    index.add(random_rows(5, 1))

    def killed(out, **arrays):
        out.write(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.np, "savez", killed)
        with pytest.raises(OSError, match="no space"):
            index.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["i.npz"]
    index.save(file)
    assert len(SparseIndex.load(file)) == 10


def test_the_file_of_another_index_is_never_replaced(tmp_path):
    file = tmp_path / "i.npz"
    index = SparseIndex(random_rows(5, 0))
    index.save(file)
    with pytest.raises(InputError, match="exists already and is never overwritten"):
        SparseIndex(random_rows(3, 0)).save(file)


def test_rows_of_two_encoders_are_not_compared(tmp_path):
    one, other, unknown = (replace(random_rows(5, 0), encoder=digest) for digest in ("a", "b", None))
    index = SparseIndex(unknown)
    index.add(one)
    index.add(unknown)
    index.save(tmp_path / "i.npz")
    for each in (index, SparseIndex.load(tmp_path / "i.npz")):
        for call in (each.add, each.search):
            with pytest.raises(InputError, match="these rows are of different encoders, of digests a and b"):
                call(other)
        assert len(each) == 15
        each.search(unknown, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.search(random_rows(3, 0), 31), r"`k` must be in 1 \.\. 30, the number of rows, got 31\."),
        (lambda index: index.search(random_rows(3, 0), 0), "`k` must be in"),
        (lambda index: index.add(np.eye(3)), "rows must be SparseRows, as of `GraphCL.sparse_rows`, got ndarray"),
        (lambda index: index.search(scipy.sparse.eye_array(3)), "rows must be SparseRows"),
        (lambda index: index.add(random_rows(2, 0), [1]), "`ids` must have one id for each of 2 rows, got 1"),
        (lambda index: index.add(random_rows(2, 0), [40, 40]), "id 40 occurs 2 times; give another id"),
        (
            lambda index: index.add(random_rows(2, 0), [40, 29]),
            "occurs 2 times; .* or remove the old row",
        ),
        (
            lambda index: index.add(random_rows(2, 0), [40, "a"]),
            r"all whole numbers or all strings, got 'a'",
        ),
        (
            lambda index: index.add(random_rows(2, 0), [40, 2.5]),
            r"all whole numbers or all strings, got 2\.5",
        ),
        (lambda index: index.add(random_rows(2, 0), ["a", "b"]), "all whole numbers or all strings, got .*0.* and 'a'"),
        (lambda index: index.remove([3, 99]), "id 99 is not in the index, so nothing was removed"),
        (lambda index: SparseIndex(random_rows(1, 0), ["a"]).add(random_rows(1, 0)), "are strings; give `ids`"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(call, message):
    index = SparseIndex(random_rows(30, 0))
    with pytest.raises(InputError, match=message):
        call(index)
    check(index, random_rows(30, 0), range(30))


def with_(position, value):
    """Return a function that changes an entry of an array."""

    def changed(array):
        array = array.copy()
        array[position] = value
        return array

    return changed


DAMAGED = {
    "row out of range": {"indices": with_(4, 1000)},
    "negative row": {"indices": with_(0, -1)},
    "fewer rows": {"indices": lambda a: a[:-1]},
    "descending bounds": {"indptr": with_(3, 0)},
    "bounds that wrap": {"indptr": lambda a: with_(slice(1, 3), [2**62 + 1, -(2**62)])(a.astype(np.int64))},
    "last bound": {"indptr": with_(-1, 10**6)},
    "fewer values": {"data": lambda a: a[:-1]},
    "descending columns": {"column": lambda a: a[::-1]},
    "fewer columns": {"column": lambda a: a[:-1]},
    "many rows": {"shape": with_(0, 2**40)},
    "a number as shape": {"shape": lambda a: np.array(3)},
    "format": {"format": lambda a: np.array(b"coo")},
    "fewer ids": {"id": lambda a: a[1:]},
}


@pytest.fixture
def stored(tmp_path):
    """Return the arrays of a saved index, and the path of a file to write."""
    SparseIndex(random_rows(30, 0)).save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as arrays:
        return dict(arrays), tmp_path / "changed.npz"


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_in_a_line(name, stored):
    arrays, file = stored
    np.savez(file, **{key: DAMAGED[name].get(key, lambda a: a)(values) for key, values in arrays.items()})
    with pytest.raises(InputError, match="holds no index of sparse rows, or is corrupted") as error:
        SparseIndex.load(file)
    assert "\n" not in str(error.value)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_files_of_other_kinds_are_refused_in_a_line(stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = (tmp_path / "whole.npz").read_bytes()
    cut, pipe, pickled, bomb = (tmp_path / name for name in ("cut", "pipe", "pickled", "bomb.npz"))
    os.mkfifo(pipe)
    cut.write_bytes(whole[: len(whole) // 2])
    pickled.write_bytes(pickle.dumps(Bomb()))
    np.savez(bomb, **{**stored[0], "data": np.array([Bomb()], object)})
    claimed, header = tmp_path / "claimed.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**13,)})
    np.savez(claimed, **{key: value for key, value in stored[0].items() if key != "data"})
    with zipfile.ZipFile(claimed, "a") as archive:
        archive.writestr("data.npy", header.getvalue())
    link = tmp_path / "loop"
    link.symlink_to(link)
    for path, message in [
        (cut, "cannot be read"),
        (pipe, "is a named pipe, a socket or a device; give a regular file"),
        (pickled, "cannot be read"),
        (bomb, "cannot be read: Object arrays cannot be loaded when allow_pickle=False"),
        (claimed, "cannot be read"),
        (link, "cannot be read"),
        (tmp_path / "gone.npz", "cannot be read"),
    ]:
        with pytest.raises(InputError, match=message) as error:
            SparseIndex.load(path)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_saving_writes_through_no_link_that_is_not_the_users(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "i.npz").symlink_to(other)
    with pytest.raises(InputError, match="exists already"):
        SparseIndex(random_rows(3, 0)).save(tmp_path / "i.npz")
    assert other.read_text() == "mine"
