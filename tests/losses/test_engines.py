"""Test the engines against loops over anchors: dense, tiled with PyTorch, and tiled with Triton.

Without a GPU, Triton's interpreter runs the kernels, in a separate process.
"""

import math
import weakref
from functools import cache
from itertools import product
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphcl.errors import InputError
from graphcl.losses import compare, infonce, native, rows, tiled
from graphcl.losses.dense import DensePairs
from graphcl.losses.pairs import Comparison, Exponent, gaussian, linear
from graphcl.losses.tiled import Sums, TiledPairs
from graphcl.registry import losses
from tests.kernels import DEVICE, needs_triton, run_interpreted, runs_kernels, runs_none
from tests.losses import loops
from tests.losses.loops import needed
from tests.strategies import needs_cuda

ENGINES = ["dense", "tiled", pytest.param("triton", marks=[needs_triton, runs_kernels, pytest.mark.cuda])]


def on_cuda(test):
    return pytest.mark.cuda(needs_cuda(needs_triton(test)))


@pytest.fixture
def small_tiles(monkeypatch):
    """Return `shrink(size)`, which sets the tile size and limits the rows that are held at once."""

    def shrink(size, row_elements=50):
        monkeypatch.setattr(tiled, "TILE", size)
        monkeypatch.setattr(tiled, "ROW_ELEMENTS", row_elements)

    shrink(4)
    return shrink


# -- the reference -----------------------------------------------------------------------------------------------------

SIZES = 11, 7, 6  # not multiples of a tile
CONTEXTS = [each for each in product(loops.NEGATIVES, loops.HELD, (True, False)) if each[:2] != ("queue", "nothing")]


def data(sizes=SIZES):
    """Return float64 views, a queue, ids and queue ids.

    Some pairs are close, one row is zero, and some graphs have no negative in the queue. A masked key of the queue, and
    two negatives, have the cosines 1 and -1 with an anchor, where exponents are extreme.
    """
    count, keys, columns = sizes
    generator = torch.Generator().manual_seed(count + columns)
    z1, z2, third = 0.6 * torch.randn(3, max(count, keys), columns, generator=generator, dtype=torch.float64)
    z1, z2, queue = z1[:count].clone(), z2[:count].clone(), third[:keys].clone()
    z2[::3] = z1[::3] + 0.2 * z2[::3]
    if count > 5:
        z2[4], z2[3], z1[count - 1] = 2 * z1[5], -2 * z1[5], 0
    ids, queue_ids = torch.arange(count) % 4, torch.arange(keys) % (3 if count > 5 else 1)
    queue[0] = 3 * z1[0]
    return (z1, z2, queue), ids, queue_ids


def polynomial(exponent, c):
    """Return the exponent at `c`, term by term. Only the part `free` is differentiated."""
    parts = (exponent.free, c), (exponent.frozen, c.detach())
    return sum((x * (at - exponent.center) ** k for part, at in parts for k, x in enumerate(part)), 0 * c.detach())


def logsumexps(*exponents):
    def of_anchor(c, positive):
        return [polynomial(each, c).logsumexp(0) for each in exponents]

    return (lambda made: made.logsumexp(*exponents)), of_anchor


def expectation(exponent):
    def of_anchor(c, positive):
        value = polynomial(exponent, c).detach()
        return [(value.softmax(0) * c).sum(), value.logsumexp(0)]

    return (lambda made: made.expectation(exponent)), of_anchor


