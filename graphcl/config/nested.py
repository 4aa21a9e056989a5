"""Operate on nested settings (plain dicts): expand dotted keys, flatten to dotted paths, compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from graphcl.errors import InputError


def expanded(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values with dotted keys resolved; a bare name beside them is the `name` of its mapping.

    Raises:
        InputError: a value is given twice, as `loss.mu` and as `mu` in `loss`.

    Example:
        >>> expanded({"loss": "adnce", "loss.mu": 0.7, "views.first": "identity"})
        {'loss': {'name': 'adnce', 'mu': 0.7}, 'views': {'first': 'identity'}}
    """
    result: dict[str, Any] = {}
    for key in sorted(values, key=lambda key: str(key).count(".")):
        value = values[key]
        value = expanded(value, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        *parents, name = str(key).split(".") if isinstance(key, str) and all(key.split(".")) else [key]
        place = result
        for parent in parents:
            inner = place.get(parent, {})
            place[parent] = {"name": inner} if isinstance(inner, str) else inner
            place = place[parent]
            if not isinstance(place, dict):
                raise InputError(f"`{prefix}{key}` is given beside `{prefix}{parent}` {place!r}; give one of them.")
        if name in place:
            raise InputError(f"`{prefix}{key}` is given twice; give it once.")
        place[name] = value
    return result


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

    Top-level settings in `ignored` are not compared, nor is a `target_encoder` that is the encoder of queries.
    """
    if all(settings.get("target_encoder") == settings.get("encoder") for settings in (old, new)):
        ignored = {*ignored, "target_encoder"}
    before, after = (
        {path: value for path, value in flat_values(settings) if path.split(".")[0] not in ignored}
        for settings in (old, new)
    )
    phrases = []
    for path in dict.fromkeys([*before, *after]):
        if path not in before or path not in after:
            phrases.append(f"`{path}` {'is new' if path in after else 'was removed'}")
        elif before[path] != after[path]:
            phrases.append(f"`{path}` was {before[path]!r} and is {after[path]!r}")
    return phrases
