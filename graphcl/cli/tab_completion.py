"""`graphcl completion SHELL`: print a script for tab completion of commands, options and names."""

from __future__ import annotations

import argparse

from graphcl.cli.command_line import flag
from graphcl.cli.commands import COMPLETION, PARSERS, Completion
from graphcl.config.recipes import shipped_configs
from graphcl.config.resolve import NAMED
from graphcl.config.specs import choices
from graphcl.datasets import dataset_names
from graphcl.registry import augmentations
from graphcl.system.optional import optional


def completion(settings: Completion) -> str:
    """Return the completion script for a shell.

    Raises:
        InputError: shtab is not installed.
    """
    script: str = optional("shtab", "tab completion needs shtab", "completion").complete(parser(), settings.shell)
    return script


def parser() -> argparse.ArgumentParser:
    """Return an argparse parser with the options of all commands, as input for shtab."""
    names = {path: choices(registry) for path, registry in NAMED.items()}
    names |= {"dataset": dataset_names(), "augmentations": [*augmentations], "config": sorted(shipped_configs())}
    whole = argparse.ArgumentParser("graphcl")
    inner = whole.add_subparsers()
    for name, command in PARSERS.items():
        part = inner.add_parser(name, help=command.about.split("\n")[0])
        fields = {key: " ".join((field.description or "").split()) for key, field in command.model.model_fields.items()}
        keys = [key for key in fields if key not in ("views", command.positional)]
        for key in [*keys, *(("views.first", "views.second") if name == "run" else ()), "config"]:
            part.add_argument(flag(key), choices=names.get(key), help=fields.get(key))
    return whole


main = COMPLETION.main(completion)
