"""Test every encoder in a run: each type of `x`, and files that can be read again."""

import pytest
import torch
from torch_geometric.data import InMemoryDataset

from graphcl import InputError, load_encoder, run
from graphcl.config import make_config
from graphcl.experiment.encoder_input import load_arguments, load_with_pairs
from graphcl.experiment.trial import prepared
from graphcl.extensions.sparse.index import SparseRows
from graphcl.loaders.resident import ResidentLoader
from graphcl.registry import encoders
from graphcl.run import main
from graphcl.tasks.task import make_task
from graphcl.training.loop import embed
from tests.conftest import small_graphs
from tests.trials import try_settings

OF_GRAPHS = [name for name in encoders if name not in ("node_gcn", "molecule_gin")]  # which have columns of their own
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64"]


def saved(tmp_path, dtype):
    """Save 24 graphs with features and bonds of OGB's columns, in groups of two, and return the path."""
    graphs = small_graphs(24, molecules=True)
    for number, graph in enumerate(graphs):
        graph.x, graph.group = graph.x.clamp(max=1).to(dtype), torch.tensor([number // 2])
    InMemoryDataset.save(graphs, tmp_path / "own.pt")
    return str(tmp_path / "own.pt")


def settings(name, path):
    spec = {"hidden_channels": 8} if "hidden_channels" in encoders.arguments(name).defaults else {}
    sparse = {"positives": "group"} if name == "wl_sparse" else {"views": {"second": "node_drop"}}
    return make_config({"dataset": path, "encoder": {"name": name, **spec}, **sparse})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_x_is_encoded_or_refused_in_a_line(dtype, tmp_path):
    path = saved(tmp_path, getattr(torch, dtype))
    outcomes = {}
    for name in OF_GRAPHS:
        config = settings(name, path)
        try:
            dataset = load_with_pairs(**load_arguments(config))
            try_settings(config, dataset)
        except InputError as error:
            outcomes[name] = str(error)
            continue
        assert dataset[0].x.dtype in (torch.float32, torch.int64), name
        task = make_task(config, dataset)
        model = task.make_model()
        prepared(task, model)
        rows, _ = embed(model, ResidentLoader(dataset, 8))
        assert (rows.value if isinstance(rows, SparseRows) else rows).isfinite().all(), name
    whole = "int" in dtype or dtype == "bool"
    refused = OF_GRAPHS if dtype == "complex64" else [] if whole else ["molecule_gine"]
    assert [*outcomes] == refused, outcomes
    assert "\n" not in "".join(outcomes.values())


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_a_run_reads_its_encoder_back_and_starts_others(name, tmp_path):
    """The weights of `wl_sparse` are as many as the patterns of its graphs, so its width is known only with them."""
    path, widths = saved(tmp_path, torch.uint8), []
    sparse = ["--positives", "group"] if name == "wl_sparse" else ["--views.second", "node_drop"]
    words = ["--dataset", path, "--encoder", name, *sparse, "--epochs", "1", "--eval", "none", "--report", "false"]
    for run_, init in (("a", []), ("b", ["--init", str(tmp_path / "a")])):
        assert main([*words, "--seeds", "0", "--out", str(tmp_path / run_), *init]) == 0
        encoder, description = load_encoder(tmp_path / run_)
        assert encoder.out_channels == description.out_channels
        widths.append(description.out_channels)
    assert widths[0] == widths[1] > 1
    assert f"{widths[1]} columns" in (tmp_path / "b" / "card.md").read_text()


@pytest.mark.filterwarnings("ignore:the split by group has")  # expected
def test_whole_numbers_are_scored_as_categories(tmp_path):
    found = run(dataset=saved(tmp_path, torch.int8), encoder="wl_sparse", positives="group", eval=["retrieval"],
                epochs=1, seeds=[0], out=str(tmp_path / "run"))  # fmt: skip
    assert found.rows["trained"].mean > 0
