"""Test the compiled GIN layers against torch's operations in float64, and the fallback to PyTorch modules."""

import copy
import importlib.util
import itertools
import math
import shutil

import pytest
import torch
from torch import nn
from torch.utils.dlpack import to_dlpack
from torch_geometric.data import Batch, Data

from graphcl.errors import InputError
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex
from graphcl.models.compiled import compiled, fused_sums
from graphcl.models.gin import GIN
from tests.datasets.graphs import one_line
from tests.strategies import loops, seeded

_gin = pytest.importorskip("graphcl.models._gin", reason="the compiled layers are not installed")
pytestmark = pytest.mark.skipif(not compiled(), reason="the compiled layers are turned off")


def make_batch(sizes, width=5, seed=0):
    generator, graphs = seeded(seed), []
    for n in sizes:
        edges = torch.randint(n, (2, 3 * n), generator=generator)
        graphs.append(Data(x=torch.randn(n, width, generator=generator), edge_index=edges))
    return Batch.from_data_list(graphs)


def make_encoder(width=5, hidden=16, layers=3, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = GIN(width, hidden, layers)
        for norm in encoder.norms:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias)
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
        for conv in encoder.convs:
            nn.init.normal_(conv.nn[0].bias)
            nn.init.normal_(conv.nn[2].bias)
    return encoder


def fused(encoder, batch, size=2):
    """Return the output of the compiled layers; None if they do not support the input."""
    neighbours, graphs = CSRAdjacency.of(batch.edge_index, batch.x.size(0)), SegmentIndex.of(batch.batch, size)
    return fused_sums(batch.x, neighbours, graphs, [conv.nn for conv in encoder.convs], list(encoder.norms), False)


def outcome_of(encoder, batch, training, with_loops, dtype=torch.float32):
    """Return embeddings, gradients and running statistics, from the compiled layers or from the PyTorch modules."""
    encoder = copy.deepcopy(encoder).train(training).to(dtype)
    with loops(with_loops):
        h = encoder(batch.x.to(dtype), batch.edge_index, batch.batch, size=batch.num_graphs)
        weigh = torch.linspace(-1, 1, h.numel(), dtype=torch.float64).view_as(h)
        (h * weigh).sum().backward()
    # with `log_sum`, the last BatchNorm is unused: its gradient is 0 or None
    grads = (torch.zeros_like(each) if each.grad is None else each.grad for each in encoder.parameters())
    return [h.detach(), *grads, *encoder.buffers()]


def assert_as_exact_as_the_modules(encoder, batch, training=True, where=""):
    """Raise AssertionError if the compiled layers' error is well above the modules' error; float64 is the reference."""
    exact = outcome_of(encoder, batch, training, False, torch.float64)
    modules = outcome_of(encoder, batch, training, False)
    for got, usual, expected in zip(outcome_of(encoder, batch, training, True), modules, exact, strict=True):
        scale = float(expected.abs().max())
        usual_error = float((usual.double() - expected.double()).abs().max())
        error = float((got.double() - expected.double()).abs().max())
        assert error <= 2 * usual_error + 1e-4 * scale + 1e-4, (where, training)


@pytest.mark.parametrize(
    ("sizes", "width", "hidden", "layers"),
    [
        ([3, 1, 7, 4], 5, 16, 3),
        ([9] * 40, 1, 32, 2),
        ([70, 130, 64, 65], 16, 48, 2),
        ([5, 200], 37, 32, 3),
        ([200, 200, 1], 3, 64, 1),
        ([1, 1], 2, 16, 2),
    ],
    ids=str,
)
def test_it_is_the_modules(sizes, width, hidden, layers):
    """Cover full, partial and empty blocks of 64 rows and 16 segments, and widths that are not multiples of 16."""
    batch, encoder = make_batch(sizes, width), make_encoder(width, hidden, layers)
    for encoder.readout, training in itertools.product(["sum", "mean", "log_sum"], [True, False]):
        assert_as_exact_as_the_modules(encoder, batch, training, encoder.readout)


def test_batches_without_edges_and_with_a_crossing_edge():
    """A row of an empty `[2, 0]` tensor has a storage offset beyond the end of its storage.

    The compiled layers detect a crossing edge halfway. The modules must then start from unchanged running statistics.
    """
    for edge_index in (torch.zeros(2, 0, dtype=torch.long), torch.tensor([[0, 1, 5], [6, 2, 4]])):
        batch = make_batch([4, 4])
        batch.edge_index = edge_index
        assert_as_exact_as_the_modules(make_encoder(), batch, where=edge_index.tolist())


SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-40, -1e-40, 1e12, -1e12])


def with_special_values(values, ratio, generator):
    """Return a copy of `values` with about `ratio` of the entries replaced by special values."""
    special = SPECIAL[torch.randint(len(SPECIAL), values.shape, generator=generator)]
    return torch.where(torch.rand(values.shape, generator=generator) < ratio, special, values)


def test_special_values_pass_as_in_the_modules():
    """NaN and infinity must not become finite: training and `embed` refuse them only where they see them."""
    for seed in range(24):
        generator = seeded(seed)
        few, layers = seed % 2, 1 + seed % 3
        batch, encoder = make_batch([3, 1, 7, 4, 2], seed=seed), make_encoder(layers=layers, seed=seed)
        encoder.readout = ["sum", "mean", "log_sum"][seed // 2 % 3]
        batch.x = with_special_values(batch.x, 0.02 if few else 0.5, generator)
        for each in encoder.parameters():
            each.data = with_special_values(each.data, 0.001 if few else 0.02, generator)
        modules, ours = (outcome_of(encoder, batch, seed % 4 < 2, enabled) for enabled in (False, True))
        for got, expected in zip(ours, modules, strict=True):
            close = {"rtol": 1e-3, "atol": 1e-3 * float(expected.nan_to_num(0, 0, 0).abs().max())}
            assert torch.allclose(got, expected, equal_nan=True, **close), seed


def test_it_is_used(monkeypatch):
    """Without this test, the comparison above could pass by comparing the modules with themselves."""
    encoder, batch = make_encoder(), make_batch([3, 4])
    assert fused(encoder, batch) is not None
    monkeypatch.setattr(nn.Linear, "forward", lambda *_: pytest.fail("a module was called"))
    encoder(batch.x, batch.edge_index, batch.batch, size=2)


def test_the_number_of_threads_changes_nothing():
    encoder, batch = make_encoder(hidden=32), make_batch([20] * 50)
    before = torch.get_num_threads()
    outcomes = []
    try:
        for threads in (1, 2, 5, 40):
            torch.set_num_threads(threads)
            outcomes.append(outcome_of(encoder, batch, True, True))
    finally:
        torch.set_num_threads(before)
    for other in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], other, strict=True))


def test_empty_graphs_at_the_ends_and_between():
    encoder = make_encoder().eval()
    batch = make_batch([3, 4])
    h = encoder(batch.x, batch.edge_index, torch.tensor([1, 1, 1, 4, 4, 4, 4]), size=7)
    assert (h[[0, 2, 3, 5, 6]] == 0).all()
    torch.testing.assert_close(h[[1, 4]], encoder(batch.x, batch.edge_index, batch.batch, size=2))


def test_a_gradient_of_the_gradient():
    """The compiled layers have no double backward, so torch's operations compute this gradient."""
    batch, found = make_batch([3, 4, 6]), []
    for enabled in (False, True):
        encoder = make_encoder()
        weights = list(encoder.parameters())
        with loops(enabled):
            h = encoder(batch.x, batch.edge_index, batch.batch, size=3)
            grads = torch.autograd.grad(h.square().sum(), weights, create_graph=True)
            found.append(torch.autograd.grad(sum(each.square().sum() for each in grads), weights))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def replace_mlp(conv, width, hidden, out):
    conv.nn = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))


