"""Compare the Triton kernels of GIN with its modules, in Triton's interpreter or on a GPU."""

import copy

import pytest
import torch

from graphcl import GIN
from graphcl.graphs import native
from graphcl.models import triton_gin
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex
from graphcl.models.batchnorm import Padding
from graphcl.models.compiled import plain_weights
from tests.kernels import DEVICE, needs_triton, run_interpreted, runs_kernels, runs_none

pytestmark = needs_triton


@runs_none
def test_the_kernels_in_the_interpreter():
    run_interpreted(__file__, "not interpreter")


@pytest.fixture(autouse=True)
def modules_only(monkeypatch):
    monkeypatch.setattr(native, "enabled", False)


def graphs(sizes, width):
    """Return features, edges (some nodes have none, one has many) and the graph of each node."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    firsts = torch.tensor(sizes).cumsum(0) - torch.tensor(sizes)
    edges = [
        torch.randint(size, (2, 2 * size), generator=generator) + first
        for size, first in zip(sizes, firsts, strict=True)
    ]
    edges.append(torch.stack([torch.arange(sizes[0]), torch.zeros(sizes[0], dtype=torch.long)]))
    x = torch.randn(sum(sizes), width, generator=generator)
    return x.to(DEVICE), torch.cat(edges, dim=1).to(DEVICE), ids.to(DEVICE)


def encoder_of(width, hidden, layers, **options):
    torch.manual_seed(0)
    encoder = GIN(width, hidden_channels=hidden, num_layers=layers, **options).to(DEVICE)
    for norm in encoder.norms:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    return encoder


def by_kernels(encoder, x, edge_index, ids, size, parts=None):
    weights = plain_weights([conv.nn for conv in encoder.convs], encoder.norms, x, 64)
    index, neighbours = SegmentIndex.of(ids, size), CSRAdjacency.of(edge_index, len(x))
    return triton_gin.sums(x, neighbours, index, list(encoder.norms), weights, parts)


def close(one, two):
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4 * two.abs().max().item())


def assert_equal_training(one, two):
    """Assert that gradients and running statistics of two encoders are equal up to rounding."""
    for (name, first), second in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.isfinite(first.grad).all(), name
        close(first.grad, second.grad)
    for first, second in zip(one.buffers(), two.buffers(), strict=True):
        close(first.float(), second.float())


SIZES = [40, 1, 7, 3, 64, 5]


@pytest.mark.cuda
@runs_kernels
@pytest.mark.parametrize(("width", "hidden", "layers"), [(7, 32, 3), (37, 16, 2), (90, 48, 1), (1, 64, 2)])
@pytest.mark.parametrize("parts", [None, [48, 72]], ids=str)
def test_triton_equals_the_modules(width, hidden, layers, parts):
    x, edge_index, ids = graphs(SIZES, width)
    modules = encoder_of(width, hidden, layers)
    kernels = copy.deepcopy(modules)
    slope = torch.randn(len(SIZES), layers * hidden, device=DEVICE)
    want = modules(x, edge_index, ids, size=len(SIZES), parts=parts)
    (want * slope).sum().backward()
    got = by_kernels(kernels, x, edge_index, ids, len(SIZES), parts)
    (got * slope).sum().backward()
    close(got, want)
    assert_equal_training(kernels, modules)
    again = by_kernels(copy.deepcopy(modules), x, edge_index, ids, len(SIZES), parts)
    assert torch.equal(got, again)


@pytest.mark.cuda
@runs_kernels
def test_triton_leaves_out_padding():
    sizes, room, extra = [9, 4, 30], 50, 2
    x, edge_index, ids = graphs(sizes, 5)
    modules = encoder_of(5, 32, 2)
    kernels = copy.deepcopy(modules)
    want = modules(x, edge_index, ids, size=3)
    want.sin().sum().backward()
    spare = room - len(x)
    padded = torch.cat([x, torch.full((spare, 5), torch.nan, device=DEVICE)])
    more = torch.arange(len(x), room, device=DEVICE)
    counts = torch.tensor([float(room), -float(spare)], device=DEVICE)
    padding = Padding((torch.arange(room, device=DEVICE) < len(x))[:, None], counts, extra)
    edges = torch.cat([edge_index, torch.stack([more, more.flip(0)])], dim=1)
    got = by_kernels(kernels, padded, edges, torch.cat([ids, 3 + (more - len(x)) % extra]), 3 + extra, [padding])[:3]
    got.sin().sum().backward()
    close(got, want)
    assert_equal_training(kernels, modules)


@pytest.mark.cuda
@runs_kernels
def test_triton_with_running_statistics_and_second_derivatives():
    x, edge_index, ids = graphs(SIZES, 6)
    encoder = encoder_of(6, 16, 2)
    want = encoder(x, edge_index, ids, size=len(SIZES))
    got = by_kernels(encoder, x, edge_index, ids, len(SIZES))
    seconds = []
    for value in (want, got):
        weight = encoder.convs[0].nn[0].weight
        (first,) = torch.autograd.grad(value.sin().sum(), weight, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), weight)[0])
    close(*reversed(seconds))
    encoder.eval()
    with torch.no_grad():
        close(by_kernels(encoder, x, edge_index, ids, len(SIZES)), encoder(x, edge_index, ids, size=len(SIZES)))
