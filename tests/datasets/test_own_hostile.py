"""Test that files with inconsistent graphs are read or raise a one-line InputError, with little memory."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from graphcl.datasets import load_dataset
from graphcl.loaders.loader import make_loader
from tests.conftest import small_graphs
from tests.memory import peak

NONE = torch.zeros(2, 0, dtype=torch.long)


def collated(attributes=None, slices=None):
    data, cuts = InMemoryDataset.collate(small_graphs(4))
    return {**data.to_dict(), **(attributes or {})}, {**cuts, **(slices or {})}, {}, Data


def inner(**changes):
    """Return two graphs with `changes` to their `__dict__`."""
    graph = small_graphs(1)[0]
    graph.__dict__.update(changes)
    return [graph, graph]


def saved(slices, **attributes):
    """Return what `InMemoryDataset.save` writes for graphs with these attributes and slices."""
    return {**attributes}, {key: torch.tensor(cut) for key, cut in slices.items()}, Data


PAIR = torch.tensor([[0, 1], [1, 0]])
HOSTILE = {
    "empty": (b"", "is not a PyTorch file"),
    "half": (b"PK\3\4 and no more", "is not a PyTorch file"),
    "tensor": (torch.ones(3), "is not a data set saved by PyG"),
    "hetero": (({}, {}, HeteroData), "heterogeneous graphs are not supported"),
    "one graph": (({"edge_index": PAIR}, None, Data), "holds 1 graph"),
    "no slices": (saved({}, edge_index=PAIR), "holds no graph"),
    "wrong slices": (saved({"edge_index": [0, 1, 9]}, edge_index=PAIR), "slices of `edge_index`"),
    "other slices": (saved({"x": [0, 1, 2]}, edge_index=PAIR, x=PAIR), "slices of `edge_index` not found"),
    "no edges": (saved({"x": [0, 1, 2]}, x=PAIR), "got none"),
    "sparse edges": (saved({"edge_index": [0, 1, 2]}, edge_index=PAIR.to_sparse()), "dense torch tensor"),
    "int32 edges": (saved({"edge_index": [0, 1, 2]}, edge_index=PAIR.int()), "got [2, 2] of int32"),
    "many-nodes": ([Data(edge_index=NONE, num_nodes=10**12)] * 2, "nodes have neither features nor edges"),
    "far-edges": ([Data(edge_index=torch.tensor([[10**15], [0]]))] * 2, "nodes have neither features nor edges"),
    "last-edge": ([Data(edge_index=torch.tensor([[2**63 - 1], [0]]))] * 2, "no node in graphs 0 and 1"),
    "num-nodes": ([Data(edge_index=NONE, num_nodes="many")] * 2, "the graphs cannot be put together"),
    "views": ([Data(x=torch.ones(1, 1).expand(10**9, 1), edge_index=NONE)] * 2, "its tensors claim 8000000000 bytes"),
    "no-slices": (collated(slices={"edge_index": None}), "slices of `edge_index` not found"),
    "x-uncut": (collated(slices={"x": [0]}), "slices of `x` not found"),
    "halves": (collated(slices={"x": torch.arange(5) / 2}), "slices of `x` not found"),
    "counts": (collated({"_num_nodes": [1, "2"]}), "its parts are inconsistent"),
    "counts-below": (collated({"_num_nodes": [-1]}), "`num_nodes` is given for 1 of 4 graphs"),
    "store": (inner(_store={"x": 1}), "is not a PyTorch file, or is corrupted"),
    "complex": (collated({"x": torch.ones(35, 3) * 1j}), "real numbers"),
}


@pytest.mark.parametrize(("content", "says"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_refused(content, says, tmp_path, refused):
    file = tmp_path / "f.pt"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    with peak() as found:
        refused(file, says)
    assert found[0] < 64 * 2**20


@pytest.mark.parametrize("key", ["num_edges", "keys", "batch", "ptr", "face"])
@pytest.mark.parametrize("value", [torch.arange(4.0), [1, 2, 3, 4], None], ids=["tensor", "list", "none"])
def test_attributes_with_names_that_pyg_uses(key, value, tmp_path, root):
    torch.save(collated({key: value}, {key: torch.arange(5)}), tmp_path / "f.pt")
    dataset = load_dataset(tmp_path / "f.pt", root)
    assert sum(batch.num_graphs for batch in make_loader(dataset, 2)) == 4


def test_an_unforeseen_error_is_one_line_with_its_cause(tmp_path, root, refused, monkeypatch):
    import graphcl.datasets.load as load

    def fail(*args):
        raise KeyError("a\nb")

    monkeypatch.setattr(load, "prepare", fail)
    torch.save(small_graphs(2), tmp_path / "f.pt")
    refused(tmp_path / "f.pt", "cannot load", "its parts are inconsistent")
    with pytest.raises(KeyError):  # the error is converted to InputError for files only
        load_dataset(small_graphs(2), root)
