"""`graphcl export`: files give the encoder's embeddings, also for graphs of other sizes than the traced graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.commands.export import main
from graphcl.models.interface import make_encoder
from graphcl.models.nodes import NodeModel
from graphcl.models.saved import EncoderDescription, save_encoder
from graphcl.training.loop import embed
from graphcl.version import __version__

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
