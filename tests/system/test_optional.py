"""Optional packages: import without side effects, and the error message for a missing package."""

import sys
import threading
import types

import pytest

from graphcl.errors import InputError
from graphcl.system.optional import import_ogb


@pytest.mark.parametrize("installed", [False, True])
def test_ogb_is_imported_without_its_version_check(installed, monkeypatch):
    pytest.importorskip("ogb")
    outdated = types.SimpleNamespace(check_outdated=print)
    for name in ("ogb", "ogb.version", "outdated"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if installed:
        monkeypatch.setitem(sys.modules, "outdated", outdated)
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    assert import_ogb().PygGraphPropPredDataset is not None
    assert sys.modules["ogb.version"].check_outdated is None
    assert started == []
    assert sys.modules.get("outdated") is (outdated if installed else None)


def test_a_missing_package_gives_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(InputError, match=r"data sets need the package ogb .*; pip install 'graphcl\[ogb\]'"):
        import_ogb()
