"""Where a load may reach."""

import sys
import types

import torch
from torch_geometric.data import Data

from graphcl.datasets import load_dataset


def test_synthetic_needs_no_file(monkeypatch, root):
    module = types.ModuleType("graphcl.datasets.synthetic")
    module.synthetic = lambda: [Data(edge_index=torch.zeros(2, 0).long(), num_nodes=n, y=n) for n in (1, 2)]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert load_dataset("synthetic", root, mirror="/not/there").name == "synthetic"
    assert not root.exists()
