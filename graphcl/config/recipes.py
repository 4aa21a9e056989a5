"""Read YAML, from command-line values and from files of settings; expand, flatten and compare nested settings."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from graphcl.arguments import named_arguments, nearest
from graphcl.config.settings import Config
from graphcl.errors import InputError, one_line
from graphcl.system.files import read_text

_PACKAGE = Path(__file__).parents[1]
# an installed wheel contains the configurations; in a checkout they are next to the package
_SHIPPED = _PACKAGE / "configs" if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent / "configs"


MAX_BYTES = 4 * 2**20
"""Size limit of a settings file. The largest valid file is a `result.json`, which also contains scores."""
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


def read_yaml(file: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping, and return the mapping.

    Raises:
        InputError: the file cannot be read, or holds no mapping.
    """
    try:
        values = _load(read_text(file, MAX_BYTES))
    except (yaml.YAMLError, InputError, OSError) as error:
        raise InputError(f"{file} is not readable as YAML: {one_line(error, 300)}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} must hold a mapping of settings, got {type(values).__name__}.")
    return values


def parse_value(text: str) -> Any:
    """Parse a command-line value such as `0.7`, `1e-3`, `inf`, `[1, 2]` or `null`; return invalid YAML as a string."""
    try:
        return _load(text)
    except yaml.YAMLError:
        return text


def _load(text: str) -> Any:
    """Parse a YAML text and return its value.

    Raises:
        yaml.YAMLError: the text is invalid.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, ArithmeticError, LookupError, RecursionError, TypeError, AttributeError) as error:
        # PyYAML raises these for invalid dates, huge numbers, `!!int` of a word and deep nesting; make them YAMLErrors
        raise yaml.YAMLError(one_line(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML loader without code execution; it reads 1e-3 as a number and rejects keys given twice.

    Numbers are those of JSON: not `010`, which is 8 in YAML 1.1, nor `1:30`, which is 90.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of `node` with all keys as strings: `null` and `1` become `"None"` and `"1"`."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if len({*keys}) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.YAMLError(f"the key {twice!r} is given twice; give it once")
        return {str(key): value for key, value in super().construct_mapping(node, deep).items()}


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _form in (
    ("float", r"[-+]?((\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|\.?(inf|Inf|INF))|\.nan|\.NaN|\.NAN"),
    ("int", r"[-+]?(0|[1-9]\d*)"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_form})$"), list("-+.0123456789i"))


@named_arguments
def read_config(path: str | Path, dataset: str | None = None, folder: str = "") -> dict[str, Any]:
    """Read settings from a YAML file, or from the result file of a run or of a sweep's cell, and return them.

    A file may contain settings for single data sets, which override its others:

        loss: {name: adnce, temperature: 0.15}
        by_dataset:
          NCI1: {loss.temperature: 0.05, views.second: random3}

    Args:
        path: path of the file, or the name of a shipped configuration such as `graphcl`.
        dataset: data set whose settings are returned; of a path such as `data/NCI1.pt`, the name without suffix counts.
            Default: the data set that the file names.
        folder: folder of the shipped configurations that have a name; default: those of runs.

    Raises:
        InputError: the file is not found, contains no YAML mapping, or its `by_dataset` is not a mapping of mappings.
    """
    file, name, shipped = Path(path), str(path), shipped_configs(folder)
    if name in shipped and not file.is_file():  # a checkout contains a folder `graphcl`
        values = {**({} if folder else {"name": name}), **read_yaml(shipped[name])}
    elif file.exists():
        values = read_yaml(file)
        kept = values.get("config")  # result files contain the settings under `config`
        values = kept if isinstance(kept, dict) else values
    else:
        raise InputError(f"file or configuration {name!r} not found; {nearest(name, shipped)}.")
    groups = values.pop("by_dataset", {})
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        raise InputError(f"{path}: `by_dataset` must map names of data sets to settings, got {groups!r}.")
    return override(expanded(values), groups.get(Path(str(dataset or values.get("dataset"))).stem, {}))


def override(values: Mapping[str, Any], settings: Mapping[str, Any], model: type[BaseModel] = Config) -> dict[str, Any]:
    """Return nested `values` with the given settings of a model, such as `{"loss.mu": 0.5, "loss": "adnce"}`.

    Shorter names are set first, so that `loss` does not reset `loss.mu`. A bare name on a path, such as `adnce`,
    becomes `{name: adnce}`. A missing mapping starts as its default if that has a `name`; otherwise it starts empty, so
    that only given settings count as set by the user. `imports` add up, as names of all files may be needed.
    """
    result = copy.deepcopy(dict(values))
    for path, value in sorted(settings.items(), key=lambda item: item[0].count(".")):
        *parents, last = path.split(".")
        place = result
        default: Any = {name: plain_default(field) for name, field in model.model_fields.items()}
        for key in parents:
            default = default.get(key) if isinstance(default, dict) else None
            inner = place.get(key, default if isinstance(default, dict) and "name" in default else {})
            place[key] = {"name": inner} if isinstance(inner, str) else dict(inner) if isinstance(inner, dict) else {}
            place = place[key]
        if path == "imports":
            before, more = ([files] if isinstance(files, str) else files for files in (place.get(path, []), value))
            both = isinstance(before, list) and isinstance(more, list)
            value = list(dict.fromkeys([*before, *more])) if both else value
        place[last] = value
    return result


def plain_default(field: FieldInfo) -> Any:
    """Return the default of a setting; a group of settings becomes a dict."""
    return field.default.model_dump() if isinstance(field.default, BaseModel) else field.default


def shipped_configs(folder: str = "") -> dict[str, Path]:
    """Return the configurations of runs, `sweeps` or `transfer` shipped with the package: name -> file."""
    return {file.stem: file for file in sorted((_SHIPPED / folder).glob("*.yaml"))}


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
