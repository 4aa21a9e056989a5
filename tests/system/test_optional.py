"""Optional packages: import without side effects, and the error message for a missing package."""

import importlib.util
import os
import sys
import threading

import pytest

from graphcl.errors import InputError
from graphcl.system.optional import import_ogb

needs_ogb = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="ogb is not installed")


@needs_ogb
@pytest.mark.parametrize("variable", [None, "0"])
def test_ogb_is_imported_without_its_version_check(variable, monkeypatch):
    for name in [name for name in sys.modules if name in ("ogb", "ogb.version", "outdated")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("OUTDATED_IGNORE", raising=False)
    if variable is not None:
        monkeypatch.setenv("OUTDATED_IGNORE", variable)
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    assert import_ogb().PygGraphPropPredDataset is not None
    assert sys.modules["ogb.version"].check_outdated is None
    assert started == []
    # Modules and environment are restored.
    assert "outdated" not in sys.modules
    assert os.environ.get("OUTDATED_IGNORE") == variable
    monkeypatch.delitem(sys.modules, "ogb.version")
    monkeypatch.delitem(sys.modules, "ogb")


def test_a_missing_package_gives_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(InputError, match=r"data sets need the package ogb .*; pip install 'graphcl\[ogb\]'"):
        import_ogb()
