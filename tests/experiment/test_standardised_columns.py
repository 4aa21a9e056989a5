"""Test that every door to an encoder standardises the columns by the scales of its training."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, InMemoryDataset

from graphcl import GraphCL, embed, load_encoder, make_loader
from graphcl.__main__ import main
from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.experiment.encoder_input import load_for
from graphcl.graphs.columns import column_scale
from graphcl.tasks.task import make_task
from tests.conftest import small_graphs

LINE = "--epochs 1 --eval knn --report false --encoder gine --encoder.hidden_channels 8"


def uneven():
    generator = torch.Generator().manual_seed(1)
    graphs = small_graphs(edge_attr=True)
    for graph in graphs:
        graph.x = torch.cat([graph.x, 1e4 + 1e3 * torch.rand(graph.num_nodes, 1, generator=generator)], dim=1)
        graph.edge_attr = torch.rand(graph.num_edges, 2, generator=generator) * torch.tensor([1.0, 1e-3])
    return graphs


def test_the_embeddings_of_a_run_are_those_of_its_encoder(tmp_path, capfd):
    graphs, file, run = uneven(), str(tmp_path / "own.pt"), tmp_path / "run"
    InMemoryDataset.save(graphs, file)
    words = ["run", "--dataset", file, "--seeds", "0", *LINE.split(), "--out"]
    assert main([*words, str(tmp_path / "raw")]) == 0
    says = [line for line in capfd.readouterr().err.splitlines() if "pass --standardise-columns true" in line]
    assert [line.split(":")[2] for line in says] == [" `x` of own", " `edge_attr` of own"]
    assert main([*words, str(run), "--standardise-columns", "true"]) == 0
    assert "--standardise-columns" not in capfd.readouterr().err
    expected = np.load(run / "embeddings.npz")["h"][0]
    assert not np.allclose(expected, np.load(tmp_path / "raw" / "embeddings.npz")["h"][0], rtol=0.1)

    # with the scales of `init` no advice is given, as it would change nothing
    again = [*words, str(tmp_path / "again"), "--init", str(run)]
    assert main(again) == 0
    assert "--standardise-columns" not in capfd.readouterr().err
    with pytest.warns(UserWarning, match="; an encoder learns little .*: pass `standardise_columns` true"):
        GraphCL(encoder="gine", epochs=1).fit(graphs)

    assert main(["embed", str(run), "--dataset", file, "--out", str(tmp_path / "h.npz")]) == 0
    encoder, description = load_encoder(run)
    assert description.scales.keys() == {"x", "edge_attr"}
    assert description.scales["x"][1][:3] == [1, 1, 1]  # labels
    assert main(["export", str(run), "--format", "pt2"]) == 0
    batch, dataset = Batch.from_data_list(graphs), load_dataset(graphs)
    inputs = {key: batch[key] for key in ("x", "edge_index", "batch", "edge_attr")}
    own = {"encoder": {"name": "gine", "hidden_channels": 8}, "epochs": 1, "standardise_columns": True}
    fitted = GraphCL(**own).fit(graphs)
    fitted.save(tmp_path / "fitted.pt")
    standardised = load_dataset(graphs).standardised()
    by_hand, twice = (GraphCL(**own | {"standardise_columns": each}).fit(standardised) for each in (False, True))
    found = {
        "embed": np.load(tmp_path / "h.npz")["h"],
        "load_encoder": embed(encoder, make_loader(dataset, 36))[0],
        "nodes": encoder.with_nodes(**inputs)[0].detach(),
        "export": torch.export.load(run / "encoder.pt2").module()(**inputs).detach(),
        "load": GraphCL.load(run).transform(graphs),
        "fit": fitted.transform(graphs),
        "by hand": by_hand.transform(standardised),
        "twice": twice.transform(graphs),
        "new graphs by hand": by_hand.transform(graphs),
        "save": GraphCL.load(tmp_path / "fitted.pt").transform(graphs),
        "transfer": embed(load_encoder(run)[0].encoder, make_loader(load_for(description, graphs), 36))[0],
    }
    for door, h in found.items():
        np.testing.assert_allclose(h, expected, rtol=1e-3, atol=1e-3, err_msg=door)


def test_labels_have_no_scale():
    with pytest.warns(UserWarning, match="`standardise_columns` has no effect: own has no column of numbers other"):
        GraphCL(epochs=1, batch_size=8, standardise_columns=True).fit(small_graphs())


def test_scales_are_those_of_the_training_graphs():
    graphs = uneven()
    for number, graph in enumerate(graphs):
        graph.group, graph.part = number // 2, ("train", "valid", "test")[number // 2 % 3]
    config = make_config({"eval": ["retrieval"], "standardise_columns": True, "encoder": "gin"})
    dataset = load_dataset(graphs)
    task = make_task(config, dataset)
    scales = task.column_scales(task.make_model())
    assert scales.keys() == {"x"}  # gin does not use `edge_attr`
    x = torch.cat([graph.x for graph in graphs if graph.part == "train"])
    np.testing.assert_allclose(scales["x"], column_scale(x))
    part = dataset[3:8].standardised()
    np.testing.assert_allclose(part.scales["x"], column_scale(torch.cat([graph.x for graph in graphs[3:8]])))
