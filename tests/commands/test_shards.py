"""`graphcl embed` in shards: equal to one process, on workers of Dask, and on workers that die; `embed_partition`."""

import json
import random
from collections import Counter
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from graphcl import embed_partition
from graphcl.commands.embed import MANIFEST, main
from graphcl.datasets import write_on_disk
from graphcl.errors import InputError
from graphcl.system.files import claimed
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
    files = [each["file"] for each in json.loads((folder / MANIFEST).read_text())["shards"]]
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
    assert "`batch_size` was " in capsys.readouterr().err
    (out / "notes.txt").touch()
    (out / MANIFEST).write_text("[]")
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


def test_of_two_commands_that_write_one_output_the_second_is_refused_at_its_start(inputs, tmp_path, capsys):
    given, _ = inputs
    (tmp_path / "shards").mkdir()
    for out in ("h.npz", "shards"):
        with claimed(place := tmp_path / out):
            assert main([*given, "--out", str(place), "--force"]) == 2
        says = f"graphcl: another process writes {place}; wait for it, or give another path.\n"
        assert capsys.readouterr().err == says
        assert not place.is_file()
    with claimed(tmp_path / "again"), pytest.raises(InputError, match=r"^another process writes .*again; "):
        write_on_disk(iter([]), tmp_path / "again")


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
    for numbers in ([3, 5], [35, 36], [-1, 0]):
        with pytest.raises(InputError, match="`rows` must be consecutive numbers of the 36 graphs"):
            embed_partition(numbers, encoder, dataset=dataset)
    for edges, message in (
        ([[0, 1], [1, 2], [2, 0]], r"`edge_index` .*\[2, E\]"),
        ([[0, 1], [1]], "row 0 is not a graph: "),
    ):
        with pytest.raises(InputError, match=message):
            embed_partition(pyarrow.table({"x": [columns["x"][0]], "edge_index": [edges]}), encoder)


PARTITIONS = ["arrow", "batch", "pandas", "polars", "dict", "objects"]


def as_kind(kind, table):
    """Return a PyArrow table as another kind of partition; "objects" holds nested object arrays, as Ray makes them."""
    if kind == "arrow":
        return table
    if kind == "batch":
        return table.combine_chunks().to_batches()[0]
    if kind == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    frame = table.to_pandas()
    if kind == "pandas":
        return frame
    if kind == "dict":
        return {name: frame[name].to_numpy() for name in frame}
    return {name: np.array([*frame[name], None], object)[:-1] for name in frame}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_of_every_kind_have_one_schema_also_without_rows(inputs, kind):
    pyarrow = pytest.importorskip("pyarrow")
    (encoder, *_), expected = inputs
    graphs = small_graphs()[:10]
    columns = {key: [graph[key].tolist() for graph in graphs] for key in ("x", "edge_index")}
    columns |= {"id": [f"graph {number}" for number in range(10)], "y": [number % 3 for number in range(10)]}
    table = pyarrow.table(columns)
    found = embed_partition(as_kind(kind, table), encoder, batch_size=5)
    assert found["id"].to_pylist() == columns["id"]
    assert found["y"].to_pylist() == columns["y"]  # not the class numbers of a partition
    assert np.array_equal(found.drop_columns(["id", "y"]).to_pandas(), expected["h"][:10])
    if kind != "batch":
        empty = embed_partition(as_kind(kind, table.slice(0, 0)), encoder)
        assert len(empty) == 0
        # an empty array of objects has no type
        assert empty.schema.names == found.schema.names if kind == "objects" else empty.schema == found.schema
    columns["x"][3][0][0] = float("nan")
    broken = as_kind(kind, pyarrow.table(columns).slice(3, 1))
    bad = embed_partition(broken, encoder, invalid="skip")
    assert (len(bad), bad.schema) == (0, found.schema)


def test_partitions_of_numbers_and_of_data_without_rows(inputs):
    (encoder, _, dataset), _ = inputs
    found = embed_partition(range(3), encoder, dataset=dataset)
    for rows in ([], np.array([]), {"id": np.array([], int)}):
        empty = embed_partition(rows, encoder, dataset=dataset)
        assert (len(empty), empty.schema) == (0, found.schema)
    assert embed_partition({"id": np.arange(3)}, encoder, dataset=dataset).equals(found)
    assert embed_partition([], encoder).schema.names == ["id", *(f"h{i}" for i in range(12))]


NO_PARTITION = [
    (None, "`rows` must be a table, a frame, a dict of arrays or a list, got NoneType"),
    ("C", "`rows` must be a table, .*, got str"),
    ({"x": [[["a"]]], "edge_index": [[[0], [0]]]}, "row 0 is not a graph: "),
    (pd.Series(["CC"]), "`rows` must be a table, .*, got Series"),
    ({"a": []}, "the table has no columns 'smiles'; Columns: a"),
]


@pytest.mark.parametrize(("rows", "says"), NO_PARTITION)
def test_a_wrong_partition_is_one_line(inputs, rows, says):
    with pytest.raises(InputError, match=f"^{says}") as caught:
        embed_partition(rows, inputs[0][0])
    assert "\n" not in str(caught.value)


@pytest.mark.several
def test_the_default_batches_of_ray(inputs):
    ray = pytest.importorskip("ray")
    pyarrow = pytest.importorskip("pyarrow")
    (encoder, *_), expected = inputs
    columns = {key: [graph[key].tolist() for graph in small_graphs()] for key in ("x", "edge_index")}
    rows = ray.data.from_arrow(pyarrow.table({"id": [*range(36)], **columns}))
    found = rows.map_batches(embed_partition, fn_args=[encoder], batch_size=5).to_pandas().sort_values("id")
    assert np.allclose(found.filter(regex="^h"), expected["h"], atol=1e-6)


@pytest.mark.several
def test_partitions_of_spark(inputs):
    sql = pytest.importorskip("pyspark.sql")
    types = pytest.importorskip("pyspark.sql.pandas.types")
    (encoder, *_), expected = inputs
    rows = [(number, graph.x.tolist(), graph.edge_index.tolist()) for number, graph in enumerate(small_graphs())]
    names = "id long, x array<array<double>>, edge_index array<array<long>>"
    schema = types.from_arrow_schema(embed_partition({"id": np.zeros(0, int), "edge_index": []}, encoder).schema)

    def embedded(parts):
        for part in parts:
            yield from embed_partition(part, encoder, batch_size=5).to_batches()

    with sql.SparkSession.builder.master("local[1]").getOrCreate() as spark:
        found = spark.createDataFrame(rows, names).mapInArrow(embedded, schema).toPandas().sort_values("id")
    assert np.allclose(found.filter(regex="^h"), expected["h"], atol=1e-6)


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


def test_tasks_of_ten_dead_workers_are_run_again_until_one_has_lost_five(capsys):
    deaths = Counter(random.Random(0).choices(range(20), k=10))

    def work(number):
        if deaths[number]:
            deaths[number] -= 1
            raise BrokenExecutor("killed")
        return -number

    with ThreadPoolExecutor(2) as pool:
        assert sorted(completed(work, range(20), pool)) == [(number, -number) for number in range(20)]
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 10
        assert lines[0] == "graphcl: a worker process died; its task runs again, attempt 2 of 5."
        deaths[3] = 5
        with pytest.raises(InputError, match=r"^a task has lost 5 workers \(killed\); use fewer workers"):
            list(completed(work, range(20), pool))
