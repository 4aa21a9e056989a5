"""Colours against plain Python integers, the WL kernel's colours and PyG's WLConv."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch_geometric.data import Batch, Data
from torch_geometric.nn import WLConv

from graphcl.datasets import load_dataset
from graphcl.graphs import wl
from graphcl.graphs.colours import GOLDEN, OUTGOING, OWN, first_colours, mix, refine
from tests.conftest import small_graphs

WRAP = 2**64


def mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WRAP
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WRAP
    return z ^ (z >> 31)


def first(row: list[float]) -> int:
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in row]
    return mixed((OWN + sum(mixed((b + GOLDEN * (f + 1)) % WRAP) for f, b in enumerate(bits) if row[f])) % WRAP)


def as_signed(number: int) -> int:
    return number - WRAP if number >= WRAP // 2 else number


def test_mix_is_the_published_splitmix64():
    # the first outputs of SplitMix64 with seed 1234567, https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    states = 1234567 + torch.arange(1, 4) * GOLDEN
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [number % WRAP for number in mix(states).tolist()] == published


@given(strategies.lists(strategies.tuples(*[strategies.sampled_from([0.0, -0.0, 1.0, -2.5, 1e300])] * 3), max_size=5))
def test_first_colours_equal_plain_python(rows):
    found = first_colours(torch.tensor(rows, dtype=torch.float64).reshape(-1, 3))
    assert found.tolist() == [as_signed(first(list(row))) for row in rows]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
def test_refined_colours_equal_plain_python(both, labelled):
    nodes, edges = [11, 22, 22, 33], [(0, 1), (1, 2), (3, 2), (2, 0), (3, 2)]
    labels = [5, 6, 5, 5, 7] if labelled else [0] * 5
    found = refine(torch.tensor(nodes), torch.tensor(edges).T, 2, torch.tensor(labels) if labelled else None, both)
    colours, levels = nodes, [nodes]
    for _ in range(2):
        sums = [OWN * colour for colour in colours]
        for (source, target), label in zip(edges, labels, strict=True):
            sums[target] += mixed((colours[source] + label) % WRAP)
            if both:
                sums[source] += mixed((colours[target] + label + OUTGOING) % WRAP)
        colours = [mixed(total % WRAP) for total in sums]
        levels.append(colours)
    assert found.tolist() == [[as_signed(colour) for colour in level] for level in levels]


def test_features_of_any_type_and_of_more_columns_have_equal_colours():
    x = torch.tensor([[0, 3], [2, 0]])
    wanted = first_colours(x)
    assert first_colours(torch.nn.functional.pad(x.float(), (0, 4))).equal(wanted)
    assert first_colours(torch.tensor([[0.1, 1.4], [0.9, -0.2]]), step=0.5).equal(wanted)


def same_partition(one, other) -> bool:
    pairs = np.unique(np.stack([np.asarray(one), np.asarray(other)]), axis=1)
    return pairs.shape[1] == len(np.unique(one)) == len(np.unique(other))


def check_partition(x, edge_index, depth):
    found, convolution = refine(first_colours(x), edge_index, depth), WLConv()
    labels = np.unique(x.numpy(), axis=0, return_inverse=True)[1].reshape(-1)
    pyg = torch.from_numpy(labels)
    for level, of_kernel in zip(found, wl.refine(labels, edge_index.numpy(), depth), strict=True):
        assert same_partition(level, of_kernel)
        assert same_partition(level, pyg)
        pyg = convolution(pyg, edge_index)
    assert len(found.unique()) == sum(len(level.unique()) for level in found)  # no colour occurs at two depths


def test_partition_of_small_graphs_is_that_of_the_kernel_and_of_pyg():
    batch = Batch.from_data_list(small_graphs())
    check_partition(batch.x, batch.edge_index, 4)


@pytest.mark.parametrize("name", ["MUTAG", "PTC_MR", "BZR", "PROTEINS", "NCI1", "NCI109", "IMDB-BINARY", "IMDB-MULTI"])
def test_partition_of_real_graphs_is_that_of_the_kernel_and_of_pyg(name, mirror, tmp_path):
    data = Batch.from_data_list(list(load_dataset(name, tmp_path, mirror))[:100])
    check_partition(data.x, data.edge_index, 3)


def test_direction_and_edge_labels_count():
    x, path = torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]])
    ends = first_colours(x)
    incoming, both = (refine(ends, path, 1, both=both)[1] for both in (False, True))
    assert incoming[1] == incoming[2] != incoming[0]
    assert len(both.unique()) == 3
    labelled = refine(ends, path, 1, first_colours(torch.tensor([0, 1])))[1]
    assert len(labelled.unique()) == 3
    symmetric = torch.cat([path, path.flip(0)], 1)
    assert same_partition(refine(ends, symmetric, 2)[2], refine(ends, symmetric, 2, both=True)[2])


def test_colours_do_not_depend_on_the_rest_of_the_batch():
    graphs = small_graphs(6)
    alone = torch.cat([refine(first_colours(each.x), each.edge_index, 2) for each in graphs], 1)
    batch = Batch.from_data_list(
        [
            *graphs,
            Data(x=torch.zeros(1, 3), edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=1, y=torch.tensor([0])),
        ]
    )
    assert refine(first_colours(batch.x), batch.edge_index, 2)[:, :-1].equal(alone)
