"""Import optional packages; if a package is missing, raise an error that says how to install it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from graphcl.errors import InputError


def optional(module: str, need: str, extra: str) -> ModuleType:
    """Import and return `module` of an optional package.

    Args:
        module: name of the module.
        need: what needs which package, the beginning of the error message.
        extra: the extra of this package that installs it.

    Raises:
        InputError: the module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{need} ({error}); pip install 'graphcl[{extra}]'.") from None


def import_ogb(module: str = "graphproppred") -> ModuleType:
    """Import and return a module of ogb, without the network access of `import ogb`.

    It starts a thread that asks PyPI for a newer version. Offline, the interpreter does not exit before the thread's
    connections time out. Without the package `outdated` there is no thread, so that package is hidden meanwhile.
    """
    need = "OGB's data sets need the package ogb"
    modules: dict[str, Any] = sys.modules
    before = {name: modules[name] for name in ("outdated",) if name in modules}
    modules["outdated"] = None
    try:
        optional("ogb", need, "ogb")
    finally:
        del modules["outdated"]
        modules |= before
    return optional(f"ogb.{module}", need, "ogb")
