"""`graphcl export`: files give the encoder's embeddings, also for graphs of other sizes than the traced graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphcl.commands.export import example_inputs, main
from graphcl.models.interface import make_encoder
from graphcl.models.nodes import NodeModel
from graphcl.models.saved import EncoderDescription, save_encoder
from graphcl.training.loop import embed

COLUMNS = {"molecule_gine": (9, 3)}
"""Encoder -> numbers of columns of `x` and `edge_attr`; other encoders have 5 and 2."""
SIZES = ([4, 9, 1, 6], [5], [3, 2])


def saved(folder, name, method="two_views", **arguments):
    """Save an encoder with random weights and BatchNorm statistics; return the encoder and its description."""
    columns, edge_columns = COLUMNS.get(name, (5, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = make_encoder(
            name, {"hidden_channels": 16, "num_layers": 2, **arguments}, columns, edge_columns
        ).eval()
        for key, buffer in encoder.named_buffers():
            if "running" in key:
                torch.nn.init.uniform_(buffer, 0.5, 2)
    description = EncoderDescription(
        encoder={"name": name, "arguments": {"hidden_channels": 16, "num_layers": 2, **arguments}}, in_channels=columns,
        out_channels=encoder.out_channels, edge_dim=edge_columns, dataset="own", features="labels", max_degree=64,
        label_columns=columns, settings={"method": {"name": method}},
    )  # fmt: skip
    save_encoder(folder / "encoder.pt", description, {0: encoder.state_dict()})
    return encoder, description


def inputs_like(inputs, sizes, edges):
    """Return random inputs with the columns and types of `inputs`, for graphs with `sizes` nodes."""
    generator = torch.Generator().manual_seed(1)
    n = sum(sizes)
    found = {"x": torch.rand(n, inputs["x"].size(1), generator=generator).mul(2).to(inputs["x"].dtype)}
    found["edge_index"] = torch.randint(n, (2, edges), generator=generator)
    found["batch"] = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    if "edge_attr" in inputs:
        columns = inputs["edge_attr"].size(1)
        found["edge_attr"] = torch.rand(edges, columns, generator=generator).mul(2).to(inputs["edge_attr"].dtype)
    return found


OF_GRAPHS = [("gin", {"readout": "mean"}), ("gine", {"readout": "sum"}), ("molecule_gine", {"readout": "max"}),
             ("gcn", {}), ("gat", {})]  # fmt: skip
OF_NODES = [("node_gcn", {"norm": "batch_norm", "out_channels": 8}), ("gin", {}), ("gine", {}), ("gat", {})]
CASES = [("pt2", *case, False) for case in OF_GRAPHS] + [("onnx", *case, False) for case in OF_GRAPHS[:3]]
CASES += [(form, *case, True) for form in ("pt2", "onnx") for case in OF_NODES]


@pytest.mark.parametrize(("form", "name", "arguments", "nodes"), CASES)
def test_the_file_gives_the_encoders_embeddings(form, name, arguments, nodes, tmp_path, capsys):
    """An encoder that was trained on nodes gives the embeddings of nodes."""
    if form == "onnx":
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
    encoder, description = saved(tmp_path, name, "grace" if nodes else "two_views", **arguments)
    assert main([str(tmp_path), "--format", form]) == 0
    printed, columns = capsys.readouterr().out, encoder.out_channels
    assert (f"; output h [N, {columns}]; " if nodes else f"output h [graphs, {columns}]") in printed
    assert ("batch" not in printed) == nodes
    out = str(tmp_path / f"encoder.{form}")
    session = torch.export.load(out).module() if form == "pt2" else runtime.InferenceSession(out)
    for sizes, edges in [([20], 30), ([5], 1)] if nodes else zip(SIZES, (30, form == "onnx", 2), strict=True):
        inputs = inputs_like(example_inputs(encoder, description), sizes, int(edges))
        if nodes:
            h, _ = embed(NodeModel(encoder, projector="none"), [Batch.from_data_list([Data(**inputs)])])
            del inputs["batch"]
            assert h.shape == (sum(sizes), columns)
        else:
            h = encoder(**inputs)
        if form == "pt2":
            found = session(**inputs)
        else:
            found = torch.from_numpy(session.run(["h"], {key: each.numpy() for key, each in inputs.items()})[0])
        torch.testing.assert_close(found, h, rtol=1e-4, atol=1e-4)
