"""`graphcl completion SHELL`: print a script for tab completion of commands, options and names."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Literal

from pydantic import Field

from graphcl.arguments import Settings
from graphcl.cli.command_line import Command, flag
from graphcl.commands import COMMANDS
from graphcl.config.recipes import shipped_configs
from graphcl.config.resolve import NAMED
from graphcl.config.specs import choices
from graphcl.registry import augmentations
from graphcl.system.optional import optional


class Completion(Settings):
    """Print a script for tab completion; it needs shtab: pip install 'graphcl[completion]'.
    For bash:
      graphcl completion bash > ~/.local/share/bash-completion/completions/graphcl
    """

    shell: Literal["bash", "zsh", "tcsh"] = Field(description="bash, zsh or tcsh")


COMMAND = Command("graphcl completion bash|zsh|tcsh", Completion, positional="shell")


def completion(settings: Completion) -> str:
    """Return the completion script for a shell.

    Raises:
        InputError: shtab is not installed.
    """
    script: str = optional("shtab", "tab completion needs shtab", "completion").complete(parser(), settings.shell)
    return script


def parser() -> argparse.ArgumentParser:
    """Return an argparse parser with the options of all commands, as input for shtab."""
    from graphcl.datasets import dataset_names  # imported here, as help texts need no torch

    names = {path: choices(registry) for path, registry in NAMED.items()}
    names |= {"dataset": dataset_names(), "augmentations": [*augmentations], "config": sorted(shipped_configs())}
    whole = argparse.ArgumentParser("graphcl")
    inner = whole.add_subparsers()
    for name in COMMANDS:
        command: Command[Any] = importlib.import_module(f"graphcl.commands.{name}").COMMAND
        part = inner.add_parser(name, help=command.about.split("\n")[0])
        fields = {key: " ".join((field.description or "").split()) for key, field in command.model.model_fields.items()}
        keys = [key for key in fields if key not in ("views", command.positional)]
        for key in [*keys, *(("views.first", "views.second") if name == "run" else ()), "config"]:
            part.add_argument(flag(key), choices=names.get(key), help=fields.get(key))
    return whole


main = COMMAND.main(completion)
