"""Make help texts of `graphcl run`: lists of registered names, their descriptions, suggestions for unknown options."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable

from graphcl.arguments import nearest, plain, resembling
from graphcl.cli.command_line import flag, option_help, option_line, shown_default
from graphcl.config.recipes import shipped_configs
from graphcl.config.resolve import NAMED, setting_paths
from graphcl.config.settings import Config
from graphcl.config.specs import choices
from graphcl.errors import InputError
from graphcl.registry import Registry

REGISTRIES = {registry.group.removeprefix("graphcl."): (registry, path) for path, registry in NAMED.items()}
"""Help topic, such as `losses` -> registry, and a setting that takes a name from this registry."""


def topic(name: str) -> str:
    """Return the help text for a list of names such as `losses`, or for a registered name such as `adnce`.

    Raises:
        InputError: `name` is unknown.
    """
    lists: dict[str, Callable[[], str]] = {
        **{key: functools.partial(_list_registry, registry) for key, (registry, _) in REGISTRIES.items()},
        "evaluators": _list_evaluators,
        "datasets": lambda: _list_names(_datasets()),
        "configurations": _list_configurations,
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
        if settings := [path for path in setting_paths() if plain(name) in map(plain, (path, *path.rsplit(".", 1)))]:
            return "".join(f"{_describe_setting(path)}\n" for path in settings)
        raise InputError(f"no help about {name!r}; {nearest(name, [*every, *lists])}; topics: all, {', '.join(lists)}.")
    return "\n".join(found)


def similar_options(key: str) -> list[str]:
    """Return up to three options that the user may have meant by `key`.

    Settings and arguments with a similar name come first, then settings with the words of `key` in their description.

    Example:
        >>> similar_options("temperature"), similar_options("learning_rate"), similar_options("momentum")
        (['--loss.temperature'], ['--lr'], ['--method.momentum'])
    """
    # a typo in a setting's own name needs no registry, which takes seconds to import PyTorch
    own = [*Config.model_fields, "views.first", "views.second"]
    found = resembling(key, own, 0.8) or resembling(key, setting_paths(), 0.8)
    words = key.split("_")
    described = {name: field.description for name, field in Config.model_fields.items() if field.description}
    fitting = [name for name, text in described.items() if set(words) <= set(text.lower().split())]
    shortest = sorted(fitting, key=lambda name: len(described[name]))[:1]
    return [flag(path) for path in (found or shortest or resembling(key, Config.model_fields))][:3]


def _describe_setting(path: str) -> str:
    if path in Config.model_fields:
        return option_help(path, Config.model_fields[path])
    if path in NAMED:
        return option_line(f"{flag(path)} NAME", f"{NAMED[path].kind}, see --help {NAMED[path].kind}s")
    setting, _, argument = path.rpartition(".")
    registry = NAMED.get(setting)
    takers = {each: registry.arguments(each).defaults for each in registry} if registry else {}
    found = [f"{each} [{shown_default(values[argument])}]" for each, values in takers.items() if argument in values]
    return option_line(flag(path), f"argument of {', '.join(found)}" if found else f"part of {flag(setting)}")


def _describe(name: str, registry: Registry, setting: str) -> str:
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
    from graphcl.evaluate import EVALUATORS, NODE_EVALUATORS, SPLIT_EVALUATORS  # here, as short help needs no torch

    evaluators = {**EVALUATORS, **SPLIT_EVALUATORS, **NODE_EVALUATORS}
    return "\n".join(f"  {name:15} {(inspect.getdoc(each) or '').splitlines()[0]}" for name, each in evaluators.items())


def _datasets() -> list[str]:
    from graphcl.datasets import dataset_names

    return dataset_names()


def _list_configurations() -> str:
    """Return a line for each shipped configuration: its name, and the start of its header, up to the first colon."""
    headers = {name: file.read_text(encoding="utf-8").split("\n# ")[1] for name, file in shipped_configs().items()}
    return "\n".join(f"  {name:16}{header.split(':')[0]}" for name, header in headers.items())


def _list_names(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
