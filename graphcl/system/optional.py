"""Imports of optional packages; if a package is missing, the error says how to install it."""

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
    """Return the module `ogb.graphproppred`, imported without its network access.

    Raises:
        InputError: ogb is not installed, or cannot be imported.
    """
    try:
        with _no_version_check():
            importlib.import_module("ogb")
        return importlib.import_module("ogb.graphproppred")
    except ImportError as error:
        raise InputError(
            f"OGB's data sets are read and scored by its own package ({error}); pip install 'graphcl[ogb]'."
        ) from None


def import_matplotlib() -> ModuleType:
    """Return the module `matplotlib`.

    Raises:
        InputError: matplotlib is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise InputError(f"figures are drawn by matplotlib ({error}); pip install 'graphcl[viz]'.") from None


@contextmanager
def _no_version_check() -> Iterator[None]:
    """Hide the package `outdated` within the block; then restore the variable OUTDATED_IGNORE, which `import ogb` sets.

    `import ogb` starts a thread that asks PyPI for a newer version. Offline, the interpreter does not exit before the
    thread's connections time out. Without `outdated`, ogb starts no thread.
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
