"""Optional packages, imported when they are needed; one that is not there gives one line that says how to get it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from graphcl.errors import InputError


def import_ogb() -> ModuleType:
    """`ogb.graphproppred`, imported without a look at the network.

    Raises:
        InputError: it is not installed, or cannot be imported.
    """
    try:
        with _no_version_check():
            importlib.import_module("ogb")
        return importlib.import_module("ogb.graphproppred")
    except ImportError as error:
        raise InputError(
            f"data sets of OGB are read and scored by its own package ({error}); pip install 'graphcl[ogb]'."
        ) from None


def import_matplotlib() -> ModuleType:
    """`matplotlib`.

    Raises:
        InputError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise InputError(f"pictures are drawn by matplotlib ({error}); pip install 'graphcl[viz]'.") from None


@contextmanager
def _no_version_check() -> Iterator[None]:
    """Hide the package `outdated` for a while, and keep an environment variable.

    `import ogb` starts a thread that asks the package index for a newer version, and the interpreter waits at its end
    for that thread, offline until the time limits of several connections have passed. Without `outdated` there is none.
    """
    absent = object()
    module: Any = sys.modules.get("outdated", absent)
    variable = os.environ.get("OUTDATED_IGNORE")
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["outdated"]
        if module is not absent:
            sys.modules["outdated"] = module
        os.environ.pop("OUTDATED_IGNORE", None)
        if variable is not None:
            os.environ["OUTDATED_IGNORE"] = variable
