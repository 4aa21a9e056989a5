"""Fixtures that write TINY, a TU set of three graphs: a path of 3 nodes; an edge; an edge and an isolated node."""

import zipfile

import pytest

from graphcl.datasets import load_dataset
from tests.datasets.graphs import one_line

TINY = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n6, 7\n7, 6\n",
    "graph_indicator": "1\n1\n1\n2\n2\n3\n3\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "node_labels": "0\n5\n0\n5\n5\n0\n0\n3\n",
}


def files_of(name="TINY", **changes):
    """Return a dict from file name to text of TINY; `part=text` replaces one file, `part=None` removes one file."""
    parts = {**TINY, **changes}
    return {f"{name}_{part}.txt": text for part, text in parts.items() if text is not None}


def write_folder(folder, name="TINY", **changes):
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files_of(name, **changes).items():
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def write_zip(folder, name="TINY", extra=(), **changes):
    """Write NAME.zip into `folder` as on the public server, with `extra` pairs (entry, content); return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in files_of(name, **changes).items():
            archive.writestr(f"{name}/{file}", text)
        for entry, content in extra:
            archive.writestr(entry, content)
    return folder


@pytest.fixture
def mirror(tmp_path):
    return write_zip(tmp_path / "mirror", extra=[("TINY/README.txt", "about"), ("TINY/README.txt~", "older")])


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def refused(root):
    """Return a function that asserts that `load_dataset` raises a line that contains `words`, and leaves no files."""

    def refuse(source, *words, mirror=None):
        before = {path for path in root.rglob("*") if path.is_file()}
        message = one_line(lambda: load_dataset(source, root, mirror), *words)
        assert not [path for path in {*root.rglob("*")} - before if path.is_file() and path.suffix != ".lock"]
        return message

    return refuse
