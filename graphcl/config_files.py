"""Settings in files: YAML as it is read here, and the configurations and sweeps that come with the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from graphcl.arguments import nearest
from graphcl.errors import InputError


def read_config(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file; a name such as `graphcl/MUTAG` means a file that comes with the package.

    A `result.json`, or a cell of a sweep, gives the settings that it came from.

    Raises:
        InputError: no such file, or not a YAML mapping.
    """
    file = Path(path)
    if not file.exists():
        name, shipped = str(path).removesuffix(".yaml").removeprefix("configs/"), shipped_configs()
        if name not in shipped:
            raise InputError(f"there is no file or configuration {str(path)!r}; {nearest(name, shipped)}.")
        file = shipped[name]
    values = read_yaml(file)
    # What a run or a sweep keeps holds its settings, too, so that any result can be had again.
    kept = values.get("config")
    return kept if isinstance(kept, dict) else values


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        InputError: not readable, or not a mapping.
    """
    try:
        values = yaml.load(file.read_text(), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{file} is not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} must hold a mapping of settings, got {type(values).__name__}.")
    return values


def shipped_configs() -> dict[str, Path]:
    """The configurations that come with the package, by name."""
    return {name: file for name, file in _shipped() if not name.startswith("sweeps/")}


def shipped_sweeps() -> dict[str, Path]:
    """The sweeps that come with the package, by name."""
    return {name.removeprefix("sweeps/"): file for name, file in _shipped() if name.startswith("sweeps/")}


def parse_value(text: str) -> Any:
    """A value from the command line, read as YAML: `0.7`, `1e-3`, `inf`, `true`, `[1, 2]`, `null`, else text."""
    if text.lstrip("+-") == "inf":
        return float(text)
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError:
        return text


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for text; here it is a number, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)$"), list("-+.0123456789")
)
# In an installed wheel the configurations lie inside the package, in a checkout beside it.
_PACKAGE = Path(__file__).parent
_SHIPPED = [_PACKAGE / "configs"] if (_PACKAGE / "configs").is_dir() else [_PACKAGE.parent / "configs"]


def _shipped() -> Iterator[tuple[str, Path]]:
    for folder in _SHIPPED:
        for file in sorted(folder.rglob("*.yaml")):
            yield file.relative_to(folder).with_suffix("").as_posix(), file
