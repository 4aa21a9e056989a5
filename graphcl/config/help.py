"""Help texts of `graphcl run`: lists of registered names, their descriptions, and suggestions for unknown options."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator

from pydantic import BaseModel

from graphcl.arguments import nearest, plain, resembling
from graphcl.config.command_line import flag, shown_default
from graphcl.config.files import shipped_configs
from graphcl.config.settings import Config
from graphcl.config.specs import choices
from graphcl.errors import InputError
from graphcl.registry import Registry, augmentations, encoders, losses, methods

REGISTRIES = {
    "losses": (losses, "loss"),
    "methods": (methods, "method"),
    "augmentations": (augmentations, "views.second"),
    "encoders": (encoders, "encoder"),
}
"""Help topic -> registry, and the setting that takes a name from this registry."""


def topic(name: str) -> str:
    """Return the help text for a list of names such as `losses`, or for a registered name such as `adnce`.

    Raises:
        InputError: `name` is unknown.
    """
    lists: dict[str, Callable[[], str]] = {
        **{key: functools.partial(_list_registry, registry) for key, (registry, _) in REGISTRIES.items()},
        "evaluators": _list_evaluators,
        "datasets": lambda: _list_names(_datasets()),
        "configurations": lambda: _list_names(sorted(shipped_configs())),
    }
    if name in lists:
        return f"{name}:\n{lists[name]()}\n"
    found = [
        _describe(each, registry, setting)
        for registry, setting in REGISTRIES.values()
        for each in registry
        if plain(each) == plain(name)
    ]
    if not found:
        every = [each for registry, _ in REGISTRIES.values() for each in choices(registry)]
        raise InputError(f"no help about {name!r}; {nearest(name, [*every, *lists])}; topics: all, {', '.join(lists)}.")
    return "\n".join(found)


def similar_options(key: str) -> list[str]:
    """Return up to three options that the user may have meant by `key`.

    Settings and arguments with a similar name come first, then settings with the words of `key` in their description.

    Example:
        >>> similar_options("temperature"), similar_options("learning_rate"), similar_options("momentum")
        (['--loss.temperature'], ['--lr'], ['--method.momentum'])
    """
    paths = list(_paths())
    wanted = resembling(key, dict.fromkeys(path.rsplit(".", 1)[-1] for path in paths), 0.8)[:1]
    found = [path for path in paths if path.rsplit(".", 1)[-1] in wanted]
    words = key.split("_")
    described = {name: field.description for name, field in Config.model_fields.items() if field.description}
    fitting = [name for name, text in described.items() if set(words) <= set(text.lower().split())]
    shortest = sorted(fitting, key=lambda name: len(described[name]))[:1]
    return [flag(path) for path in (found or shortest or resembling(key, Config.model_fields))][:3]


def _paths() -> Iterator[str]:
    """Yield the dotted path of every setting of a run, including the arguments of every registered name."""
    for name, field in Config.model_fields.items():
        yield name
        if isinstance(field.default, BaseModel) and name != "views":
            yield from (f"{name}.{inner}" for inner in type(field.default).model_fields)
    for setting, registry in (
        ("loss", losses), ("encoder", encoders), ("views.first", augmentations), ("views.second", augmentations),
        ("method", methods),
    ):  # fmt: skip
        yield from (
            f"{setting}.{each}"
            for each in dict.fromkeys(each for name in registry for each in registry.arguments(name).defaults)
        )


def _describe(name: str, registry: Registry, setting: str) -> str:
    """Return a help text with the options and the docstring of a registered name."""
    target, arguments = registry[name], registry.arguments(name).defaults
    options = [f"--{setting}.{key} {shown_default(value)}" for key, value in arguments.items() if key != "reduction"]
    command = f"--{setting} {name} {' '.join(options)}".rstrip()
    return f"{registry.kind} {name}, with its defaults:\n  {command}\n\n{inspect.getdoc(target)}\n"


def _list_registry(registry: Registry) -> str:
    lines = []
    for name in choices(registry):
        defaults = registry.arguments(name).defaults
        arguments = [f"{key}={shown_default(value)}" for key, value in defaults.items() if key != "reduction"]
        lines.append(f"  {name:15} {registry.summary(name)}")
        if arguments:
            lines.append(f"  {'':15} {', '.join(arguments)}")
    return "\n".join(lines)


def _list_evaluators() -> str:
    from graphcl.evaluate import EVALUATORS, SPLIT_EVALUATORS  # imported here, as short help needs no torch

    evaluators = {**EVALUATORS, **SPLIT_EVALUATORS}
    return "\n".join(f"  {name:15} {(inspect.getdoc(each) or '').splitlines()[0]}" for name, each in evaluators.items())


def _datasets() -> list[str]:
    from graphcl.datasets import dataset_names

    return dataset_names()


def _list_names(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
