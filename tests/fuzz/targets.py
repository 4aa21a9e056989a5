"""What is done with the bytes of strangers: a function for each way in.

Each takes any bytes at all, and either returns or raises `InputError` with one line (of a configuration: a line for
each mistake). `run` holds them to it: nothing else is raised, nothing is written outside of a folder of its own, no
program is started, no connection opened. `tests/fuzz/test_targets.py` runs them by hypothesis and on the kept inputs in
`tests/fuzz/corpus/TARGET/`; `python benchmarks/fuzz.py TARGET` by atheris, which writes what it finds into that folder.
"""

import contextlib
import functools
import io
import os
import random
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset

from graphcl.augment import AttributeMask, EdgePerturb, NodeDrop
from graphcl.config.command_line import parse
from graphcl.config.files import read_config, read_yaml
from graphcl.config.settings import make_config
from graphcl.datasets import load_dataset, write_on_disk
from graphcl.datasets.resident import ResidentLoader
from graphcl.datasets.text import PARTS
from graphcl.errors import InputError
from graphcl.experiment.viz.run_files import read_run
from graphcl.models import saved
from graphcl.models.gin import GIN
from graphcl.registry import augmentations
from graphcl.sweep.plan import make_plan
from graphcl.system import files
from graphcl.training.checkpoint import read_checkpoint
from tests.conftest import small_graphs
from tests.fuzz.watch import watched
from tests.strategies import assert_true_batch

CORPUS = Path(__file__).parent / "corpus"
MANY_LINES = ("config", "command_line", "sweep")
"""Targets whose message has a line for each mistake."""
HONEST = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n6, 7\n7, 6\n",
    "graph_indicator": "1\n1\n1\n2\n2\n3\n3\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "node_labels": "0\n5\n0\n5\n5\n0\n0\n3\n",
    "edge_labels": "0\n1\n0\n1\n0\n0\n2\n2\n",
    "node_attributes": "0.5, 1\n" * 8,
    "edge_attributes": "0.5\n" * 8,
    "graph_attributes": "0.5\n1e3\n-2\n",
}
GIN(1, hidden=4, layers=1)  # PyG writes a module of its own for the first one, which is no concern of the watch