MOMENTS = (lambda made: made.moments()), (lambda c, positive: [c.mean(), c.var(correction=0)])
ROWS = (
    lambda made: (made.rows(lambda row, p: row.mean((row.value - p[:, None]).tanh()), made.positive),),
    lambda c, positive: [(c - positive).tanh().mean()],
)
LARGEST = (
    lambda made: (made.rows(lambda row: row.filled(row.value, -9.0).amax(dim=1)) * ~made.isolated, made.count),
    lambda c, positive: [c.max(), torch.tensor(len(c), dtype=c.dtype)],
)
EVERY_POWER = Exponent((0.3, 2.0, -1.0, 1.5, -2.0), (0.1, 0.0, 0.0, 0.5), center=0.4)
REDUCTIONS = {
    "one": logsumexps(linear(5.0)),
    "warm": logsumexps(linear(59.0), linear(59.2)),  # either side of the largest small exponent
    "cold": logsumexps(linear(100.0)),
    "frozen": logsumexps(linear(5.0) + gaussian(0.7, 0.3), gaussian(0.7, 0.3)),
    "three": logsumexps(linear(10.0), gaussian(0.0, 1.0), linear(5.0) + gaussian(0.7, 0.5, frozen=False)),
    "cold and warm": logsumexps(linear(120.0), linear(2.0), gaussian(0.5, 0.1, frozen=False)),
    "cold without slope": logsumexps(Exponent((0.5,)), Exponent((), (0.0, 3.0)), Exponent((-200.0, 5.0))),
    "every power": logsumexps(EVERY_POWER, Exponent((0.0, 2.0, 1.0, -1.5), center=0.2)),
    "mean": expectation(linear(5.0)),
    "cold mean": expectation(linear(100.0)),
    "quartic mean": expectation(Exponent((), (0.0, 0.0, 0.0, 0.0, -2.0), center=1.0)),
    "mean of every power": expectation(EVERY_POWER),
    "moments": MOMENTS,
    "rows": ROWS,
    "largest": LARGEST,
}


def gradients(outputs, leaves):
    """Return outputs that are given, and their gradients for upstream gradients that differ by anchor."""
    upstream = torch.randn(len(outputs), len(outputs[0]), generator=torch.Generator().manual_seed(1)).to(outputs[0])
    total = sum((each * up).sum() for each, up in zip(outputs, upstream, strict=True))
    found = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None] * len(leaves)
    slopes = [torch.zeros_like(z) if slope is None else slope for z, slope in zip(leaves, found, strict=True)]
    return [each.detach() for each in (*outputs, *slopes)]


@cache
def looped(name, context, similarity="cosine", sizes=SIZES):
    """Return the values and gradients of a reduction by loops over anchors, in float64."""
    (z1, z2, queue), ids, queue_ids = data(sizes)
    negatives, held, symmetric = context
    leaves = [z.float().double().requires_grad_() for z in (z1, z2, queue)]
    sets = leaves
    if similarity == "cosine":
        sets = [z / torch.where(z.any(1), z.norm(dim=1), 1.0)[:, None] for z in leaves]
    kept = {"queue": [(2, k) for k in range(len(queue))]} if held != "nothing" else {}
    kept |= {"ids": ids.tolist(), "queue_ids": queue_ids.tolist()} if held == "ids" else {}
    places = [[(view, i) for i in range(len(z1))] for view in (0, 1)]
    found = []
    for own, other, keys in loops.compared(*places, negatives=negatives, symmetric=symmetric, **kept):
        anchor = sets[own[0]][own[1]]
        rows = torch.stack([sets[view][i] for view, i in (other, *keys)])
        c = (anchor - rows).square().sum(dim=1) if similarity == "squared_distance" else rows @ anchor
        found.append(REDUCTIONS[name][1](c[1:], c[0]) if keys else None)
    width = len(next(each for each in found if each))
    zeros = [torch.zeros((), dtype=torch.float64)] * width
    lonely = [*zeros[:-1], torch.ones_like(zeros[0])] if name == "largest" else zeros  # a count is at least 1
    outputs = [torch.stack(each) for each in zip(*(each or lonely for each in found), strict=True)]
    return gradients(outputs, leaves)


# -- the contract ------------------------------------------------------------------------------------------------------


