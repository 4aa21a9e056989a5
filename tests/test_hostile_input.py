"""Test damaged variants of each kind of input file: each is read or raises a one-line InputError, with little memory.

Known malicious files are tested with the module that reads them.
"""

import gzip
import io

import numpy as np
import pytest
import torch

from graphcl.config import make_config, read_config
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.errors import InputError
from graphcl.loaders.resident import ResidentLoader
from graphcl.models.saved import load_encoder
from graphcl.report.run_report import read_run
from tests.conftest import small_graphs
from tests.datasets.conftest import files_of, write_folder, write_zip
from tests.datasets.ogb_files import files_of as files_of_ogb
from tests.datasets.ogb_files import make_molecules, write_archive
from tests.extensions.nodes.test_named import write_planetoid
from tests.memory import peak

CONFIG = (
    b"dataset: MUTAG\nlr: 1e-3\nseeds: [0, 1]\nloss: {name: adnce, mu: 0.7}\nviews: {first: &v subgraph, second: *v}"
)
TOKENS = [b"\0", b"\xff", b"-1", b"9" * 30, b"1e999", b"nan", b"\r\n", b"[" * 2000, b"*a", b"<<: ", b"R", b"\x85"]


def file_bytes(save, *contents, **arrays):
    file = io.BytesIO()
    save(*contents, file) if contents else save(file, **arrays)
    return file.getvalue()


def use(dataset):
    assert sum(batch.num_graphs for batch in ResidentLoader(dataset, 4)) == len(dataset)
    assert all(graph.validate() for graph in dataset)


def read_part(path, root):
    write_folder(path.parent, **{path.stem.removeprefix("TINY_"): path.read_bytes()})
    use(load_dataset(path.parent, root))


def read_planetoid(path, root):
    part, content = path.name.removeprefix("ind.citeseer."), path.read_bytes()
    write_planetoid(path.parent, **{part: content})
    use(load_dataset("CiteSeer", root, path.parent, nodes=True))


def read_packed(path, root):
    folder = write_on_disk(GRAPHS, root / "packed").folder
    (folder / path.name).write_bytes(path.read_bytes())
    use(load_dataset(folder, root))


def read_ogb(path, root):
    pytest.importorskip("ogb", reason="ogb is not installed")
    archive = write_archive(root / "mirror", {**OGB, f"raw/{path.name}.gz": gzip.compress(path.read_bytes())})
    use(load_dataset("ogbg-molhiv", root, archive))


def read_folder(path, root):
    if path.name != "config.yaml":
        (path.parent / "config.yaml").write_text("loss: {name: infonce}\nviews: {}\n")
    read_run(path.parent)


GRAPHS, OGB = small_graphs(4, edge_attr=True), files_of_ogb(make_molecules(10))
ARRAYS = {"h": np.ones((1, 3, 2), np.float32), "seeds": [0], "y": np.arange(3)}
METRICS = b'{"seed": 0, "epoch": 1, "loss": 2.5, "alignment": 0.1}\n{"seed": 0, "epoch": 2, "loss": NaN}\n'
RESULT = b'{"scores": {"svm": {"gain": {"mean": 1.0, "seeds": [0]}}}, "seconds": {"train": 1.5}, "commit": null}'


def part_of_planetoid(part):
    name = f"ind.citeseer.{part}"
    return name, lambda folder: (write_planetoid(folder)[0] / name).read_bytes(), read_planetoid


def part_of_packed(name):
    return name, lambda folder: (write_on_disk(GRAPHS, folder).folder / name).read_bytes(), read_packed


KINDS = {
    "archive": (
        "TINY.zip",
        lambda folder: (write_zip(folder) / "TINY.zip").read_bytes(),
        lambda path, root: use(load_dataset("TINY", root, path.parent)),
    ),
    "edges": ("TINY_A.txt", lambda folder: files_of()["TINY_A.txt"].encode(), read_part),
    "ogb-edges": ("edge.csv", lambda folder: gzip.decompress(OGB["raw/edge.csv.gz"]), read_ogb),
    **{f"planetoid-{part}": part_of_planetoid(part) for part in ("allx", "graph")},
    **{f"packed-{name}": part_of_packed(name) for name in ("graphcl.json", "x.npy")},
    "graphs": ("f.pt", lambda folder: file_bytes(torch.save, GRAPHS), lambda path, root: use(load_dataset(path, root))),
    "encoder": ("f.pt", lambda folder: file_bytes(torch.save, GRAPHS), lambda path, root: load_encoder(path)),
    "settings": ("c.yaml", lambda folder: CONFIG, lambda path, root: make_config(read_config(path))),
    "run-settings": ("config.yaml", lambda folder: CONFIG, read_folder),
    "metrics": ("metrics.jsonl", lambda folder: METRICS, read_folder),
    "result": ("result.json", lambda folder: RESULT, read_folder),
    "embeddings": ("embeddings.npz", lambda folder: file_bytes(np.savez_compressed, **ARRAYS), read_folder),
}


def variants(honest):
    """Yield the bytes `honest`, truncated copies, copies with an inserted token, and copies with a changed byte."""
    yield honest
    places = [len(honest) * part // 5 for part in range(5)]
    yield from (honest[:place] for place in places[1:4])
    for number, token in enumerate(TOKENS):
        place = places[number % 5]
        yield honest[:place] + token + honest[place + number % 3 :]
    for number in range(4):
        place = number * 997 % len(honest)
        yield honest[:place] + bytes([honest[place] ^ (1, 128, 255)[number % 3]]) + honest[place + 1 :]


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_or_refused(kind, tmp_path):
    name, make, read = KINDS[kind]
    honest = make(tmp_path / "source")
    with peak() as grown:
        for number, content in enumerate(variants(honest)):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / name).write_bytes(content)
            try:
                read(folder / name, folder / "root")
            except InputError as error:
                if not number and kind != "encoder":  # the honest file
                    raise
                lines = str(error).split("\n")
                assert all(line.strip() and line.isprintable() and len(line) < 3000 for line in lines)
                assert len(lines) == 1 or kind in ("settings", "run-settings")  # one line per problem
    assert grown[0] < 128 * 2**20
