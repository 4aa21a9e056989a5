"""Parser of the arguments of `graphcl run`, and its help text."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

from graphcl.config.command_line import Command, Options, one_value, shown_default
from graphcl.config.completion import make_config
from graphcl.config.files import shipped_configs
from graphcl.config.settings import Config
from graphcl.errors import InputError
from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS
from graphcl.registry import Registry, augmentations, encoders, losses, methods


def _resume(options: Options) -> Options:
    """Replace `--resume FOLDER` with `--out FOLDER`, a bare `--resume` and the folder's settings.

    The settings are `FOLDER/config.yaml`, if it exists and `--config` is not given.

    Raises:
        InputError: `--out` names another folder.
    """
    given = {key: values for key, values in options if key in ("config", "out", "resume")}
    if "resume" not in given:
        return options
    folders = list(dict.fromkeys([*given["resume"], *given.get("out", [])]))
    if len(folders) > 1:
        raise InputError(f"`--resume` and `--out` name different folders, {' and '.join(folders)}; give one.")
    folder = one_value("resume", folders)
    kept = Path(folder) / "config.yaml"
    base = [("config", [str(kept)])] if "config" not in given and kept.is_file() else []
    rest = [option for option in options if option[0] not in ("out", "resume")]
    return [*base, *rest, ("out", [folder]), ("resume", [])]


def _details() -> str:
    """Return help text that lists all registered names, with arguments and defaults."""
    from graphcl.datasets import dataset_names  # imported here, as only the help text needs it

    evaluators = {**EVALUATORS, **SPLIT_EVALUATORS}
    lines = [f"  {name:15} {(inspect.getdoc(each) or '').splitlines()[0]}" for name, each in evaluators.items()]
    return "\n\n".join(
        [
            "Dotted options set the arguments of a loss, a method, an augmentation or the encoder:\n"
            "  --loss adnce --loss.mu 0.5 --views.first identity --views.second node_drop --views.second.ratio 0.1",
            _list_registry("losses", losses),
            _list_registry("methods", methods),
            _list_registry("augmentations", augmentations),
            _list_registry("encoders", encoders),
            "\n".join(["evaluators:", *lines]),
            _list_names("data sets", dataset_names()),
            _list_names("configurations", sorted(shipped_configs())),
        ]
    )


def _list_registry(title: str, registry: Registry) -> str:
    lines = [f"{title}:"]
    for name in registry:
        defaults = registry.arguments(name).defaults
        arguments = [f"{key}={shown_default(value)}" for key, value in defaults.items() if key != "reduction"]
        lines.append(f"  {name:15} {registry.summary(name)}")
        if arguments:
            lines.append(f"  {'':15} {', '.join(arguments)}")
    return "\n".join(lines)


def _list_names(title: str, names: Sequence[str]) -> str:
    body = textwrap.fill(", ".join(names), 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"{title}:\n{body}"


RUN = Command(
    "graphcl run [--dataset NAME] [--loss NAME] [--KEY VALUE ...] [--KEY.KEY VALUE ...]",
    "Train a graph encoder by contrastive learning, embed the data set, and score the embedding.",
    Config,
    validate=make_config,
    rewrite=_resume,
    details=_details,
)
