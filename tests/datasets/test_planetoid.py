"""Test the reader of Planetoid's files: order of the test nodes, missing nodes, and pickles with code."""

import os
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from graphcl.datasets import load_dataset, planetoid
from graphcl.errors import InputError

LABELS = np.array([0, 1, 1, 0, 1, 0, 0])
"""Classes of the seven nodes; node 5 has no row."""


def write(folder, name="cora", **changes):
    """Write a set of four training and three test nodes, 4, 6 and, without a row, 5; return the folder."""
    x = np.arange(14, dtype=np.float32).reshape(7, 2) + 1
    y = np.eye(2, dtype=np.int32)[LABELS]
    order = [6, 4]
    graph = defaultdict(list, {node: [(node + 1) % 7, node, (node + 1) % 7] for node in range(7)})
    files = {
        "x": csr_matrix(x[:2]), "y": y[:2], "allx": csr_matrix(x[:4]), "ally": y[:4],
        "tx": csr_matrix(x[order]), "ty": y[order], "graph": graph,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    for part, value in {**files, **changes}.items():
        content = value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
        (folder / f"ind.{name}.{part}").write_bytes(content)
    (folder / f"ind.{name}.test.index").write_text("6\n4\n")
    return folder


def load(folder, tmp_path):
    return load_dataset("Cora", tmp_path / "data", folder, nodes=True)


@pytest.fixture
def mirror(tmp_path):
    return tmp_path / "mirror"


def test_a_small_set(mirror, tmp_path, monkeypatch):
    monkeypatch.setattr(planetoid, "VALIDATION", 2)
    dataset = load(write(mirror), tmp_path)
    graph = dataset[0]
    rows = torch.arange(14).reshape(7, 2) + 1.0
    rows[5] = 0
    torch.testing.assert_close(graph.x, rows / rows.sum(1, keepdim=True).clamp(min=1))
    assert graph.y.tolist() == LABELS.tolist()
    assert graph.is_undirected()
    assert not graph.has_self_loops()
    assert graph.num_edges == 14
    assert {part: nodes.tolist() for part, nodes in dataset.split.items()} == {
        "train": [0, 1], "valid": [2, 3], "test": [4, 6],
    }  # fmt: skip
    assert not (tmp_path / "data").exists()


def test_the_files_in_the_cache_come_first(tmp_path):
    folder = tmp_path / "data" / "Cora" / "raw"
    folder.parent.mkdir(parents=True)
    write(folder)
    assert len(load(tmp_path / "nowhere", tmp_path).y) == 7


class Code:
    """Pickled as a call of `os.mkdir`."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_is_never_run(mirror, tmp_path):
    pwned = tmp_path / "pwned"
    write(mirror, graph=Code(str(pwned)))
    with pytest.raises(InputError, match=r"ind\.cora\.graph: it needs \w+\.mkdir, which") as caught:
        load(mirror, tmp_path)
    assert "\n" not in str(caught.value)
    assert not pwned.exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "numpy load", "scipy.sparse.csr _load", "os system", "numpy.core.multiarray scalar"]
)
def test_only_the_needed_names_are_known(name, mirror, tmp_path):
    write(mirror, graph=b"c" + name.replace(" ", "\n").encode() + b"\n.")
    with pytest.raises(InputError, match="it needs"):
        load(mirror, tmp_path)


@pytest.mark.parametrize("part", ["x", "allx", "ty", "graph"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x80\x02]q\x00."])
def test_damaged_files_get_one_line(part, damage, mirror, tmp_path):
    with pytest.raises(InputError) as caught:
        load(write(mirror, **{part: damage}), tmp_path)
    assert "\n" not in str(caught.value)
    assert str(mirror) in str(caught.value)


def test_a_column_out_of_range(mirror, tmp_path):
    matrix = csr_matrix(np.eye(2, dtype=np.float32))
    matrix.indices[0] = 9
    with pytest.raises(InputError, match="do not fit together"):
        load(write(mirror, tx=matrix), tmp_path)


def test_a_missing_file(mirror, tmp_path):
    write(mirror)
    (mirror / "ind.cora.ty").unlink()
    with pytest.raises(InputError, match=r"has no ind\.cora\.ty; Cora needs ind\.cora\.x, .* \(public source: https"):
        load(mirror, tmp_path)
