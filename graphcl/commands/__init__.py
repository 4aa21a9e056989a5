"""The commands: `NAME.py` holds the settings, the help text and `main` of `graphcl NAME`.

What needs PyTorch is imported in the functions that use it, so that help texts are fast. An installed package, or an
extension of this one, adds a command by an entry point of the group `graphcl.commands`: a module with `main` and a
one-line `SUMMARY`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from graphcl.registry import load_points

COMMANDS = {
    "run": "train an encoder by contrastive learning, embed the data set, score the embedding",
    "sweep": "run settings x data sets x seeds in parallel and make tables",
    "embed": "embed graphs with a trained encoder",
    "predict": "predict the targets of new graphs by a finished run",
    "transfer": "probe or fine-tune a trained encoder on other data sets",
    "show": "redraw the report of a run",
    "export": "write a trained encoder as ONNX or pt2, to run without this library",
    "pack": "write a data set to disk, for memory-mapping",
}
"""Command of this package -> summary, in the order of `graphcl --help`."""


def summaries() -> dict[str, str]:
    """Return command -> summary: those of `COMMANDS`, then those of other packages; one that fails is left out."""
    added = {name: module.SUMMARY for name, module in load_points("graphcl.commands").items()}
    return COMMANDS | {name: summary for name, summary in added.items() if name not in COMMANDS}


def command(name: str) -> ModuleType:
    """Return the module of one of the `summaries`."""
    if name in COMMANDS:
        return importlib.import_module(f"graphcl.commands.{name}")
    module: ModuleType = load_points("graphcl.commands")[name]
    return module
