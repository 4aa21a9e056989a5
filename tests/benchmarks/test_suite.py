"""Check that the benchmark suite runs on tiny sets and that its numbers are plausible."""

import json
import sys
from pathlib import Path

import pytest
import torch

from graphcl.graphs import native

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import floor
import gpu
import stages
import suite
import timing
from pipelines import PIPELINES


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Restore the threads and the clock that the suite sets."""
    threads, clock = torch.get_num_threads(), timing.clock
    yield
    torch.set_num_threads(threads)
    timing.clock = clock


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    command = ["--quick", "--sets", "molpcba", "--threads", "1", "--cpu-time", "--linear", "--no-memory"]
    suite.main([*command, "--out", str(folder / "tiny")])
    return json.loads((folder / "tiny.json").read_text()), (folder / "tiny.md").read_text()


def test_tables_have_their_columns(found):
    _, text = found
    for columns in (suite.EPOCHS, suite.DATA, suite.ENCODER, suite.RATES, stages.COLUMNS):
        assert "| " + " | ".join(columns.values()) + " |" in text
    assert "| molpcba (generated) | 400 |" in text
    assert "| batch | 200 graphs | 400 graphs |" in text


def test_numbers_are_there(found):
    result, _ = found
    assert {"cpu", "cores", "ram_gb", "python", "torch", "pyg", "numpy", "commit", "date"} <= set(result["machine"])
    for row in result["sets"]:
        for name in PIPELINES:
            assert 0 < row[f"{name}_data"] < row[name]
            assert 0 < row[f"{name}_share"] < 100
        assert all(row[f"{name}_ratio"] > 0 and row[f"{name}_data_ratio"] > 0 for name in suite.OTHERS)
        assert 0 < row["floor_ms"] <= row["reachable_ms"]
        assert all(row[name] > 0 for name in (*suite.RATES, "shape", "over_floor", "over_reachable"))
        assert all(row["stages"][name] > 0 for name in stages.COLUMNS if name != "set")


def test_work_of_one_layer_counted_by_hand():
    flops, moved, kept = floor.work(nodes=10, edges=40, features=3, hidden_channels=4, num_layers=1)
    assert flops == 2 * (2 * 10 * 3 * 4) + 3 * (2 * 10 * 4 * 4) + 40 * 3
    assert moved == 4 * (40 * 3 + 2 * 10 * 3 + 2 * 10 * 4 + 40 + 4 * 10 * 4 + 10 * 3)
    assert kept == 4 * (10 * 3 + 2 * 10 * 4)


def test_flops_are_those_that_torch_counts(monkeypatch):
    """Use torch's operations, because compiled loops cannot be counted."""
    from ours import Ours
    from shapes import generate
    from torch.utils.flop_counter import FlopCounterMode
    from torch_geometric.data import Batch

    monkeypatch.setattr(native, "enabled", False)
    dataset = generate("proteins", 20)
    batch, model = Batch.from_data_list(list(dataset)), Ours(dataset).model
    with FlopCounterMode(display=False) as counter:
        model.encode(batch).sum().backward()
    products, _, _ = floor.work(batch.num_nodes, 0, dataset.num_features)
    assert counter.get_total_flops() == products


def test_gpu_dry_run(tmp_path):
    found = gpu.main(["--dry-run", "--sets", "proteins", "--batch-sizes", "32", "--out", str(tmp_path)])
    assert [row["amp"] for row in found["rows"]] == ["no", "yes"]
    assert all(row["graphs_per_s"] > 0 for row in found["rows"])
    assert "| " + " | ".join(gpu.DEVICE.values()) + " |" in (tmp_path / "dry-run.md").read_text()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu(tmp_path):
    found = gpu.main(["--sets", "proteins", "--batch-sizes", "128", "--out", str(tmp_path)])
    assert all(row["launches"] > 0 and 0 < row["busy"] <= 100 and row["peak_mb"] > 0 for row in found["rows"])


def test_processor_time_is_for_one_thread(capsys):
    with pytest.raises(SystemExit):
        suite.main(["--quick", "--cpu-time", "--threads", "2"])
    assert "--cpu-time needs --threads 1" in capsys.readouterr().err


def test_chosen_pipelines_and_their_memory(tmp_path):
    command = ["--quick", "--sets", "proteins", "--threads", "1", "--pipelines", "dense"]
    found = suite.main([*command, "--out", str(tmp_path / "tiny")])
    assert found["pipelines"] == ["ours", "dense"]
    text = (tmp_path / "tiny.md").read_text()
    assert "graphcl s | per graph, dense s | per graph, dense / graphcl |" in text
    if Path("/proc/self/status").exists():
        assert "graphcl MB | per graph, dense MB |" in text
        assert found["sets"][0]["ours_mb"] > 0


def test_unknown_pipeline(capsys):
    with pytest.raises(SystemExit):
        suite.main(["--quick", "--pipelines", "ours,dgl"])
    assert "unknown pipeline 'dgl'; choose from: ours, pyg, lists, dense" in capsys.readouterr().err


def test_unknown_set():
    with pytest.raises(SystemExit, match="unknown generated set 'cora'"):
        suite.main(["--quick", "--sets", "cora"])