def computed(engine, name, context, similarity="cosine", sizes=SIZES, dtype=torch.float64):
    """Return the values and gradients of a reduction by an engine, on the device of the engine."""
    (*views, queue), ids, queue_ids = data(sizes)
    negatives, held, symmetric = context
    device, dtype = (DEVICE, torch.float32) if engine == "triton" else ("cpu", dtype)
    leaves = [z.float().to(device, dtype, copy=True).requires_grad_() for z in (*views, queue)]
    kept = {"queue": leaves[2]} if held != "nothing" else {}
    kept |= {"ids": ids.to(device), "queue_ids": queue_ids.to(device)} if held == "ids" else {}
    chosen = "dense" if engine == "dense" else "tiled"
    with mock.patch.object(tiled, "tiles", kernels if engine == "triton" else tiled.tiles):
        made = compare(*leaves[:2], negatives, symmetric, similarity=similarity, engine=chosen, **kept)
        return [each.cpu() for each in gradients([each * 1.0 for each in REDUCTIONS[name][0](made)], leaves)]


def kernels(some):
    """Return the passes of the Triton kernels; in the interpreter with blocks smaller than the rows and columns."""
    from graphcl.losses import triton_tiles

    if DEVICE == "cpu":
        # The interpreter has no products in bfloat16.
        triton_tiles.PIECES, triton_tiles.BITS = {"highest": 3}, torch.float16
        triton_tiles.SMALL = {3: [triton_tiles.blocks(16, 16, 16)] * 2}
        triton_tiles.WIDEST = 16
        triton_tiles._device = lambda _: (80, 2)
    return triton_tiles.forward, triton_tiles.backward


def check_engine(engine, names=REDUCTIONS, contexts=CONTEXTS, dtype=torch.float64, **own):
    """Assert that values and gradients of an engine equal those of the loops."""
    for name, context in product(names, contexts):
        exact = 1e-10 if engine != "triton" and dtype == torch.float64 else 1e-5
        if exact == 1e-5 and ("cold" in name or name == "warm"):
            exact = 1e-4  # an exponent amplifies the rounding error of a cosine by its slope
        found = computed(engine, name, context, dtype=dtype, **own)
        for got, want in zip(found, looped(name, context, **own), strict=True):
            assert torch.isfinite(got).all(), (name, context, own)
            error, largest = (got - want).abs().max(), want.abs().max()
            assert error <= exact * max(1.0, largest), (engine, name, context, own, f"{error:.1e} of {largest:.1e}")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_equals_the_loops(small_tiles, engine):
    """All reductions and all contexts occur, but not all combinations."""
    for number, name in enumerate(REDUCTIONS):
        step = {"dense": 5, "tiled": 3, "triton": 9}[engine]
        if engine != "triton" or name not in ("moments", "rows", "largest"):
            check_engine(engine, [name], CONTEXTS[number % step :: step])
        if engine != "triton" and name != "largest":  # equal cosines may be rounded apart
            check_engine(engine, [name], CONTEXTS[number % 8 :: 8], torch.float32)


@pytest.mark.parametrize("engine", ENGINES)
def test_other_sizes_and_similarities(small_tiles, engine):
    for sizes in ((2, 1, 1), (2, 3, 2), (5, 9, 3), (6, 4, 17)):
        small_tiles(3 if sizes[0] != 5 else 2, 7)
        check_engine(engine, ["three", "cold mean", "moments"], CONTEXTS[::4], sizes=sizes)
    for similarity in ("dot", "squared_distance"):
        names = ["three", "rows", "largest"] + (["mean", "moments"] if similarity == "dot" else [])
        check_engine(engine, names[: 2 if engine == "triton" else None], CONTEXTS[1::5], similarity=similarity)


def test_only_directions_count(views):
    """Norms from 1e-10, as a row below 1e-12 counts as zero, to the largest; strides do not matter either."""
    for dtype, tolerance, decades in ((torch.float64, 1e-12, 100), (torch.float32, 1e-5, 15)):
        z1, z2 = views(6, 3, dtype=dtype)
        lengths = 10 ** torch.linspace(-10, decades, 12, dtype=dtype).view(2, 6, 1)
        expected = compare(z1, z2, "all").row.value
        strided = z1.T.contiguous().T, z2.repeat_interleave(2, dim=0)[::2]
        for a, b in ((z1 * lengths[0], z2 * lengths[1]), strided):
            torch.testing.assert_close(compare(a, b, "all").row.value, expected, rtol=tolerance, atol=tolerance)


