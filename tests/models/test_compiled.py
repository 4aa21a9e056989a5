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
from graphcl.models.contrastive import ContrastiveModel
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
    return fused_sums([(batch.x, neighbours, graphs)], [conv.nn for conv in encoder.convs], list(encoder.norms), False)


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


def test_two_passes_of_which_one_uses_the_modules_have_a_gradient():
    """The modules keep the running statistics for the gradient, and the compiled layers update them after that."""
    batch, encoder = make_batch([4, 4]), make_encoder()
    weight = torch.ones(batch.num_edges)
    first = encoder(batch.x, batch.edge_index, batch.batch, edge_weight=weight)
    second = encoder(batch.x, batch.edge_index, batch.batch)
    (first * second).sum().backward()
    mean = encoder.norms[0].running_mean.clone()
    encoder(batch.x, batch.edge_index, batch.batch)
    assert not torch.equal(mean, encoder.norms[0].running_mean)


def test_batches_without_edges_and_with_a_crossing_edge():
    """A row of an empty `[2, 0]` tensor has a storage offset beyond the end of its storage.

    The compiled layers detect a crossing edge halfway. The modules must then start from unchanged running statistics.
    """
    for edge_index in (torch.zeros(2, 0, dtype=torch.long), torch.tensor([[0, 1, 5], [6, 2, 4]])):
        batch = make_batch([4, 4])
        batch.edge_index = edge_index
        assert_as_exact_as_the_modules(make_encoder(), batch, where=edge_index.tolist())


