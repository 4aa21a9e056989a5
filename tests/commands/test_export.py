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


@pytest.mark.parametrize("name", ["gin", "gine", "molecule_gine", "gcn", "gat"])
def test_pt2(name, tmp_path, capsys):
    encoder, description = saved(tmp_path, name)
    assert main([str(tmp_path), "--format", "pt2"]) == 0
    assert "output h [graphs, " in capsys.readouterr().out
    program = torch.export.load(tmp_path / "encoder.pt2").module()
    for sizes, edges in zip(SIZES, (30, 0, 2), strict=True):
        inputs = inputs_like(example_inputs(encoder, description), sizes, edges)
        torch.testing.assert_close(program(**inputs), encoder(**inputs), rtol=1e-4, atol=1e-4)


NODE_ENCODERS = [("node_gcn", {"norm": "batch_norm", "out_channels": 8}), ("gin", {}), ("gine", {}), ("gat", {})]


@pytest.mark.parametrize(("name", "arguments"), NODE_ENCODERS)
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_an_encoder_of_nodes_gives_their_embeddings(form, name, arguments, tmp_path, capsys):
    if form == "onnx":
        pytest.importorskip("onnxscript")
        runtime = pytest.importorskip("onnxruntime")
    encoder, description = saved(tmp_path, name, "grace", **arguments)
    assert main([str(tmp_path), "--format", form]) == 0
    printed = capsys.readouterr().out
    assert f"; output h [N, {encoder.out_channels}]; " in printed
    assert "batch" not in printed
    out = str(tmp_path / f"encoder.{form}")
    session = torch.export.load(out).module() if form == "pt2" else runtime.InferenceSession(out)
    for n, edges in ((20, 30), (5, 1)):
        inputs = inputs_like(example_inputs(encoder, description), [n], edges)
        h, _ = embed(NodeModel(encoder, projector="none"), [Batch.from_data_list([Data(**inputs)])])
        del inputs["batch"]
        if form == "pt2":
            found = session(**inputs)
        else:
            found = torch.from_numpy(session.run(["h"], {key: each.numpy() for key, each in inputs.items()})[0])
        assert h.shape == (n, encoder.out_channels)
        torch.testing.assert_close(found, h, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "readout"), [("gin", "mean"), ("gine", "sum"), ("molecule_gine", "max")])
def test_onnx(name, readout, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    encoder, description = saved(tmp_path, name, readout=readout)
    assert main([str(tmp_path), "--out", str(tmp_path / "m.onnx")]) == 0
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    for sizes, edges in zip(SIZES, (30, 1, 2), strict=True):
        inputs = inputs_like(example_inputs(encoder, description), sizes, edges)
        (h,) = session.run(["h"], {key: each.numpy() for key, each in inputs.items()})
        torch.testing.assert_close(torch.from_numpy(h), encoder(**inputs), rtol=1e-4, atol=1e-4)


class Positional(torch.nn.Module):
    """Pass `edge_attr` by its position, as `torch.jit.trace` knows no keyword-only arguments."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x, edge_index, batch, edge_attr=None):
        return self.encoder(x, edge_index, batch, edge_attr=edge_attr)


@pytest.mark.parametrize(("name", "readout"), [("gin", "mean"), ("gine", "sum"), ("molecule_gine", "max")])
@pytest.mark.filterwarnings("ignore")
def test_traced(name, readout, tmp_path):
    encoder, description = saved(tmp_path, name, readout=readout)
    example = example_inputs(encoder, description)
    module = Positional(encoder)
    traced = torch.jit.trace(module, tuple(example.values()), check_trace=False)
    inputs = inputs_like(example, [4, 9, 1, 6], 30).values()
    torch.testing.assert_close(traced(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "tflite"], "`format` must be 'onnx' or 'pt2', got 'tflite'"),
        (["--format", "pt2", "--out", "."], "exists"),
        (["--format", "pt2", "--seed", "3"], "holds no seed 3; it holds 0"),
    ],
)
def test_messages(arguments, line, tmp_path, capsys):
    saved(tmp_path, "gin")
    assert main([str(tmp_path), *arguments]) == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "encoder.pt2").exists()


def test_without_onnx_the_message_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("graphcl: ONNX files need onnx and onnxscript, unlike pt2 (")
    assert error.endswith("); pip install 'graphcl[onnx]'.\n")