def run(target, content):
    """Give bytes to a target, in a new folder; returns the message where they were refused, else None."""
    with tempfile.TemporaryDirectory(prefix="graphcl-fuzz-") as place:
        silent, before = io.StringIO(), os.getcwd()
        inside = Path(place) / "inside"
        inside.mkdir()
        os.chdir(inside)
        message = None
        try:
            with (
                watched(inside),
                contextlib.redirect_stdout(silent),
                contextlib.redirect_stderr(silent),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                TARGETS[target](content, inside)
        except InputError as error:
            message = str(error)
        finally:
            os.chdir(before)
        assert os.listdir(place) == ["inside"]
    if message is not None:
        lines = message.split("\n")
        assert all(line.strip() and line.isprintable() and len(line) < 3000 for line in lines), message[:3000]
        assert len(lines) == 1 or target in MANY_LINES, message
    return message


# -- TU sets -----------------------------------------------------------------------------------------------------------


def tu_text(content, place):
    """The first byte names a part of the TU layout, the rest is its text; the other parts are honest."""
    part = list(PARTS)[(content[0] if content else 0) % len(PARTS)]
    folder = place / "own"
    folder.mkdir()
    for each, text in HONEST.items():
        # Beside labels there are no attributes, unless it is their turn.
        if each == part or "attributes" not in each:
            (folder / f"T_{each}.txt").write_bytes(content[1:] if each == part else text.encode())
    use(load_dataset(folder, place / "root"))


def tu_archive(content, place):
    """An archive T.zip."""
    (place / "mirror").mkdir()
    (place / "mirror" / "T.zip").write_bytes(content)
    use(load_dataset("T", place / "root", place / "mirror"))


# -- settings ----------------------------------------------------------------------------------------------------------


def config(content, place):
    """A YAML file of settings."""
    (place / "c.yaml").write_bytes(content)
    make_config(read_config(place / "c.yaml"))


def sweep(content, place):
    """A YAML file of a sweep."""
    (place / "s.yaml").write_bytes(content)
    make_plan(read_yaml(place / "s.yaml"))


def command_line(content, place):
    """Words, separated by line ends, as the system hands them over."""
    parse([os.fsdecode(word) for word in content.replace(b"\0", b"").split(b"\n") if word])


# -- PyTorch files -----------------------------------------------------------------------------------------------------


def encoder(content, place):
    """A file with an encoder: as a whole, or its pickle."""
    saved.load_encoder(_torch_file(content, place, _encoder()))


def plain(content, place):
    """A file of plain values, of whatever form."""
    files.read_plain(_torch_file(content, place, _values()), "save it again")


def checkpoint(content, place):
    """A checkpoint of a training."""
    read_checkpoint(_torch_file(content, place, _values()))


def own_set(content, place):
    """A file with graphs."""
    use(load_dataset(_torch_file(content, place, _graphs()), place / "root"))


def _torch_file(content, place, honest):
    """The bytes as a file; where they are no archive, they take the place of the pickle in an honest one."""
    path = place / "f.pt"
    if content[:2] == b"PK":
        path.write_bytes(content)
        return path
    with zipfile.ZipFile(path, "w") as archive:
        for name, record in honest.items():
            archive.writestr(name, content if name.endswith("data.pkl") else record)
    return path


def saved_parts(value):
    """The entries of the archive that `torch.save` makes of a value."""
    file = io.BytesIO()
    torch.save(value, file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@functools.cache
def _encoder():
    module = GIN(2, hidden=1, layers=1)
    about = saved.EncoderDescription(
        encoder=saved.EncoderName(name="gin", arguments={"hidden": 1, "layers": 1, "readout": "sum"}),
        in_channels=2, out_channels=1, edge_dim=None, dataset="T", features="labels", max_degree=64, label_columns=2,
        settings={"loss": {"name": "adnce", "mu": 0.7}, "epochs": 3},
    )  # fmt: skip
    file = io.BytesIO()
    saved.save_encoder(file, about, {0: module.state_dict()})
    file.seek(0)
    return saved_parts(torch.load(file, weights_only=True))


@functools.cache
def _values():
    kinds = (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool, torch.uint16, torch.complex64)
    tensors = {str(kind): torch.ones(2, 3).to(kind) for kind in kinds}
    return saved_parts({**tensors, "part": torch.nn.Parameter(torch.ones(4)[1:3]), "more": [1, 2.5, None, ("a", {3})]})


@functools.cache
def _graphs():
    return saved_parts(small_graphs(3, edge_attr=True))


# -- folders -----------------------------------------------------------------------------------------------------------


@functools.cache
def packed():
    """The files of a data set on disk."""
    with tempfile.TemporaryDirectory() as place:
        write_on_disk(small_graphs(4, edge_attr=True), f"{place}/graphs")
        return {file.name: file.read_bytes() for file in sorted(Path(place, "graphs").iterdir())}


def on_disk(content, place):
    """The first byte names a file of a data set on disk, the rest is its content; the others are honest."""
    folder = place / "graphs"
    folder.mkdir()
    honest = packed()
    replaced = list(honest)[(content[0] if content else 0) % len(honest)]
    for name, honest_content in honest.items():
        (folder / name).write_bytes(content[1:] if name == replaced else honest_content)
    use(load_dataset(folder, place / "root"))


RUN = ("config.yaml", "metrics.jsonl", "result.json", "embeddings.npz", "report.npz")


def run_folder(content, place):
    """The first byte names a file of a run's folder, the rest is its content."""
    (place / "config.yaml").write_text("loss: {name: infonce}\nviews: {}\n")
    (place / RUN[(content[0] if content else 0) % len(RUN)]).write_bytes(content[1:])
    read_run(place)


# -- graphs ------------------------------------------------------------------------------------------------------------


def use(dataset):
    """What is done with a data set: every graph is looked at, cut into batches, augmented and embedded."""
    total = len(dataset)
    assert total > 1
    if total > 1000 or dataset._data.x.numel() > 10**6:
        return
    for batch in ResidentLoader(dataset, 4):
        check_batch(NodeDrop(0.3)(batch, torch.Generator().manual_seed(0)))
        if batch.x.is_floating_point():
            h = GIN(batch.x.size(1), hidden=4, layers=1)(batch.x.float(), batch.edge_index, batch=batch.batch)
            assert h.size(0) == batch.num_graphs


def check_batch(batch):
    """Indices within their graph, no empty graph."""
    sizes = batch.ptr.diff()
    assert bool((sizes >= 1).all())
    assert torch.equal(batch.batch, torch.arange(batch.num_graphs).repeat_interleave(sizes))
    source, target = batch.edge_index
    if source.numel():
        assert int(batch.edge_index.min()) >= 0
        assert int(batch.edge_index.max()) < batch.x.size(0)
        assert torch.equal(batch.batch[source], batch.batch[target])


def graphs_of(content):
    """Two to five graphs made of bytes: sizes, edges, loops, repetitions, directed and undirected, features."""
    draw = random.Random(content[:4]) if len(content) < 8 else None
    numbers = iter(content)

    def number(below):
        return (draw.randrange(256) if draw else next(numbers, 0)) % below

    graphs = []
    for i in range(2 + number(4)):
        nodes = 1 + number(9)
        pairs = [(number(nodes), number(nodes)) for _ in range(number(12))]
        if number(2):
            pairs += [(b, a) for a, b in pairs]
        if number(2):
            pairs = sorted(set(pairs))
        graph = Data(edge_index=torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous())
        graph.x = torch.tensor([[number(7) - 3.0, float(n)] for n in range(nodes)]) * 10.0 ** (number(9) - 4)
        graph.node_id, graph.y = 100 * i + torch.arange(nodes), torch.tensor([i])
        graph.edge_attr = torch.arange(len(pairs)).float()
        graphs.append(graph)
    return graphs


def augment(content, place):
    """Every registered augmentation, with a ratio from the bytes, on graphs made of them."""
    batch = Batch.from_data_list(graphs_of(content[2:]))
    ratio = (content[0] if content else 0) % 100 / 100
    for name in augmentations:
        target = augmentations[name]
        needed = set(augmentations.arguments(name).required) - {"self"}
        given = {"members": [NodeDrop(ratio), EdgePerturb(ratio), AttributeMask(ratio)]} if needed else {}
        if "ratio" in augmentations.arguments(name).defaults:
            given["ratio"] = ratio
        view = target(**given)(batch, torch.Generator().manual_seed(len(content)))
        check_batch(view)
        assert bool(view.x.isfinite().all())
        assert view.num_graphs == batch.num_graphs
        assert torch.equal(view.y, batch.y)
        # A node that is there was there, once; one that was dropped has left no edge behind.
        assert view.node_id.unique().numel() == view.node_id.numel() == view.x.size(0)
        assert set(view.node_id.tolist()) <= set(batch.node_id.tolist())
        assert view.edge_attr.numel() == view.edge_index.size(1)
        assert_true_batch(view)


TARGETS = {
    "tu_text": tu_text,
    "tu_archive": tu_archive,
    "config": config,
    "sweep": sweep,
    "command_line": command_line,
    "encoder": encoder,
    "plain": plain,
    "checkpoint": checkpoint,
    "own_set": own_set,
    "on_disk": on_disk,
    "run_folder": run_folder,
    "augment": augment,
}


# -- honest inputs -----------------------------------------------------------------------------------------------------


def seeds(target):
    """Honest inputs of a target, from which hostile ones are made by changing them."""
    return _SEEDS[target]() if target in _SEEDS else [bytes(range(64)), b"\x32" + bytes(255 - n for n in range(200))]


def _archives():
    for packing in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", packing) as archive:
            for part, text in HONEST.items():
                archive.writestr(f"T/T_{part}.txt", text)
        yield file.getvalue()


def _pickled(parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, record in parts.items():
            archive.writestr(name, record)
    return [next(record for name, record in parts.items() if name.endswith("data.pkl")), file.getvalue()]


def _one_graph_set():
    file = io.BytesIO()
    graphs = small_graphs(3)
    torch.save((*InMemoryDataset.collate(graphs), Data), file)
    return file.getvalue()


def _runs():
    arrays = io.BytesIO()
    np.savez_compressed(arrays, h=np.ones((1, 3, 2), np.float32), seeds=[0], y=np.arange(3))
    contents = {
        0: b"dataset: MUTAG\nloss: {name: adnce, mu: 0.7}\nviews: {first: &a {name: random4}, second: *a}\n",
        1: b'{"seed": 0, "epoch": 1, "loss": 2.5, "alignment": 0.1}\n{"seed": 0, "epoch": 2, "loss": NaN}\n',
        2: b'{"scores": {"svm": {"gain": {"mean": 1.0, "seeds": [0]}}}, "seconds": {"train": 1.5}, "commit": null}',
        3: arrays.getvalue(),
    }
    return [bytes([number]) + content for number, content in contents.items()]


_SEEDS = {
    "tu_text": lambda: [bytes([i]) + HONEST[part].encode() for i, part in enumerate(PARTS)],
    "tu_archive": lambda: list(_archives()),
    "config": lambda: [
        b"dataset: MUTAG\nlr: 1e-3\nseeds: [0, 1]\nloss: {name: adnce, mu: 0.7}\n",
        b"views:\n  first: &v {name: compose, members: [node_drop, {name: subgraph, ratio: 0.3}]}\n  second: *v\n",
        b"encoder: {name: gin, hidden: 8}\nmethod: moco\neval: svm, knn\nevaluation: {folds: 3}\nclip_norm: null\n",
        b'{"config": {"dataset": "synthetic", "epochs": 2, "amp": true}, "scores": {}}',
    ],
    "sweep": lambda: [
        b"axes:\n  loss: [infonce, {name: adnce, mu: 0.5}]\n  dataset: [MUTAG, NCI1]\nsettings: {seeds: [0, 1]}\n",
        b"axes: {width: {small: {encoder.hidden: 8}, large: {encoder.hidden: 64}}}\ntable: {baseline: small}\n",
    ],
    "command_line": lambda: [
        b"--dataset\nMUTAG\n--loss\nadnce\n--loss.mu=0.5\n--seeds\n0\n1",
        b"--views.first\n{name: compose, members: [node_drop]}\n--eval\nsvm,knn\n--lr\n1e-3\n--steps\nnull",
    ],
    "encoder": lambda: _pickled(_encoder()),
    "plain": lambda: _pickled(_values()),
    "checkpoint": lambda: _pickled(saved_parts({"format": "graphcl training", "version": 1, "epoch": [1, {"a": 2.0}]})),
    "own_set": lambda: [*_pickled(_graphs()), _one_graph_set()],
    "on_disk": lambda: [bytes([i]) + content for i, content in enumerate(packed().values())],
    "run_folder": _runs,
}