def test_special_values_pass_as_in_the_modules():
    """NaN and infinity must not become finite: training and `embed` refuse them only where they see them."""
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-40, -1e-40, 1e12, -1e12])
    for seed in range(24):
        batch, encoder = make_batch([3, 1, 7, 4, 2], seed=seed), make_encoder(layers=1 + seed % 3, seed=seed)
        encoder.readout = ["sum", "mean", "log_sum"][seed // 2 % 3]
        ratios, generator = (0.02, 0.001) if seed % 2 else (0.5, 0.02), seeded(seed)
        for each, ratio in [(batch.x, ratios[0]), *((each.data, ratios[1]) for each in encoder.parameters())]:
            drawn = special[torch.randint(8, each.shape, generator=generator)]
            each.copy_(torch.where(torch.rand(each.shape, generator=generator) < ratio, drawn, each))
        modules, ours = (outcome_of(encoder, batch, seed % 4 < 2, enabled) for enabled in (False, True))
        for got, expected in zip(ours, modules, strict=True):
            close = {"rtol": 1e-3, "atol": 1e-3 * float(expected.nan_to_num(0, 0, 0).abs().max())}
            assert torch.allclose(got, expected, equal_nan=True, **close), seed


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


def outcome_of_views(encoder, views, at_once):
    """Return embeddings, gradients, the gradient of the gradient, and running statistics of two views."""
    model = ContrastiveModel(copy.deepcopy(encoder))
    weights = list(model.encoder.parameters())
    h1, h2 = model.encode_views(*views) if at_once else map(model.encode, views)
    loss = h1.square().sum() + h2.sin().sum()
    grads = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
    square = sum(grad.square().sum() for grad in again if grad is not None)
    more = torch.autograd.grad(square, weights, allow_unused=True)
    return [h1, h2, *model.encoder.buffers()], [grad for grad in (*grads, *more) if grad is not None]


def test_two_views_in_one_call_are_two_calls(monkeypatch):
    """An edge between graphs of the second view must not update the running statistics twice."""
    views, encoder = (make_batch([3, 1, 7, 4]), make_batch([2, 9, 4, 90], seed=1)), make_encoder()
    called = []
    monkeypatch.setattr(GIN, "embed", lambda *args, embed=GIN.embed: called.append(1) or embed(*args))
    for encoder.readout, training in itertools.product(["sum", "mean", "log_sum"], [True, False]):
        encoder.train(training)
        (rows, grads), (other_rows, other_grads) = (outcome_of_views(encoder, views, way) for way in (True, False))
        assert all(map(torch.equal, rows, other_rows))
        for got, expected in zip(grads, other_grads, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert len(called) == 12  # of the two calls only
    views[1].edge_index[:, 0] = torch.tensor([0, 6])
    rows, other_rows = (outcome_of_views(encoder.train(), views, way)[0] for way in (True, False))
    assert all(map(torch.equal, rows, other_rows))


CHANGES = {
    "nothing": lambda *_: None,
    "identity": lambda e, _: e.norms.__setitem__(1, nn.Identity()),
    "cumulative statistics": lambda e, _: setattr(e.norms[1], "momentum", None),
    "no statistics": lambda e, _: e.norms.__setitem__(1, nn.BatchNorm1d(16, track_running_stats=False)),
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
    "a wider hidden layer": lambda e, _: (
        e.convs[1].nn.__setitem__(0, nn.Linear(16, 32)),
        e.convs[1].nn.__setitem__(2, nn.Linear(32, 16)),
    ),
    "weights elsewhere": lambda e, _: e.to("meta"),
    "a crossing edge": lambda _, b: b.edge_index[:, 0].copy_(torch.tensor([0, 6])),
}


def test_unsupported_inputs_use_the_modules(monkeypatch):
    with monkeypatch.context() as patch:  # else the comparisons above could compare the modules with themselves
        patch.setattr(nn.Linear, "forward", lambda *_: pytest.fail("a module was called"))
        encoder, batch = make_encoder(), make_batch([3, 4])
        h = encoder(batch.x, batch.edge_index, torch.tensor([1, 1, 1, 4, 4, 4, 4]), size=7)
        assert (h[[0, 2, 3, 5, 6]] == 0).all()
        torch.testing.assert_close(h[[1, 4]], encoder(batch.x, batch.edge_index, batch.batch, size=2))
    for name, change in CHANGES.items():
        encoder, batch = make_encoder(), make_batch([4, 4])
        change(encoder, batch)
        assert (fused(encoder, batch) is None) == (name != "nothing"), name
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(make_encoder(), make_batch([4, 4])) is None
    assert fused(make_encoder(hidden=24), make_batch([4, 4])) is None


def test_changes_before_the_backward_pass_raise():
    """Both rows of `edge_index` are sorted, so the encoder keeps views of the user's tensors instead of copies."""
    for change in (
        lambda batch: batch.edge_index.numpy().fill(10**9),
        lambda batch: batch.edge_index.untyped_storage().resize_(8),
        lambda batch: batch.edge_index.fill_(3),
        lambda batch: batch.batch.fill_(3),
    ):
        batch = make_batch([4, 4])
        batch.edge_index = torch.tensor([[0, 1, 2, 4, 5], [1, 2, 3, 5, 6]])
        h = make_encoder()(batch.x, batch.edge_index, batch.batch, size=2)
        change(batch)
        with pytest.raises((InputError, RuntimeError), match=r"was changed between|modified by an inplace operation"):
            h.sum().backward()


REFUSED = [
    ((4, 4), [0, 0, 1, 1], 0, "GIN takes `x` of shape [N, 5], got [4, 4]."),
    ((4, 5, 2), [0, 0, 1, 1], 0, "GIN takes `x` of shape [N, 5], got [4, 5, 2]."),
    ((4, 5), [0, 0, 1], 0, "GIN takes `batch` of shape [4], one per node, got [3]."),
    ((4, 5), [0, 0, 1, 2], 0, "`batch` must be in 0 .. 1, got values in 0 .. 2."),
    ((4, 5), [2, 0, 1, 1], 0, "`batch` must be in 0 .. 1, got values in 0 .. 2."),
    ((4, 5), [-1, 0, 1, 1], 0, "`batch` must be in 0 .. 1, got values in -1 .. 1."),
    ((4, 5), [0, 0, 1, 1], 4, "`edge_index` must be in 0 .. 3, got values in 1 .. 4."),
]


def test_shapes_and_indices_that_do_not_fit_are_named():
    """The compiled loops would read beyond a row's end or ignore columns, without an error."""
    for (x, graphs, edge, line), enabled, kind in itertools.product(REFUSED, [True, False], [torch.long, torch.int]):
        given = torch.ones(x), torch.tensor([[edge], [1]]), torch.tensor(graphs, dtype=kind)
        with loops(enabled):
            one_line(lambda: make_encoder()(*given, size=2), line)  # noqa: B023, called at once


# -- the extension -----------------------------------------------------------------------------------------------------


def test_the_extension_rejects_arrays_that_do_not_fit(monkeypatch):
    """Arrays that are too short, too long, of another dtype or not contiguous must raise before any memory access."""
    calls = []

    def spy(loop):
        def called(arrays, *numbers):
            calls.append((loop, arrays, numbers))
            return loop(tuple(map(to_dlpack, arrays)), *numbers)

        return called

    for name in ("forward", "backward"):
        monkeypatch.setattr(_gin, name, spy(getattr(_gin, name)))
    monkeypatch.setattr("graphcl.models.compiled.to_dlpack", torch.clone)
    batch = make_batch([4, 4])
    make_encoder()(batch.x, batch.edge_index, batch.batch, size=2).sum().backward()
    for loop, arrays, (views, layers, hidden, *rest) in calls:
        of_layers = len(arrays) - 1 - 7 - 2 * layers
        for place, array in enumerate(arrays):
            flat = array.flatten()
            wrong = [torch.cat([flat, flat[:1]]), array.double(), array.int()]
            if flat.numel() > 1:
                wrong.append(torch.stack([flat, flat], 1)[:, 0])
            if of_layers < place < of_layers + 6:  # indices
                wrong += [flat.index_fill(0, torch.tensor([end]), far) for end in (0, -1) for far in (-1, 10**9)]
            for each in [*wrong, flat[:-1]] if flat.numel() else [torch.ones(1)]:
                given = map(to_dlpack, [*arrays[:place], each, *arrays[place + 1 :]])
                with pytest.raises(ValueError, match="`"):
                    loop(tuple(given), views, layers, hidden, *rest)
        for wrong in itertools.product((0, views, 3), (0, layers, layers + 1), (hidden, 8, 2 * hidden, 528)):
            if wrong == (views, layers, hidden):
                continue
            with pytest.raises(ValueError, match=r"must|expected"):
                loop(tuple(map(to_dlpack, arrays)), *wrong, *rest)
    assert len(calls) == 2


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
