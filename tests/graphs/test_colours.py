"""Colours against plain Python integers, the WL kernel's colours and PyG's WLConv."""

import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from torch_geometric.data import Batch, Data
from torch_geometric.nn import WLConv

from graphcl.datasets import load_dataset
from graphcl.graphs.wl import EDGE, GOLDEN, OUTGOING, OWN, first_colours, mix, numbered, refine
from tests.conftest import SHARED, small_graphs

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
    attributes = [5, 6, 5, 5, 7]
    labels = [mixed((each + EDGE) % WRAP) if labelled else 0 for each in attributes]
    found = refine(torch.tensor(nodes), torch.tensor(edges).T, 2, torch.tensor(attributes) if labelled else None, both)
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
    for level, of_kernel in zip(found, numbered(labels, edge_index.numpy(), depth), strict=True):
        assert same_partition(level, of_kernel)
        assert same_partition(level, pyg)
        pyg = convolution(pyg, edge_index)
    assert len(found.unique()) == sum(len(level.unique()) for level in found)  # no colour occurs at two depths


def test_partition_of_small_graphs_is_that_of_the_kernel_and_of_pyg():
    batch = Batch.from_data_list(small_graphs())
    check_partition(batch.x, batch.edge_index, 4)


@pytest.mark.filterwarnings("ignore:.*left out .*_attributes.txt")  # expected
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


def refined(nodes, edges, labels, depth, both):
    """Return the colours of plain refinement at each depth: a node's colour is nested tuples of all that it sees."""
    levels = [list(nodes)]
    for _ in range(depth):
        seen = [[] for _ in nodes]
        for (source, target), label in zip(edges, labels, strict=True):
            seen[target].append(("in", levels[-1][source], label))
            if both:
                seen[source].append(("out", levels[-1][target], label))
        colours = [(own, tuple(sorted(around))) for own, around in zip(levels[-1], seen, strict=True)]
        number = {colour: n for n, colour in enumerate(sorted(set(colours)))}
        levels.append([number[colour] for colour in colours])
    return levels


def check_labelled(x, edge_index, edge_attr, depth, both=False):
    """Check the colours with edge attributes; x, edge_attr: one row for each category."""
    found = refine(first_colours(x), edge_index, depth, first_colours(edge_attr), both)
    nodes, labels = (torch.unique(each, dim=0, return_inverse=True)[1].tolist() for each in (x, edge_attr))
    for level, wanted in zip(found, refined(nodes, edge_index.T.tolist(), labels, depth, both), strict=True):
        assert same_partition(level, wanted)


@given(strategies.integers(0, 2**32), strategies.booleans(), strategies.booleans())
def test_partition_with_labelled_edges_is_that_of_plain_refinement(seed, both, one_hot):
    """Directed multigraphs with self-loops; nodes and edges have the same categories."""
    generator = torch.Generator().manual_seed(seed)
    nodes, count = 10, int(torch.randint(20, (), generator=generator))
    ends = torch.randint(nodes, (2, count), generator=generator)
    x, edge_attr = (torch.randint(3, (size,), generator=generator) for size in (nodes, count))
    if one_hot:
        x, edge_attr = (torch.nn.functional.one_hot(each, 3) for each in (x, edge_attr))
    check_labelled(x, ends, edge_attr, 3, both)


def test_category_of_the_source_and_of_the_edge_are_not_exchanged():
    stars = torch.tensor([[1, 3], [0, 2]])  # 1 -> 0 and 3 -> 2
    x, edge_attr = torch.tensor([0, 1, 0, 2]), torch.tensor([2, 1])
    for attributes in (edge_attr, torch.nn.functional.one_hot(edge_attr)):
        features = x if attributes.dim() == 1 else torch.nn.functional.one_hot(x)
        assert len(refine(first_colours(features), stars, 1, first_colours(attributes))[1].unique()) == 4


def labelled_sets():
    """Return the names of the TU sets here whose edges have labels or attributes."""
    names = {path: zipfile.ZipFile(path).namelist() for path in sorted(SHARED.glob("*.zip"))}
    return [path.stem for path, files in names.items() if any("_edge_" in file for file in files)]


@pytest.mark.parametrize(
    "name", labelled_sets() or [pytest.param("", marks=pytest.mark.skip(f"no TU set with edge labels in {SHARED}"))]
)
def test_partition_of_real_graphs_with_labelled_edges_is_that_of_plain_refinement(name, tmp_path):
    data = Batch.from_data_list(list(load_dataset(name, tmp_path, SHARED)))
    check_labelled(data.x, data.edge_index, data.edge_attr, 3)


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