def test_bfloat16_is_compared_in_float32(small_tiles):
    for name in ("one", "moments"):
        results = [computed(engine, name, ("all", "ids", True), dtype=torch.bfloat16) for engine in ("dense", "tiled")]
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=2**-7, atol=1e-5)
            assert got.dtype == want.dtype == (torch.float32 if got.dim() == 1 else torch.bfloat16)


# -- exponents ---------------------------------------------------------------------------------------------------------


def test_extreme_exponents():
    c = torch.linspace(-1.02, 1.02, 41, dtype=torch.float64)
    assert (gaussian(0.7, math.inf)(c) == 0).all()
    for sigma in (1e-20, 1e-160, 1e-300):
        assert torch.isfinite(gaussian(0.7, sigma)(c)).all()
        assert torch.isfinite(gaussian(0.7, sigma)(c.float())).all()
        assert not gaussian(0.7, sigma).is_small
    for exponent, small in ((linear(20.0), True), (linear(200.0), False), (gaussian(0.7, math.inf), True),
                            (Exponent((0.0, math.inf)), False), (Exponent((math.nan,)), False)):  # fmt: skip
        assert exponent.is_small == small, exponent
    # In powers of c itself, the value at 0.7001 would be a difference of numbers near 2.5e7.
    got = (linear(5.0) + gaussian(0.7, 1e-4))(torch.tensor([0.7001], dtype=torch.float64)).item()
    assert got == pytest.approx(5 * 0.7001 - 0.5, abs=1e-11)
    with pytest.raises(InputError, match=r"^an exponent must have degree 4 or less, got .*1\.0, 1\.0"):
        Exponent((), (1.0,) * 6)


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["infonce", "alpha_cl", "mean_variance", "triplet"])
def test_gradients_in_training(small_tiles, views, name):
    """One view may need no gradient; backward can run twice; graphs are freed; a second derivative may be refused."""
    for wanted in ((True, False), (False, True)):
        found = []
        for engine in ("tiled", "dense"):
            leaves = [z.clone().requires_grad_(want) for z, want in zip(views(5, 3), wanted, strict=True)]
            losses[name](*leaves, negatives="all", engine=engine).backward()
            assert leaves[wanted.index(False)].grad is None
            found.append(leaves[wanted.index(True)].grad)
        torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)
    z1, z2 = (z.clone().requires_grad_() for z in views(5, 3))
    before, middle = z1.detach().clone(), z1 * 1.0
    alive = weakref.ref(middle)
    value = losses[name](middle, z2, engine="tiled")
    value.backward(retain_graph=True)
    once = z1.grad.clone()
    value.backward()
    torch.testing.assert_close(z1.grad, 2 * once)
    assert torch.equal(z1, before)
    del middle, value
    assert alive() is None, "the graph holds itself in a circle"

    def second(engine):
        z1, z2 = (z.requires_grad_() for z in views(5, 3))
        slopes = torch.autograd.grad(losses[name](z1, z2, engine=engine), (z1, z2), create_graph=True)
        (slopes[0].square().sum() + (slopes[1] * slopes[0]).sum()).backward()
        return z1.grad

    if name in ("mean_variance", "triplet"):  # no tiled sums
        torch.testing.assert_close(second("tiled"), second("dense"), rtol=1e-9, atol=1e-11)
    else:
        with pytest.raises(RuntimeError, match="the tiled engine has no second derivative; pass `engine='dense'`"):
            second("tiled")
    torch.func.grad(lambda z: losses[name](z, z2, engine="dense"))(z1)


