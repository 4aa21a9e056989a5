"""Settings in files: YAML as it is read here, and the configurations and sweeps that come with the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from graphcl.arguments import nearest
from graphcl.errors import InputError, one_line
from graphcl.system.files import read_text

MOST_BYTES = 4 * 2**20
"""Bytes of a file of settings; the largest that there are hold the results of a run, too."""
_MOST_DEPTH = 50


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
        values = _load(read_text(file, MOST_BYTES))
    except (yaml.YAMLError, InputError, OSError) as error:
        raise InputError(f"{file} is not readable as YAML: {one_line(error, 300)}") from None
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
    if text in ("inf", "+inf", "-inf"):
        return float(text)
    try:
        return _load(text)
    except yaml.YAMLError:
        return text


def _load(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: it is none, or unfolds to far more than its size, or is nested too deeply.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, ArithmeticError, LookupError, RecursionError, TypeError, AttributeError) as error:
        # Dates that there are not, numbers of thousands of digits, words that say `!!int`, brackets in brackets.
        raise yaml.YAMLError(one_line(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for text; here it is a number, as in YAML 1.2. What unfolds without end is refused."""

    def get_single_node(self) -> yaml.Node | None:
        """The tree of the text, in which an alias stands for as much as its anchor."""
        tree: yaml.Node | None = super().get_single_node()
        _check_size(tree, self.get_mark().index)
        return tree

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are texts, as all settings' are; `null` and `1` are `"None"` and `"1"`."""
        return {str(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_scalar(self, node: Any) -> Any:
        """The text of a node; without the sign at which the system would end a file's name."""
        text = super().construct_scalar(node)
        if isinstance(text, str) and "\0" in text:
            raise yaml.YAMLError("a text holds a NUL character")
        return text


def _check_size(tree: yaml.Node | None, length: int) -> None:
    """Refuse a tree with far more nodes than its text has characters, which only aliases of aliases can make."""
    count, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        count += len(inner)
        if count > 1000 + 10 * length or depth > _MOST_DEPTH:
            raise yaml.YAMLError("it is nested too deeply, or its aliases unfold to too much")
        for each in inner:
            waiting += [(part, depth + 1) for part in (each if isinstance(each, tuple) else (each,))]


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)$"), list("-+.0123456789")
)
# In an installed wheel the configurations lie inside the package, in a checkout beside it.
_PACKAGE = Path(__file__).parents[1]
_SHIPPED = [_PACKAGE / "configs"] if (_PACKAGE / "configs").is_dir() else [_PACKAGE.parent / "configs"]


def _shipped() -> Iterator[tuple[str, Path]]:
    for folder in _SHIPPED:
        for file in sorted(folder.rglob("*.yaml")):
            yield file.relative_to(folder).with_suffix("").as_posix(), file
