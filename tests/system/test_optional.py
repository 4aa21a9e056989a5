"""Optional packages: import without side effects, and the error message for a missing package."""

import sys
import threading

import pytest

from graphcl.system.optional import import_ogb


def test_ogb_is_imported_without_its_version_check(monkeypatch):
    pytest.importorskip("ogb")
    for name in ("ogb", "ogb.version", "outdated"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    started = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    assert import_ogb().PygGraphPropPredDataset is not None
    assert sys.modules["ogb.version"].check_outdated is None
    assert (started, "outdated" in sys.modules) == ([], False)
