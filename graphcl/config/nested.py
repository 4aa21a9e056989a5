"""Operate on nested settings (plain dicts): set a value by path, flatten to dotted paths, compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any


def set_value(values: dict[str, Any], path: Sequence[str], value: Any, defaults: Mapping[str, Any]) -> None:
    """Set a nested value in place, and create missing mappings on its path.

    A bare name on the path, such as `adnce`, becomes `{name: adnce}`. A missing mapping starts as its value in
    `defaults` if that has a `name`; otherwise it starts empty.
    """
    default: Any = defaults
    for key in path[:-1]:
        default = default.get(key) if isinstance(default, dict) else None
        # leave out the defaults of groups such as `evaluation`, so that only given settings count as set by the user
        group = isinstance(default, dict) and "name" not in default
        inner = values.get(key, {} if group else default)
        values[key] = {"name": inner} if isinstance(inner, str) else dict(inner) if isinstance(inner, dict) else {}
        values = values[key]
    values[path[-1]] = value


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted path, value)` of each nested setting.

    Example:
        >>> list(flat_values({"loss": {"name": "adnce", "mu": 0.7}, "lr": 0.01}))
        [('loss.name', 'adnce'), ('loss.mu', 0.7), ('lr', 0.01)]
    """
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat_values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(old: Mapping[str, Any], new: Mapping[str, Any], ignored: Collection[str] = ()) -> list[str]:
    """Return one phrase per setting that differs between two configurations, such as "`lr` was 0.01 and is 0.1".

    Top-level settings in `ignored` are not compared.
    """
    before, after = (dict(flat_values({k: v for k, v in each.items() if k not in ignored})) for each in (old, new))
    return [
        f"`{key}` was {before[key]!r} and is {after[key]!r}"
        if key in before and key in after
        else f"`{key}` {'is new' if key in after else 'was removed'}"
        for key in dict.fromkeys([*before, *after])
        if key not in before or key not in after or before[key] != after[key]
    ]
