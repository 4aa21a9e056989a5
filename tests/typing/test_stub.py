"""The losses' signatures for type checkers and editors, `graphcl/losses/__init__.pyi`, are what the registry says.

`python tests/typing/test_stub.py` writes the file.
"""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import graphcl.losses

FILE = Path(graphcl.losses.__file__).with_suffix(".pyi")
HEAD = '''"""The losses as type checkers see them; written by tests/typing/test_stub.py from what is registered."""

from typing import Literal

from torch import Tensor

'''


def stub() -> str:
    """What the file should hold."""
    imports, classes, values = [], [], []
    for name in graphcl.losses.__all__:
        target = getattr(graphcl.losses, name)
        if not hasattr(target, "terms"):
            imports.append(f"from {target.__module__} import {name} as {name}\n")
            continue
        kind = "_" + name.title().replace("_", "")
        formula = signature(target.terms.__wrapped__)
        classes.append(f"class {kind}:\n    def __call__(self, {signature(target)}) -> Tensor: ...\n")
        classes[-1] += f"    @staticmethod\n    def terms({formula}) -> Tensor: ...\n\n"
        values.append(f"{name}: {kind}\n")
    return HEAD + "".join(sorted(imports)) + "\n" + "".join(classes) + "".join(values)


def signature(function: Callable) -> str:
    """The parameters, with types that need no further import."""
    hints, words, starred = get_type_hints(function), [], False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f" = {literal(parameter.default)}"
        words.append(f"{name}: {shown(hints[name])}{default}")
    return ", ".join(words)


def shown(kind: object) -> str:
    """A type as it is written."""
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if members := get_args(kind):
        return " | ".join(map(shown, members))
    return "None" if kind is type(None) else kind.__name__


def literal(value: object) -> str:
    """A default, where it can be written down."""
    return "..." if isinstance(value, float) and not math.isfinite(value) else repr(value)


def test_the_stub_is_up_to_date():
    written = FILE.read_text() if FILE.exists() else ""
    assert written == stub(), "run: python tests/typing/test_stub.py"


if __name__ == "__main__":
    FILE.write_text(stub())
