"""`graphcl export`: write a trained encoder as a file that runs without this library."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from graphcl.cli.command_line import Command
from graphcl.config.settings import EncoderFile, EncoderSeed, Imports
from graphcl.errors import InputError
from graphcl.registry import encoders
from graphcl.system.files import claimed, new_file, write_whole
from graphcl.system.optional import optional
from graphcl.version import __version__

if TYPE_CHECKING:  # help texts need no torch
    from torch import Tensor, nn

    from graphcl.models.saved import EncoderDescription


class Export(Imports):
    """Write a trained encoder for ONNX Runtime or for torch.export.load. The file maps node features, edges and the
    graph of each node to embeddings, for any number of graphs; build node features as in its training.
    """

    encoder: EncoderFile
    format: Literal["onnx", "pt2"] = "onnx"
    """onnx (pip install "graphcl[onnx]"), or pt2 for torch.export.load"""
    out: Annotated[str | None, Field(title="FILE")] = None
    """new file; default: encoder.onnx or encoder.pt2, of targets target.onnx, next to encoder.pt; of an installed
    encoder, here"""
    seed: EncoderSeed = None
    role: Literal["query", "target"] = "query"
    """of two towers, the encoder to write"""


COMMAND = Command("graphcl export ENCODER [--format onnx|pt2] [--out FILE]", Export, positional="encoder")

_TEXTS = {
    "edge_index": "source and target of each edge, 0 .. nodes - 1 (unchecked); both directions of an undirected edge",
    "batch": "number of each node's graph: 0, 0, 1, 1, 1, ...",
    "edge_attr": "columns of each edge",
    "edge_weight": "weight of each edge",
}
"""Input of an ONNX file -> its meaning."""


def export(settings: Export) -> str:
    """Write an encoder to a new file and return a description of its inputs and output.

    Raises:
        InputError: the file exists or cannot be written, the encoder cannot be used, or onnx is not installed.
    """
    import torch

    from graphcl.experiment.encoder_input import rows_of
    from graphcl.models.interface import accepts
    from graphcl.models.saved import installed_encoders, load_encoder
    from graphcl.tasks.task import kind_of

    if settings.format == "onnx":
        for package in ("onnxscript", "onnx"):  # torch writes ONNX files with onnxscript
            optional(package, "ONNX files need onnx and onnxscript, unlike pt2", "onnx")
    source = Path(settings.encoder).expanduser()
    folder = source if source.is_dir() else source.parent
    stem = "encoder" if settings.role == "query" else "target"
    name = settings.encoder if settings.encoder in installed_encoders() else folder / stem
    out = new_file(settings.out or f"{name}.{settings.format}")
    encoder, description = load_encoder(settings.encoder, settings.seed, role=settings.role)
    form = encoders.fact(description.encoder.name, "form")
    if form != "dense":
        raise InputError(f"encoder {description.encoder.name} cannot be exported, as its rows are {form}; use embed.")
    rows = rows_of(description.settings)
    encoder = kind_of(rows).embedder(encoder)
    inputs = {name: value for name, value in example_inputs(encoder, description).items() if accepts(encoder, name)}
    n, e = torch.export.Dim("nodes"), torch.export.Dim("edges")  # the file takes any number of both
    sizes = {"x": {0: n}, "edge_index": {1: e}, "batch": {0: n}, "edge_attr": {0: e}, "edge_weight": {0: e}}
    program = torch.export.export(encoder, (), inputs, dynamic_shapes={name: sizes[name] for name in inputs})
    about = {
        "graphcl": __version__,
        "encoder": description.encoder.name,
        "dataset": description.dataset,
        "x": description.columns(),
    }
    with claimed(out):
        write_whole(new_file(out), lambda file: _write(program, file, list(inputs), settings.format, rows, about))
    shapes = {"x": f"N, {description.in_channels}", "edge_index": "2, E", "batch": "N"}
    shapes |= {"edge_attr": f"E, {description.edge_dim}", "edge_weight": "E"}
    kinds = [f"{name} [{shapes[name]}] {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in inputs.items()]
    return (
        f"inputs {', '.join(kinds)}; output h [{'graphs' if rows == 'graphs' else 'N'}, {description.out_channels}]; "
        f"x: {description.columns()}; in {out}"
    )


main = COMMAND.main(export)


def example_inputs(encoder: nn.Module, description: EncoderDescription) -> dict[str, Tensor]:
    """Return inputs for tracing the encoder, as name -> tensor: two graphs with 7 nodes and 11 edges in total."""
    import torch

    from graphcl.models.interface import accepts, takes_categories

    kind = torch.long if takes_categories(description.encoder.name) else torch.float32
    inputs = {
        "x": torch.zeros(7, description.in_channels, dtype=kind),
        "edge_index": torch.arange(22).view(2, 11) % 7,
        "batch": (torch.arange(7) > 3).long(),
    }
    if description.edge_dim and accepts(encoder, "edge_attr"):
        inputs["edge_attr"] = torch.zeros(11, description.edge_dim, dtype=kind)
    if description.edge_weight:
        inputs["edge_weight"] = torch.ones(11)
    return inputs


def _write(program: Any, file: IO[bytes], names: list[str], form: str, rows: str, about: dict[str, str]) -> None:
    """Write the program; `rows` names those of h, and `about` is the metadata of an ONNX file."""
    import torch

    if form == "pt2":
        buffer = io.BytesIO()  # PyTorch's own file writer aborts the process on a full disk
        torch.export.save(program, buffer)
        file.write(buffer.getbuffer())
        return
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torch.onnx warns of optional packages that are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecated calls
        model = torch.onnx.export(program, dynamo=True, input_names=names, output_names=["h"], verbose=False)
    if model is None:
        raise InputError("ONNX files need torch 2.5 or newer; update torch, or pass --format pt2.")
    file.write(described(model.model_proto, rows, about).SerializeToString())


def described(model: Any, rows: str, about: dict[str, str]) -> Any:
    """Return an ONNX model with named axes, a text for each input and the output, and the metadata `about`."""
    import onnx

    texts = _TEXTS | {"x": about["x"], "h": f"embeddings of the {rows}"}
    axes = {"x": "nodes", "batch": "nodes", "h": rows} | dict.fromkeys(
        ("edge_index", "edge_attr", "edge_weight"), "edges"
    )
    named: dict[str, str] = {}
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = texts[value.name]
        named |= {dim.dim_param: axes[value.name] for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in named:
                dim.dim_param = named[dim.dim_param]
    model.doc_string = f"Embed the {rows} of a batch by encoder {about['encoder']}, trained on {about['dataset']}."
    onnx.helper.set_model_props(model, about)
    return model
