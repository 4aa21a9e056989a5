"""Test the molecule encoder against OGB's embedding tables and PyG's layers."""

import importlib.util
import itertools

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool

from graphcl.extensions.molecules.encoder import ATOM_SIZES, BOND_SIZES, MASK, Categories, MoleculeGINE
from tests.datasets.graphs import one_line
from tests.datasets.ogb_files import make_molecules

needs_ogb = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="ogb is not installed")


def molecules(n: int = 6) -> list[Data]:
    graphs = []
    for x, ends, bonds, _ in make_molecules(n):
        pairs = torch.from_numpy(ends).T
        edge_index, edge_attr = torch.cat([pairs, pairs.flip(0)], dim=1), torch.from_numpy(bonds).repeat(2, 1)
        graphs.append(Data(x=torch.from_numpy(x), edge_index=edge_index, edge_attr=edge_attr))
    return graphs


@pytest.fixture(scope="module")
def batch():
    alone = Data(x=torch.zeros(1, 9).long(), edge_index=torch.zeros(2, 0).long(), edge_attr=torch.zeros(0, 3).long())
    return Batch.from_data_list([*molecules(), alone])


def make(**options):
    torch.manual_seed(0)
    return MoleculeGINE(9, 3, **{"hidden_channels": 8, "num_layers": 3, **options}).double()


@needs_ogb
def test_the_tables_are_ogb_s():
    from graphcl.system.optional import import_ogb

    import_ogb()
    from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    assert tuple(get_atom_feature_dims()) == ATOM_SIZES
    assert tuple(get_bond_feature_dims()) == BOND_SIZES
    for sizes, theirs, name in (
        (ATOM_SIZES, AtomEncoder(16), "atom_embedding_list"),
        (BOND_SIZES, BondEncoder(16), "bond_embedding_list"),
    ):
        ours = Categories(sizes, 16, "x")
        with torch.no_grad():
            for table, other in zip(ours.split(), getattr(theirs, name), strict=True):
                table[:-1] = other.weight
        values = torch.stack([torch.randint(size, (200,)) for size in sizes], dim=1)
        values[: max(sizes)] = torch.stack([torch.arange(max(sizes)) % size for size in sizes], dim=1)  # each once
        torch.testing.assert_close(ours(values), theirs(values))


def test_each_masked_column_has_a_row_of_its_own():
    table = Categories((3, 2), 4, "x")
    one, two = table.split()
    values = torch.tensor([[MASK, MASK], [MASK, 1], [2, MASK], [2, 1]])
    expected = torch.stack([one[3] + two[2], one[3] + two[1], one[2] + two[2], one[2] + two[1]])
    torch.testing.assert_close(table(values), expected)
    table(values).sum().backward()
    assert table.tables.grad[:, 0].tolist() == [0, 0, 2, 2, 0, 2, 2]


def test_invalid_molecules_are_rejected(batch):
    for values, says in [
        ([[0, 0], [3, 0]], "column 0 of `x` must be in 0 .. 2 (-1: masked), got 3 in row 1."),
        ([[0, -2]], "column 1 of `x` must be in 0 .. 1 (-1: masked), got -2 in row 0."),
        ([[0]], "takes integer `x` of shape [*, 2], as in OGB's molecules, got [1, 1] of int64; use gin"),
        ([[0.0, 1.0]], "got [1, 2] of float32; use gin"),
    ]:
        one_line(lambda: Categories((3, 2), 4, "x")(torch.tensor(values)), says)  # noqa: B023, called at once
    one_line(lambda: MoleculeGINE(7, 3), "takes 9 columns of `x` and 3 of `edge_attr`, ", "got 7 and 3; use gin")
    one_line(lambda: make()(batch.x, batch.edge_index), "MoleculeGINE needs `edge_attr`, but got none; use gin")


def test_it_is_pyg_layer_by_layer(batch):
    for readout, training, jk in itertools.product(["mean", "sum"], [True, False], ["last", "cat"]):
        encoder = make(readout=readout, jk=jk).train(training)
        levels = [encoder.atoms(batch.x)]
        for number, layer in enumerate(encoder.layers, start=1):
            nodes = layer.norm(GINEConv(layer.nn)(levels[-1], batch.edge_index, layer.bonds(batch.edge_attr)))
            levels.append(nodes.relu() if number < 3 else nodes)
        nodes = torch.cat(levels, dim=1) if jk == "cat" else levels[-1]
        assert encoder.out_channels == nodes.size(1)
        expected = (global_mean_pool if readout == "mean" else global_add_pool)(nodes, batch.batch, batch.num_graphs)
        given = batch.x, batch.edge_index, batch.batch
        h, rows = encoder.with_nodes(*given, size=batch.num_graphs, edge_attr=batch.edge_attr)
        assert torch.allclose(h, expected, rtol=1e-10), (readout, training, jk)
        assert torch.allclose(rows, nodes, rtol=1e-10), (readout, training, jk)
        assert torch.allclose(encoder(*given, edge_attr=batch.edge_attr), expected), (readout, training, jk)
