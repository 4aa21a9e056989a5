"""Make help texts of `graphcl run`: lists of registered names, their descriptions, suggestions for unknown options."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

from graphcl.arguments import nearest, plain
from graphcl.cli.command_line import flag, option_help, option_line, shown_default
from graphcl.config.recipes import shipped_configs
from graphcl.config.resolve import NAMED, choices, setting_paths, similar_settings
from graphcl.config.settings import Config
from graphcl.errors import InputError
from graphcl.registry import Registry, evaluators, sources

REGISTRIES: dict[str, tuple[Registry, str]] = {}
"""Help topic, such as `losses` -> registry, and the first setting that takes a name from this registry."""
for _path, _registry in NAMED.items():
    REGISTRIES.setdefault(_registry.group.removeprefix("graphcl."), (_registry, _path))
REGISTRIES["evaluators"] = (evaluators, "eval")
LISTS = (*REGISTRIES, "datasets", "configurations")


def topic(name: str) -> str:
    """Return the help text for a list of names such as `losses`, or for a registered name such as `adnce`.

    Raises:
        InputError: `name` is unknown.
    """
    if name in LISTS:
        return "\n".join([f"{name}:", *(f"  {member:15} {text}".rstrip() for member, text in _rows(name))]) + "\n"
    texts = [
        _describe(member, registry, setting)
        for registry, setting in REGISTRIES.values()
        for member in registry
        if plain(member) == plain(name)
    ]
    if not texts:
        paths = [path for path in setting_paths() if plain(name) in map(plain, (path, *path.rsplit(".", 1)))]
        texts = ["".join(f"{_describe_setting(path)}\n" for path in paths)] if paths else []
    if not texts:
        names = [member for registry, _ in REGISTRIES.values() for member in choices(registry)]
        names += [*LISTS, *Config.model_fields]
        raise InputError(f"no help about {name!r}; {nearest(name, names)}; topics: all, {', '.join(LISTS)}.")
    return "\n".join(texts)


def similar_options(key: str) -> list[str]:
    """Return up to three options that the user may have meant by `key`, see `similar_settings`."""
    return [flag(path) for path in similar_settings(key)]


def _describe_setting(path: str) -> str:
    if path in Config.model_fields:
        return option_help(path, Config.model_fields[path])
    if path in NAMED:
        return option_line(f"{flag(path)} NAME", f"{NAMED[path].kind}, see --help {NAMED[path].kind}s")
    setting, _, argument = path.rpartition(".")
    registry = NAMED.get(setting)
    takers = {member: _defaults(registry, member) for member in registry} if registry else {}
    defaults = [f"{member} [{values[argument]}]" for member, values in takers.items() if argument in values]
    return option_line(flag(path), f"argument of {', '.join(defaults)}" if defaults else f"part of {flag(setting)}")


def _describe(name: str, registry: Registry, setting: str) -> str:
    options = [f"--{setting}.{key} {value}" for key, value in _defaults(registry, name).items()]
    command = " ".join([f"--{setting} {name}", *options])
    return f"{registry.kind} {name}, with its defaults:\n  {command}\n\n{inspect.getdoc(registry[name]) or ''}\n"


def _defaults(registry: Registry, name: str) -> dict[str, str]:
    values = {} if registry is evaluators else registry.arguments(name).defaults  # `evaluation` sets theirs
    return {key: shown_default(value) for key, value in values.items() if key != "reduction"}


def _rows(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each member of the list `kind`, such as `losses`."""
    if kind in REGISTRIES:
        registry, _ = REGISTRIES[kind]
        for name in choices(registry):
            yield name, registry.summary(name)
            if defaults := _defaults(registry, name):
                yield "", ", ".join(map("=".join, defaults.items()))
    elif kind == "datasets":
        from graphcl.datasets import dataset_names

        for line in textwrap.wrap(", ".join(dataset_names()), 108, break_on_hyphens=False):
            yield line, ""
        for name in sources:
            if takes := sources.facts(name)["takes"]:
                yield f"or {takes}", ""
    else:
        for name, file in shipped_configs().items():
            yield name, file.read_text(encoding="utf-8").split("\n# ")[1].split(":")[0]
