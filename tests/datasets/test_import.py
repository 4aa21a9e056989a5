"""What importing costs, and where a load may reach."""

import subprocess
import sys
import types

import torch
from torch_geometric.data import Data

from graphcl.datasets import load_dataset

HEAVY = ["sklearn", "networkx", "ogb", "matplotlib", "scipy", "pandas"]


def test_import_is_cheap():
    # PyG's loaders import pandas themselves where it is installed.
    code = "import sys, torch_geometric.loader; before = {*sys.modules}; import graphcl.datasets; "
    code += f"print([m for m in {HEAVY} if m in sys.modules and m not in before])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_synthetic_needs_no_file(monkeypatch, root):
    module = types.ModuleType("graphcl.datasets.synthetic")
    module.synthetic = lambda: [Data(edge_index=torch.zeros(2, 0).long(), num_nodes=n, y=n) for n in (1, 2)]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert load_dataset("synthetic", root, mirror="/not/there").name == "synthetic"
    assert not root.exists()