CHANGES = {
    "nothing": lambda *_: None,
    "identity": lambda e, _: e.norms.__setitem__(1, nn.Identity()),
    "layer norm": lambda e, _: e.norms.__setitem__(1, nn.LayerNorm(16)),
    "cumulative statistics": lambda e, _: setattr(e.norms[1], "momentum", None),
    "no statistics": lambda e, _: e.norms.__setitem__(1, nn.BatchNorm1d(16, track_running_stats=False)),
    "not affine": lambda e, _: e.norms.__setitem__(1, nn.BatchNorm1d(16, affine=False)),
    "one norm in evaluation mode": lambda e, _: e.norms[1].eval(),
    "tanh": lambda e, _: e.convs[0].nn.__setitem__(1, nn.Tanh()),
    "dropout": lambda e, _: e.convs[0].nn.append(nn.Dropout(0.5)),
    "no bias": lambda e, _: e.convs[0].nn.__setitem__(0, nn.Linear(5, 16, bias=False)),
    "a hook": lambda e, _: e.convs[2].nn[0].register_forward_hook(lambda *_: None),
    "double": lambda e, b: (e.double(), setattr(b, "x", b.x.double())),
    "bfloat16": lambda e, b: (e.bfloat16(), setattr(b, "x", b.x.bfloat16())),
    "a gradient of x": lambda _, b: b.x.requires_grad_(),
    "graphs in disorder": lambda _, b: setattr(b, "batch", b.batch.flip(0)),
    "short indices": lambda _, b: setattr(b, "edge_index", b.edge_index.int()),
    "more columns": lambda _, b: setattr(b, "x", torch.ones(8, 6)),
    "a wider hidden layer": lambda e, _: replace_mlp(e.convs[1], 16, 32, 16),
    "a wider layer": lambda e, _: (replace_mlp(e.convs[2], 16, 32, 32), e.norms.__setitem__(2, nn.BatchNorm1d(32))),
    "weights elsewhere": lambda e, _: e.to("meta"),
    "a crossing edge": lambda _, b: b.edge_index[:, 0].copy_(torch.tensor([0, 6])),
}


def test_unsupported_inputs_use_the_modules():
    for name, change in CHANGES.items():
        encoder, batch = make_encoder(), make_batch([4, 4])
        change(encoder, batch)
        assert (fused(encoder, batch) is None) == (name != "nothing"), name
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(make_encoder(), make_batch([4, 4])) is None
    assert fused(make_encoder(hidden=24), make_batch([4, 4])) is None


@pytest.mark.parametrize("change", ["in place", "by NumPy", "shrunk storage", "graphs in place"])
def test_changes_before_the_backward_pass_raise(change):
    """Both rows of `edge_index` are sorted, so the encoder keeps views of the user's tensors instead of copies."""
    batch = make_batch([4, 4])
    batch.edge_index = torch.tensor([[0, 1, 2, 4, 5], [1, 2, 3, 5, 6]])
    h = make_encoder()(batch.x, batch.edge_index, batch.batch, size=2)
    if change == "by NumPy":
        batch.edge_index.numpy().fill(10**9)
    elif change == "shrunk storage":
        batch.edge_index.untyped_storage().resize_(8)
    else:
        (batch.edge_index if change == "in place" else batch.batch).fill_(3)
    with pytest.raises((InputError, RuntimeError), match=r"was changed between|modified by an inplace operation"):
        h.sum().backward()