@pytest.mark.skipif(not native.enabled, reason="the compiled loops are not there")
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("infonce", {"negatives": "all"}),
        ("infonce", {"temperature": 0.01}),
        ("adnce", {}),
        ("adnce", {"detach_weight": False}),
        ("alpha_cl", {"symmetric": False}),
        ("moco", {}),
        ("n_pair", {}),
    ],
)
def test_compiled_loops_equal_operations_of_torch(monkeypatch, views, name, own):
    """Compare values, first and second derivatives in float32, with unaligned and transposed rows, and `torch.func`."""
    z1, z2, queue = (z.T.contiguous().T for z in (*views(21, 37, dtype=torch.float32), views(9, 37, seed=1)[0].float()))
    if "queue" in losses.arguments(name).tensors:
        own = own | {"queue": queue, "ids": torch.arange(21) % 4, "queue_ids": torch.arange(9) % 5}
    results = []
    for enabled in (True, False):
        monkeypatch.setattr(native, "enabled", enabled)
        leaves = [z.requires_grad_() for z in (z1.detach()[:, ::2], z2.detach()[:, ::2])]
        assert native.takes(*leaves) == enabled
        queue_part = {"queue": own["queue"][:, ::2]} if "queue" in own else {}
        value = losses[name](*leaves, **own | queue_part)
        slopes = torch.autograd.grad(value, leaves, create_graph=True)
        again = torch.autograd.grad(value, leaves, retain_graph=True)  # by the loops
        second = torch.autograd.grad(sum((slope * slope.detach().sin()).sum() for slope in slopes), leaves)
        mapped = torch.func.grad(lambda a, b=leaves[1], more=own | queue_part: losses[name](a, b, **more))(leaves[0])
        terms = losses[name](*leaves, **own | queue_part, reduction="none")
        of_terms = torch.autograd.grad(terms, leaves[0], torch.eye(len(terms)), is_grads_batched=True)
        results.append([value.detach(), *slopes, *again, *second, mapped, *of_terms])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


# -- the choice of an engine -------------------------------------------------------------------------------------------


def test_auto_goes_by_the_number_of_similarities(monkeypatch, views):
    """By default, `auto` selects the dense engine for two views of 512 graphs, and the tiled engine for 513."""
    for count, kind in ((512, DensePairs), (513, TiledPairs)):
        assert type(compare(*torch.ones(2, count, 1))) is kind
    for negatives, symmetric, held, size in (
        ("cross", True, 4, 10 * 9), ("all", False, 0, 5 * 10), ("queue", True, 4, 10 * 4), ("queue", False, 0, 5 * 5)
    ):  # fmt: skip
        for limit, kind in ((size, DensePairs), (size - 1, TiledPairs)):
            monkeypatch.setattr(rows, "DENSE_LIMIT", limit)
            for engine, wanted in (("auto", kind), ("dense", DensePairs), ("tiled", TiledPairs)):
                found = compare(*views(5, 3), negatives, symmetric, queue=views(4, 3)[0][:held], engine=engine)
                assert type(found) is wanted


# -- memory ------------------------------------------------------------------------------------------------------------


class Memory(TorchDispatchMode):
    """Record the bytes of the largest tensor that an operation allocates."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [each.untyped_storage().nbytes() for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.largest = max([self.largest, *sizes])
        return out


def measured(name, count, **arguments):
    """Run forward and backward in float32. Return the bytes of the largest tensor and the size of the largest saved."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(count, 4, generator=generator).requires_grad_() for _ in range(2)]
    saved = [0]

    def pack(each):
        saved.append(each.numel())
        return each

    with (memory := Memory()):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            value = losses[name](*views, **needed(name, views[0]) | arguments)
        value.backward()
    return memory.largest, max(saved)


