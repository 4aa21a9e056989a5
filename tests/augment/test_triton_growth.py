"""Compare the Triton kernel that grows subgraphs with PyTorch's operations, in Triton's interpreter or on a GPU."""

import pytest
import torch
from torch_geometric.data import Batch

from graphcl import Subgraph
from graphcl.augment import subgraph
from graphcl.loaders.resident import ResidentLoader
from tests.kernels import DEVICE, needs_triton, run_interpreted, runs_kernels, runs_none
from tests.strategies import make_graph, seeded

pytestmark = needs_triton


@runs_none
def test_the_kernel_in_the_interpreter():
    run_interpreted(__file__, "not interpreter and not device")


@runs_kernels
@pytest.mark.parametrize("block", [32, 512])
def test_times_equal_those_of_the_rounds(block, monkeypatch):
    """Graphs of one node, without edges, with a long path, and with more edges than a block, in several components."""
    monkeypatch.setattr(subgraph, "BLOCK", block)
    generator = seeded(3)
    sizes, counts = torch.tensor([1, 5, 40, 30, 200]), torch.tensor([0, 0, 39, 300, 700])
    shift = sizes.cumsum(0) - sizes
    path = torch.stack([torch.arange(39), torch.arange(1, 40)])
    parts = [torch.randint(int(n), (2, int(e)), generator=generator) for n, e in zip(sizes, counts, strict=True)]
    parts[2] = path
    ends = torch.cat([part + first for part, first in zip(parts, shift, strict=True)], dim=1)
    travel = torch.rand(ends.size(1), generator=generator, dtype=torch.float64)
    start = 1e3 * torch.rand(int(sizes.sum()), generator=generator, dtype=torch.float64)
    places = torch.stack([counts.cumsum(0) - counts, counts])
    found = subgraph.first_passage(*(each.to(DEVICE) for each in (start, ends, travel, places)), int(counts.max()))
    expected = subgraph.relax(start, ends.contiguous(), travel, 200)
    assert torch.equal(found.cpu(), expected)
    assert (expected < start).sum() > 200


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_subgraphs_are_equal_on_the_device(monkeypatch):
    generator, graphs = seeded(0), []
    for size in (1, 2, 5, 40, 300):
        graphs.append(make_graph(size, [*map(tuple, torch.randint(size, (3 * size, 2), generator=generator).tolist())]))
    batch = next(iter(ResidentLoader(graphs, len(graphs), device="cuda")))
    assert isinstance(batch, Batch)
    views = [Subgraph(0.4)(batch, torch.Generator("cuda").manual_seed(1))]
    monkeypatch.setattr(subgraph, "MOST_EDGES", 0)
    views.append(Subgraph(0.4)(batch, torch.Generator("cuda").manual_seed(1)))
    assert torch.equal(views[0].edge_index, views[1].edge_index)
    assert torch.equal(views[0].x, views[1].x)