def test_what_batch_norm_refuses_raises_its_error():
    encoder, batch = make_encoder().eval(), make_batch([4, 4])
    encoder.norms[1].running_mean = torch.zeros(1)
    with pytest.raises(RuntimeError, match="running_mean should contain 16 elements not 1"):
        encoder(batch.x, batch.edge_index, batch.batch)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        make_encoder()(torch.ones(1, 5), torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize(
    ("x", "graphs", "edge", "line"),
    [
        ((4, 4), [0, 0, 1, 1], 0, "GIN takes `x` of shape [N, 5], got [4, 4]."),
        ((4, 5, 2), [0, 0, 1, 1], 0, "GIN takes `x` of shape [N, 5], got [4, 5, 2]."),
        ((4, 5), [0, 0, 1], 0, "GIN takes `batch` of shape [4], one per node, got [3]."),
        ((4, 5), [0, 0, 1, 2], 0, "`batch` must be in 0 .. 1, got values in 0 .. 2."),
        ((4, 5), [2, 0, 1, 1], 0, "`batch` must be in 0 .. 1, got values in 0 .. 2."),
        ((4, 5), [-1, 0, 1, 1], 0, "`batch` must be in 0 .. 1, got values in -1 .. 1."),
        ((4, 5), [0, 0, 1, 1], 4, "`edge_index` must be in 0 .. 3, got values in 1 .. 4."),
    ],
)
def test_shapes_and_indices_that_do_not_fit_are_named(x, graphs, edge, line):
    """The compiled loops would read beyond a row's end or ignore columns, without an error."""
    for enabled, kind in itertools.product([True, False], [torch.long, torch.int]):
        given = torch.ones(x), torch.tensor([[edge], [1]]), torch.tensor(graphs, dtype=kind)
        with loops(enabled):
            one_line(lambda: make_encoder()(*given, size=2), line)  # noqa: B023, called at once


# -- the extension checks its arguments ------------------------------------------------------------------------------


def arguments(backward=False, n=8, width=5, hidden=16, layers=2):
    """Return the valid arguments of a call by name, in order; graphs of four nodes with a self-loop at each node."""
    empty, nodes, ptr = torch.empty, torch.arange(n), torch.arange(n + 1)
    shapes = [(hidden, width), (hidden,), (hidden, hidden), (hidden,), (hidden,), (hidden,)]
    shapes += [(hidden, hidden), *shapes[1:]]
    weights = torch.cat([torch.ones(shape).flatten() for shape in shapes])
    found = {"graph_ptr": torch.tensor([0, 4, 8]), "sources": nodes, "target_ptr": ptr}
    found |= {"targets": nodes.clone(), "source_ptr": ptr.clone(), "x": torch.ones(n, width), "weights": weights}
    found |= {"pools": torch.ones(2, layers * hidden), "moments": torch.ones(3, layers, hidden)}
    found |= {"work": empty(2, n, hidden) if backward else empty(n, hidden)}
    found |= {"grads": torch.empty_like(weights) if backward else empty(0)}
    for layer in range(layers):
        found |= {f"input{layer}": torch.zeros(n, 16), f"kept{layer}": torch.zeros(2, n, hidden)}
    return found


def call(arrays, backward=False, layers=2, hidden=16, threads=1):
    loop = _gin.backward if backward else _gin.forward
    return loop(tuple(map(to_dlpack, arrays.values())), layers, hidden, True, False, threads, 1e-5)


@pytest.mark.parametrize("backward", [False, True])
def test_the_extension_rejects_arrays_that_do_not_fit(backward):
    """Arrays that are too short, too long, of another dtype or not contiguous must raise before any memory access."""
    assert call(arguments(backward), backward) is True
    for name, array in arguments(backward).items():
        flat = array.flatten()
        wrong = [torch.cat([flat, flat[:1]]), array.double(), array.int(), torch.stack([flat, flat], 1)[:, 0]]
        for each in [*wrong, flat[:-1]] if flat.numel() else [torch.ones(1)]:
            with pytest.raises(ValueError, match="`"):
                call(arguments(backward) | {name: each}, backward)
    for name, values, line in [
        ("sources", [0, 1, 2, 3, 4, 5, 6, 8], "`sources` must be nodes"),
        ("targets", [0, 1, 2, 3, 4, 5, 6, -1], "`targets` must be nodes"),
        ("graph_ptr", [0, 4, 9], "`graph_ptr` must rise from 0 to the number of nodes"),
        ("graph_ptr", [0, 9, 8], "`graph_ptr` must rise"),
        ("graph_ptr", [-1, 4, 8], "`graph_ptr` must rise"),
        ("target_ptr", [0, 9, 2, 3, 4, 5, 6, 7, 8], "`target_ptr` must rise"),
        ("source_ptr", list(range(1, 10)), "`source_ptr` must rise"),
    ]:
        with pytest.raises(ValueError, match=line):
            call(arguments(backward) | {name: torch.tensor(values)}, backward)
    with pytest.raises(ValueError, match="`x` must be a matrix with rows"):
        call(arguments(backward) | {"x": torch.ones(0, 5)}, backward)
    with pytest.raises((ValueError, RuntimeError, BufferError, NotImplementedError)):
        call(arguments(backward) | {"x": torch.ones(8, 5, device="meta")}, backward)


def test_the_extension_rejects_wrong_numbers_and_shared_memory():
    arrays = arguments()
    for wrong in ({"hidden": 8}, {"hidden": 528}, {"hidden": 32}, {"layers": 0}, {"layers": 3}, {"threads": 0}):
        with pytest.raises(ValueError, match=r"must|expected"):
            call(arrays, **wrong)
    with pytest.raises(ValueError, match="`work` must not share memory with other arguments"):
        call(arrays | {"work": arrays["kept0"][0]})


def test_the_loops_for_processors_with_shorter_vectors(tmp_path, monkeypatch):
    """The loops are chosen when the extension is loaded, so a copy of its file is loaded."""
    copied = shutil.copy(_gin.__file__, tmp_path)
    monkeypatch.setenv("GRAPHCL_AVX2", "1")
    spec = importlib.util.spec_from_file_location("graphcl.models._gin", copied)
    shorter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shorter)
    assert shorter is not _gin
    monkeypatch.setattr("graphcl.models.compiled._gin", shorter)
    assert_as_exact_as_the_modules(make_encoder(37, 48, 2), make_batch([70, 9, 64], 37))
