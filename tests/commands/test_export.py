"""`graphcl export`: files give the encoder's embeddings, also for graphs of other sizes than the traced graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl import GraphCL
from graphcl.commands.export import main
from graphcl.errors import InputWarning
from graphcl.extensions.nodes.models import NodeModel
from graphcl.models.interface import make_encoder
from graphcl.models.saved import EncoderDescription, save_encoder
from graphcl.training.loop import embed
from graphcl.version import __version__
from tests.conftest import small_graphs

ENCODERS = [("molecule_gine", {"readout": "max"}, False), ("gat", {"readout": "sum"}, False),
            ("node_gcn", {"norm": "batch_norm", "out_channels": 8}, True)]  # fmt: skip


@pytest.mark.parametrize("form", ["pt2", "onnx"])
@pytest.mark.parametrize(("name", "arguments", "nodes"), ENCODERS, ids=[name for name, *_ in ENCODERS])
def test_the_file_gives_the_encoders_embeddings(form, name, arguments, nodes, tmp_path, capsys):
    """An encoder that was trained on nodes gives the embeddings of nodes."""
    if form == "onnx":
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
    columns, edge_columns = (9, 3) if name == "molecule_gine" else (5, 2)
    arguments, generator = {"hidden_channels": 16, "num_layers": 2, **arguments}, torch.manual_seed(0)
    encoder = make_encoder(name, arguments, columns, edge_columns).eval()
    for key, buffer in encoder.named_buffers():
        if "running" in key:
            torch.nn.init.uniform_(buffer, 0.5, 2)
    description = EncoderDescription(
        encoder={"name": name, "arguments": arguments}, in_channels=columns, out_channels=encoder.out_channels,
        edge_dim=edge_columns, dataset="own", features="labels", max_degree=64, label_columns=columns,
        settings={"method": {"name": "grace" if nodes else "two_views"}},
    )  # fmt: skip
    save_encoder(tmp_path / "encoder.pt", description, {0: encoder.state_dict()})
    assert main([str(tmp_path), "--format", form]) == 0
    printed = capsys.readouterr().out
    assert f"; output h [{'N' if nodes else 'graphs'}, {encoder.out_channels}]; " in printed
    out = str(tmp_path / f"encoder.{form}")
    session = torch.export.load(out).module() if form == "pt2" else runtime.InferenceSession(out)
    if form == "onnx":
        shapes = {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}
        assert shapes["x"] == ["nodes", columns]
        assert shapes["edge_index"] == [2, "edges"]
        assert shapes["h"] == ["nodes" if nodes else "graphs", encoder.out_channels]
        about = session.get_modelmeta().custom_metadata_map
        assert about == {"graphcl": __version__, "encoder": name, "dataset": "own", "x": description.columns()}
    kind = torch.long if name == "molecule_gine" else torch.float
    for sizes, edges in [([20], 30), ([5], 1)] if nodes else [([4, 9, 1, 6], 30), ([5], form == "onnx"), ([3, 2], 2)]:
        n = sum(sizes)
        inputs = {"x": torch.rand(n, columns, generator=generator).mul(2).to(kind)}
        inputs["edge_index"] = torch.randint(n, (2, int(edges)), generator=generator)
        if "edge_attr" in printed:
            inputs["edge_attr"] = torch.rand(int(edges), edge_columns, generator=generator).mul(2).to(kind)
        if nodes:
            h, _ = embed(NodeModel(encoder, projector="none"), [Batch.from_data_list([Data(**inputs)])])
        else:
            inputs["batch"] = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
            h = encoder(**inputs)
        assert h.shape == (n if nodes else len(sizes), encoder.out_channels)
        if form == "pt2":
            found = session(**inputs)
        else:
            found = torch.from_numpy(session.run(["h"], {key: each.numpy() for key, each in inputs.items()})[0])
        torch.testing.assert_close(found, h, rtol=1e-4, atol=1e-4)


def test_weights_of_edges_are_an_input_after_training_with_them(tmp_path, capsys):
    dataset = small_graphs(12)
    for graph in dataset:
        graph.edge_weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)) * 3
    fitted = GraphCL(epochs=0).fit(dataset)
    fitted.save(tmp_path / "encoder.pt")
    assert main([str(tmp_path), "--format", "pt2"]) == 0
    assert "edge_weight [E] float32" in capsys.readouterr().out
    batch = Batch.from_data_list(dataset[3:7])
    inputs = {key: batch[key] for key in ("x", "edge_index", "batch", "edge_weight")}
    found = torch.export.load(str(tmp_path / "encoder.pt2")).module()(**inputs).detach()
    torch.testing.assert_close(found, torch.from_numpy(fitted.transform(dataset[3:7])), rtol=1e-4, atol=1e-4)
    with pytest.warns(InputWarning, match="own has no `edge_weight`, so each edge counts as 1, but the encoder was"):
        without = fitted.transform(small_graphs(12)[3:7])
    assert not torch.allclose(found, torch.from_numpy(without), rtol=1e-2)
    with pytest.warns(InputWarning, match="own has weights of edges, but the encoder was trained without weights"):
        GraphCL(epochs=0).fit(small_graphs(12)).transform(dataset)
