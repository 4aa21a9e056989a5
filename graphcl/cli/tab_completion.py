"""`graphcl completion SHELL`: print a script for tab completion of commands, options and names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from graphcl.cli.command_line import Command, flag
from graphcl.cli.commands import COMPLETION, PARSERS
from graphcl.cli.entry_point import program
from graphcl.config.recipes import shipped_configs
from graphcl.config.specs import choices
from graphcl.datasets import dataset_names
from graphcl.registry import augmentations, encoders, losses, methods
from graphcl.system.optional import optional


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments of `graphcl completion` and run the command."""
    with program("nothing was written") as this:
        settings = COMPLETION.parse(arguments)
        if settings is None:
            return this.code
        shtab = optional("shtab", "tab completion needs shtab", "completion")
        print(shtab.complete(parser(PARSERS), settings.shell))
    return this.code


def parser(commands: Mapping[str, Command[Any]]) -> argparse.ArgumentParser:
    """Return an argparse parser with the options of all commands, as input for shtab.

    Args:
        commands: name of a command -> its `Command`.
    """
    names = {
        "dataset": dataset_names(),
        "loss": choices(losses),
        "method": [*methods],
        "encoder": [*encoders],
        "augmentations": [*augmentations],
        "views.first": [*augmentations],
        "views.second": [*augmentations],
        "config": sorted(shipped_configs()),
    }
    whole = argparse.ArgumentParser("graphcl")
    inner = whole.add_subparsers()
    for name, command in commands.items():
        part = inner.add_parser(name, help=command.summary.split("\n")[0])
        keys = [key for key in command.model.model_fields if key not in ("views", command.positional)]
        for key in [*keys, *(("views.first", "views.second") if name == "run" else ()), "config"]:
            field = command.model.model_fields.get(key)
            part.add_argument(flag(key), choices=names.get(key), help=field.description if field else None)
    return whole