def test_nothing_is_as_large_as_the_similarities(small_tiles):
    """No tensor of N x N numbers is made or saved for the backward pass, also with ids."""
    small_tiles(64, 2**13)
    ids = {"queue": torch.ones(400, 4), "ids": torch.arange(400), "queue_ids": torch.arange(400).flip(0)}
    by_id = ("infonce", "mean_variance", "jsd")
    every = (*by_id, "adnce", "reweight", "dclw", "n_pair", "supcon", "tuplet", "triplet", "instance_nce")
    for name, own in [*((name, {}) for name in every), *((name, ids) for name in by_id)]:
        largest, saved = measured(name, 400, engine="tiled", **own)
        assert saved <= 10 * 400, (name, own)
        assert largest < 4 * 400**2 / 10, (name, own)
    # The measurement notices the matrix of the dense engine.
    largest, saved = measured("mean_variance", 400, engine="dense")
    assert largest >= 4 * 400 * 399
    assert saved >= 400 * 399


# -- Triton ------------------------------------------------------------------------------------------------------------


@needs_triton
@runs_none
def test_the_kernels_in_the_interpreter():
    run_interpreted(__file__, "triton and not interpreter")


@pytest.mark.cuda
@needs_triton
@runs_kernels
def test_triton_with_keys_of_other_ranks_and_gradients_that_are_not_wanted():
    """Compare the kernels with PyTorch's tiles; two runs are bitwise equal."""
    (z1, z2, queue), ids, queue_ids = data()
    unit = [torch.nn.functional.normalize(z).float().to(DEVICE) for z in (z1, z2, queue)]
    more = [unit[number].flip(1)[:-3].repeat(2, 1) for number in (0, 1)]  # sets 3 and 4, rows of other ranks
    first = (1, "diagonal"), (4, None), (0, "diagonal"), (3, None), (2, "ids")
    second = (0, "diagonal"), (3, None), (1, "diagonal"), (4, None), (2, "ids")
    comparison = Comparison((*unit, *more), (first, second), "cosine", (ids.to(DEVICE), queue_ids.to(DEVICE)))
    wanted = [number != 1 for number in range(len(comparison.sets))]
    upstream = torch.randn(1, 2 * len(z1), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    results = []
    for forward, backward in ((tiled.forward, tiled.backward), kernels(None), kernels(None)):
        sums = Sums(comparison, (linear(5.0),), False)
        totals, _ = forward(sums)
        slopes = backward(sums, totals, upstream, wanted)
        assert [each is not None for each in slopes] == wanted
        results.append([totals, *(each for each in slopes if each is not None)])
    for want, got, again in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert torch.equal(got, again)


def cuda_results(dtype, sizes, **own):
    rows = torch.randn(2, *sizes, generator=torch.Generator().manual_seed(0)).cuda()
    z1, z2 = (z.to(dtype).requires_grad_() for z in rows)
    value = infonce(z1, z2, negatives="all", engine="tiled", **own)
    value.backward()
    return [value.detach().double(), z1.grad.double(), z2.grad.double()]


@on_cuda
@pytest.mark.parametrize(("level", "tolerance"), [("highest", 1e-5), ("high", 1e-4), ("medium", 1e-2)])
def test_precisions_and_memory_on_cuda(monkeypatch, level, tolerance):
    """Compare with PyTorch's tiles in float64. A similarity matrix of 20,000 graphs would take 1.6 GB."""
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: level)
    for sizes in ((1100, 128), (1100, 300), (20_000, 128)):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = cuda_results(torch.float32, sizes)
        assert torch.cuda.max_memory_allocated() - before < 2e8
        for got, want in zip(found, cuda_results(torch.float64, sizes), strict=True):
            assert (got - want).abs().max() <= tolerance * max(1e-3, want.abs().max()), sizes


@on_cuda
def test_the_kernels_do_not_wait_for_cuda():
    cuda_results(torch.float32, (100, 8))  # compiles
    z1, z2 = torch.randn(2, 100, 8, device="cuda").requires_grad_()
    torch.cuda.set_sync_debug_mode("error")
    try:
        infonce(z1, z2, negatives="all", engine="tiled").backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
