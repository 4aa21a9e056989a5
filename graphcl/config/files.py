"""Read YAML from files and from command-line values."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from graphcl.errors import InputError, one_line
from graphcl.system.files import read_text

MAX_BYTES = 4 * 2**20
"""Size limit of a settings file. The largest valid file is a `result.json`, which also contains scores."""
_MAX_DEPTH = 50
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
        yaml.YAMLError: the text is invalid, is nested too deeply, or expands to far more than its size by aliases.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, ArithmeticError, LookupError, RecursionError, TypeError, AttributeError) as error:
        # PyYAML raises these for invalid dates, huge numbers, `!!int` of a word and deep nesting; make them YAMLErrors
        raise yaml.YAMLError(one_line(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML loader without code execution; it reads 1e-3 as a number and rejects alias bombs and deep nesting.

    Numbers are those of JSON: not `010`, which is 8 in YAML 1.1, nor `1:30`, which is 90.
    """

    def get_single_node(self) -> yaml.Node | None:
        """Return the node tree of the text, which `_check` accepts."""
        tree: yaml.Node | None = super().get_single_node()
        _check(tree, self.get_mark().index)
        return tree

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of `node` with all keys as strings: `null` and `1` become `"None"` and `"1"`."""
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


def _check(tree: yaml.Node | None, length: int) -> None:
    """Raise YAMLError if a tree is too deep, gives a key twice, or holds a NUL character or more nodes than characters.

    Nested aliases can expand a short text to a huge tree, and a NUL character would truncate file names.
    """
    count, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        count += len(inner)
        if count > 1000 + length or depth > _MAX_DEPTH:
            raise yaml.YAMLError("it is nested too deeply, or its aliases unfold to too much")
        if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
            raise yaml.YAMLError("a text holds a NUL character")
        if isinstance(node, yaml.MappingNode):  # by the text of the keys, as `1` and `"1"` become one
            keys = Counter(key.value for key, _ in inner if isinstance(key, yaml.ScalarNode))
            if twice := [key for key, times in keys.items() if times > 1 and key != "<<"]:
                raise yaml.YAMLError(f"the key {twice[0]!r} is given twice; give it once")
        for each in inner:
            waiting += [(part, depth + 1) for part in (each if isinstance(each, tuple) else (each,))]
