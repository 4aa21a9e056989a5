"""`graphcl embed` in shards: equal to one process, on workers of Dask, and on workers that die; `embed_partition`."""

import json
import random
from collections import Counter
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from graphcl import embed_partition
from graphcl.commands import shards
from graphcl.commands.embed import main
from graphcl.datasets import write_on_disk
from graphcl.errors import InputError
from graphcl.system.processes import completed
from tests.commands.files import save_untrained
from tests.conftest import overriding, small_graphs

SIZES = ["--batch-size", "5", "--shard-size", "5"]  # of 36 graphs, the last batch of one is merged: 7 shards


@pytest.fixture
def inputs(tmp_path):
    """Return the first arguments of the command, and the embeddings, ids and labels by one process in one file."""
    graphs = small_graphs()
    for number, graph in enumerate(graphs):
        graph.id = 100 + number
    save_untrained(tmp_path / "encoder.pt", graphs)
    write_on_disk(graphs, tmp_path / "packed")
    given = [str(tmp_path / "encoder.pt"), "--dataset", str(tmp_path / "packed")]
    assert main([*given, "--out", str(tmp_path / "one.npz"), "--batch-size", "5"]) == 0
    with np.load(tmp_path / "one.npz") as arrays:
        return given, dict(arrays)


def read_npy(folder):
    files = [each["file"] for each in json.loads((folder / shards.MANIFEST).read_text())["shards"]]
    return {
        name: np.concatenate([np.load(folder / each / f"{name}.npy") for each in files]) for name in ("h", "id", "y")
    }


def same(found, expected):
    assert all(np.array_equal(found[name], each) for name, each in expected.items())


def test_shards_equal_one_file_and_only_missing_ones_are_made_again(inputs, tmp_path, capsys, monkeypatch):
    given, expected = inputs
    out = tmp_path / "new" / "npy"
    words = [*given, "--out", str(out), "--shards", "npy", *SIZES]
    assert main(words) == 0
    same(read_npy(out), expected)
    kept = {each: each.stat().st_mtime_ns for each in out.glob("part-*/h.npy")}
    assert len(kept) == 7
    (out / "part-00003" / "h.npy").unlink()
    (out / "part-00003").rename(out / ".part-00003.0a1b2c3d.partial")  # as a killed process leaves it
    assert main(words) == 0
    same(read_npy(out), expected)
    assert "7 shards, 6 of them from before" in capsys.readouterr().out
    changed = [each.parent.name for each, time in kept.items() if each.stat().st_mtime_ns != time]
    assert changed == ["part-00003"]
    assert not list(out.glob(".*"))
    assert main([*given, "--out", str(out), "--shards", "npy", "--batch-size", "4"]) == 2
    assert "holds shards of another batch_size" in capsys.readouterr().err
    (out / "notes.txt").touch()
    (out / shards.MANIFEST).write_text("[]")
    assert main(words) == 2
    assert "is not a manifest of shards" in capsys.readouterr().err
    assert main([*given, "--out", str(out), *SIZES, "--force"]) == 0
    assert not any(each.is_dir() for each in out.iterdir())
    assert sorted(each.name for each in out.iterdir() if "part-" not in each.name) == ["_manifest.json", "notes.txt"]
    assert main(overriding(words, "--workers", "2", "--out", str(tmp_path / "one.csv"))) == 2
    assert "give `out` no suffix" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert main([*given, "--out", str(tmp_path / "mine"), "--force"]) == 2
    assert "holds no shards" in capsys.readouterr().err


def test_a_partitioned_parquet_set(inputs, tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    given, expected = inputs
    assert main([*given, "--out", str(tmp_path / "set"), *SIZES]) == 0
    table = dataset.dataset(tmp_path / "set", format="parquet").to_table().to_pandas()
    same({"id": table["id"], "y": table["y"], "h": table.filter(regex="^h").to_numpy()}, expected)


def test_workers_of_dask(inputs, tmp_path):
    distributed = pytest.importorskip("distributed")
    given, expected = inputs
    with distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster:
        executor = ["--executor", f"dask:{cluster.scheduler_address}"]
        assert main([*given, "--out", str(tmp_path / "dask"), "--shards", "npy", *SIZES, *executor]) == 0
    same(read_npy(tmp_path / "dask"), expected)


def test_embed_partition_of_numbers_and_of_arrow_tables(inputs, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    given, expected = inputs
    encoder, dataset = given[0], given[2]
    table = embed_partition(range(10, 20), encoder, dataset=dataset, batch_size=5).to_pandas()
    same({"id": table["id"], "h": table.filter(regex="^h").to_numpy()}, {k: expected[k][10:20] for k in ("id", "h")})
    graphs = small_graphs()[:10]
    columns = {key: [graph[key].tolist() for graph in graphs] for key in ("x", "edge_index")}
    rows = pyarrow.table({"id": [f"graph {number}" for number in range(10)], **columns})
    for each in (rows, rows.to_pandas(), rows.to_batches()[0]):
        table = embed_partition(each, encoder, batch_size=5).to_pandas()
        assert table["id"].tolist() == rows["id"].to_pylist()
        assert np.array_equal(table.filter(regex="^h").to_numpy(), expected["h"][:10])
    for numbers in ([3, 5], [], ["a"], [35, 36], [-1, 0]):
        with pytest.raises(InputError, match="`rows` must be consecutive numbers of the 36 graphs"):
            embed_partition(numbers, encoder, dataset=dataset)
    for edges, message in (
        ([[0, 1], [1, 2], [2, 0]], r"`edge_index` of row 0 must be \[2, E\], as in PyG, got \[3, 2\]"),
        ([[0, 1], [1]], "row 0 is not a graph: "),
        (None, "`edge_index` of row 0 is missing"),
    ):
        with pytest.raises(InputError, match=message):
            embed_partition(pyarrow.table({"x": [columns["x"][0]], "edge_index": [edges]}), encoder)


def test_embed_partition_in_map_partitions_of_dask(inputs):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    given, expected = inputs
    numbers = frames.from_pandas(pandas.DataFrame({"graph": range(36)}), chunksize=10)
    meta = embed_partition(range(2), given[0], dataset=given[2]).to_pandas().iloc[:0]
    found = numbers.map_partitions(
        lambda part: embed_partition(part["graph"], given[0], dataset=given[2], batch_size=5).to_pandas(), meta=meta
    ).compute(scheduler="sync")
    same({"id": found["id"], "h": found.filter(regex="^h").to_numpy()}, {k: expected[k] for k in ("id", "h")})


def test_tasks_of_ten_dead_workers_are_run_again_until_one_has_lost_five():
    deaths = Counter(random.Random(0).choices(range(20), k=10))

    def work(number):
        if deaths[number]:
            deaths[number] -= 1
            raise BrokenExecutor("killed")
        return -number

    with ThreadPoolExecutor(2) as pool:
        assert sorted(completed(work, range(20), pool)) == [(number, -number) for number in range(20)]
        deaths[3] = 5
        with pytest.raises(InputError, match=r"^a task has lost 5 workers \(killed\); use fewer workers"):
            list(completed(work, range(20), pool))
