"""Check and complete specifications such as `{name: adnce, mu: 0.7}`, and build augmentations from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from graphcl.arguments import must_be, nearest
from graphcl.errors import InputError, one_line
from graphcl.registry import Registry, augmentations


class ConfigError(InputError):
    """One or more settings are invalid; the message has one line per problem."""


def as_spec(value: Any) -> Any:
    """Return `{name: value}` if `value` is a bare name, else `value` unchanged."""
    return {"name": value} if isinstance(value, str) else value


_ADVICE = "; register it (docs/extending.md), or use TwoViews and train"
_A_NAME = must_be("a registered name", lambda value: not callable(value), _ADVICE)
Named = Annotated[dict[str, Any], BeforeValidator(as_spec), BeforeValidator(_A_NAME.func)]
"""A registered name with its arguments, as in `{name: adnce, mu: 0.7}`; a bare name has the default arguments."""


def choices(registry: Registry) -> list[str]:
    """Return the registered names that a run accepts: all except losses that need labels."""
    return [name for name in registry if registry.kind != "loss" or "labels" not in registry.arguments(name).tensors]


def spec_problems(spec: Any, registry: Registry, prefix: str) -> list[str]:
    """Return a line for each problem of a specification such as `{name: adnce, mu: 0.7}` of the setting `prefix`."""
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        return [f"`{prefix}` must be a name or a mapping with a `name`, got {one_line(repr(spec), 60)}."]
    arguments = {key: value for key, value in spec.items() if key != "name"}
    if spec["name"] not in registry:
        unknown = f"`{prefix}`: unknown {registry.kind} {spec['name']!r}"
        return [f"{unknown}; {nearest(spec['name'], choices(registry))}; --import FILE adds your own."]
    known, found = registry.arguments(spec["name"]), []
    if not (known.defaults or known.required or known.tensors):
        return [f"`{prefix}.{key}` is not a known key; {spec['name']} takes no arguments." for key in arguments]
    if "members" in known.required:
        members = arguments.pop("members", None)
        if not isinstance(members, list) or not members:
            found.append(f"`{prefix}.members` must be a list of one or more {registry.kind}s, got {members!r}.")
        else:
            for position, member in enumerate(members):
                found += spec_problems(as_spec(member), registry, f"{prefix}.members.{position}")
    return found + registry.problems(spec["name"], arguments, f"{prefix}.")


def complete_spec(spec: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    """Return a valid specification with all defaults filled in, including the defaults of its members."""
    complete = {"name": spec["name"], **registry.arguments(spec["name"]).defaults, **spec}
    if "members" in complete:
        complete["members"] = [complete_spec(as_spec(member), registry) for member in complete["members"]]
    return complete


def build_augmentation(spec: Mapping[str, Any]) -> Any:
    """Return the augmentation described by a valid specification; members of a composed augmentation are built too."""
    arguments = {key: value for key, value in spec.items() if key != "name"}
    if "members" in arguments:
        arguments["members"] = [build_augmentation(as_spec(member)) for member in arguments["members"]]
    return augmentations[spec["name"]](**arguments)
