"""`graphcl export`: write a trained encoder as a file that runs without this library."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from graphcl.cli.commands import EXPORT, Export
from graphcl.cli.entry_point import program
from graphcl.errors import InputError
from graphcl.experiment.encoder_input import contrasts_nodes
from graphcl.models.interface import accepts, takes_categories
from graphcl.models.saved import EncoderDescription, installed_encoders, load_encoder
from graphcl.system.files import new_file, write_whole
from graphcl.system.optional import import_onnx

NODES, EDGES = 7, 11
"""Sizes of the graphs with which the encoder is traced; the file takes graphs of any size."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments of `graphcl export` and run the command."""
    with program("nothing was written") as this:
        settings = EXPORT.parse(arguments)
        if settings is not None:
            print(export(settings))
    return this.code


def export(settings: Export) -> str:
    """Write an encoder to a new file and return a description of its inputs and output.

    Raises:
        InputError: the file exists or cannot be written, the encoder cannot be used, or onnx is not installed.
    """
    if settings.format == "onnx":
        import_onnx()
    source = Path(settings.encoder).expanduser()
    folder = source if source.is_dir() else source.parent
    name = settings.encoder if settings.encoder in installed_encoders() else folder / "encoder"
    out = new_file(settings.out or f"{name}.{settings.format}")
    encoder, description = load_encoder(settings.encoder, settings.seed)
    inputs = example_inputs(encoder, description)
    nodes = contrasts_nodes(description.settings)
    if nodes:
        encoder = NodeRows(encoder)
        del inputs["batch"]
    program = exported_program(encoder, inputs)
    write_whole(out, lambda file: _write(program, file, list(inputs), settings.format))
    shapes = {"x": f"N, {description.in_channels}", "edge_index": "2, E", "batch": "N"}
    shapes["edge_attr"] = f"E, {description.edge_dim}"
    kinds = [f"{name} [{shapes[name]}] {str(each.dtype).removeprefix('torch.')}" for name, each in inputs.items()]
    return (
        f"inputs {', '.join(kinds)}; output h [{'N' if nodes else 'graphs'}, {description.out_channels}]; "
        f"x: {description.columns()}; in {out}"
    )


class NodeRows(nn.Module):
    """Encoder that returns the rows of nodes, `[N, H]`, instead of those of graphs.

    Args:
        encoder: encoder with the method `with_nodes`.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the rows `[N, H]` of the nodes."""
        more = {} if edge_attr is None else {"edge_attr": edge_attr}
        rows: Tensor = self.encoder.with_nodes(x, edge_index, **more)[1]
        return rows


def example_inputs(encoder: nn.Module, description: EncoderDescription) -> dict[str, Tensor]:
    """Return example inputs of the encoder for two small graphs, as name -> tensor."""
    kind = torch.long if takes_categories(description.encoder.name) else torch.float32
    inputs = {
        "x": torch.zeros(NODES, description.in_channels, dtype=kind),
        "edge_index": torch.arange(2 * EDGES).view(2, EDGES) % NODES,
        "batch": (torch.arange(NODES) > NODES // 2).long(),
    }
    if description.edge_dim and accepts(encoder, "edge_attr"):
        inputs["edge_attr"] = torch.zeros(EDGES, description.edge_dim, dtype=kind)
    return inputs


def exported_program(encoder: nn.Module, inputs: dict[str, Tensor]) -> Any:
    """Return the encoder as a `torch.export.ExportedProgram` of `inputs`, for any number of nodes, edges and graphs."""
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    sizes = {"x": {0: nodes}, "edge_index": {1: edges}, "batch": {0: nodes}, "edge_attr": {0: edges}}
    dynamic = {name: sizes[name] for name in inputs}
    return torch.export.export(encoder, (), inputs, dynamic_shapes=dynamic)


def _write(program: Any, file: IO[bytes], names: list[str], form: str) -> None:
    if form == "pt2":
        torch.export.save(program, file)
        return
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torch.onnx warns of optional packages that are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecated calls
        model = torch.onnx.export(program, dynamo=True, input_names=names, output_names=["h"], verbose=False)
    if model is None:
        raise InputError("ONNX files need torch 2.5 or newer; update torch, or pass --format pt2.")
    file.write(model.model_proto.SerializeToString())
