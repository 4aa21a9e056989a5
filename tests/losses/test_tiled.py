"""Test the tiled engine against the dense engine, with sizes that tiles do not divide, and its memory."""

import dataclasses
import math
import weakref
from functools import cache, partial

import pytest
import torch
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphcl.errors import InputError
from graphcl.losses import compare
from graphcl.losses.engine import pairs, tiled, torch_tiles
from graphcl.losses.engine.dense import DensePairs
from graphcl.losses.engine.exponent import Exponent, gaussian, linear
from graphcl.losses.engine.sums import Sums
from graphcl.losses.engine.tiled import TiledPairs
from graphcl.registry import losses
from tests.losses.loops import needed
from tests.losses.table import TABLE
from tests.losses.test_contract import PAIRWISE as NAMES
from tests.losses.test_contract import contexts, variants

N, Q, D = 45, 23, 6
each_name = pytest.mark.parametrize("name", NAMES)


def cold(name):
    """Return a low temperature, at which exponents need their running maximum. RINCE allows only higher ones."""
    return {"temperature": TABLE[name].low} if "temperature" in losses.arguments(name).defaults else {}


@cache
def data(sizes=(N, Q, D), seed=0, length=1.0):
    """Return two views, a queue, ids and upstream gradients. Some pairs are close, one row is zero, some ids match."""
    count, keys, columns = sizes
    generator = torch.Generator().manual_seed(seed)
    z1, z2, third = torch.randn(3, max(count, keys), columns, generator=generator, dtype=torch.float64) * length
    z1, z2 = z1[:count].clone(), z2[:count].clone()
    z2[::3] = z1[::3] + 0.2 * z2[::3]
    z1[count - 1] = 0
    ids, queue_ids = (torch.randint(6, (size,), generator=generator) for size in (count, keys))
    upstream = torch.randn(2 * count, generator=generator, dtype=torch.float64)
    return {"z1": z1, "z2": z2, "queue": third[:keys], "ids": ids, "queue_ids": queue_ids, "upstream": upstream}


def results(name, engine, context, own, dtype=torch.float64, given_data=None):
    """Return the terms, and the gradients of z1, z2 and the queue for an upstream gradient that differs by anchor."""
    drawn = given_data or data()
    context = dict(context)
    held = context.pop("held", "nothing")
    # Convert before `requires_grad_`, so that gradients have this dtype.
    views = [drawn[key].to(dtype, copy=True).requires_grad_() for key in ("z1", "z2")]
    if held != "nothing":
        context["queue"] = drawn["queue"].to(dtype, copy=True).requires_grad_()
    if held == "ids":
        context |= {key: drawn[key] for key in ("ids", "queue_ids")}
    if "labels" in losses.arguments(name).tensors:
        context["labels"] = drawn["ids"]
    terms = losses[name](*views, engine=engine, reduction="none", **context, **own)
    (terms * drawn["upstream"][: len(terms)].to(terms.dtype)).sum().backward()
    leaves = [*views, *([context["queue"]] if held != "nothing" else [])]
    return [terms.detach(), *(z.grad for z in leaves)]


def error(got, want):
    """Return the largest absolute error divided by the largest expected absolute value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert torch.isfinite(want).all()
    assert torch.isfinite(got).all(), got
    got, want = got.detach(), want.detach()
    return float((got - want).abs().max() / want.abs().max()) if want.any() else float(got.abs().max())


def check_engines(name, own, among=None, dtype=torch.float64, tolerance=1e-11, given_data=None):
    """Assert that terms and gradients of the tiled engine equal those of the dense engine."""
    for context in among if among is not None else contexts(name):
        tiles, dense = (results(name, engine, context, own, dtype, given_data) for engine in ("tiled", "dense"))
        for part, got, want in zip(("terms", "z1", "z2", "queue"), tiles, dense, strict=False):
            off = error(got, want)
            assert off <= tolerance, f"{part} of {name} {own} {context}: {off:.1e}"


@pytest.fixture
def small_tiles(monkeypatch):
    """Return `shrink(size)`, which sets the tile size and limits the rows that are held at once."""

    def shrink(size, row_elements=1500):
        monkeypatch.setattr(torch_tiles, "TILE", size)
        monkeypatch.setattr(tiled, "ROW_ELEMENTS", row_elements)

    return shrink


# -- the same numbers --------------------------------------------------------------------------------------------------


@each_name
def test_the_tiled_engine_equals_the_dense_engine(small_tiles, name):
    """Test all settings, plain and at a low temperature, in float64 and float32; they share the contexts."""
    every = contexts(name)
    settings = [own for own in variants(name) if not own.keys() & every[0].keys()] + TABLE[name].settings
    for number, own in enumerate(settings):
        small_tiles(12 if number % 4 == 0 else 16)
        context = every[(5 * number) % len(every)]
        check_engines(name, own, [context, every[(5 * number + 7) % len(every)]])
        # Rounding errors are larger for steep exponents, such as e^(q logsumexp) of RINCE at q = 1.
        steep = name == "hcl" or own.get("q") == 1.0
        check_engines(name, own, [context], torch.float32, 4e-6 if steep or "temperature" in own else 1e-6)
        if cold(name) and own.get("q") != 1.0:
            check_engines(name, own | cold(name), [every[(5 * number + 3) % len(every)]])
    # The rounding error of a cosine is multiplied by 1 / temperature in the exponent.
    check_engines(name, cold(name), [every[0], every[-1]], torch.float32, 4e-5)


def in_steps(z):
    """Return bfloat16 numbers as integers. Neighbouring numbers differ by 1."""
    bits = z.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


@each_name
def test_bfloat16(small_tiles, name):
    small_tiles(16)
    for context in (contexts(name)[0], contexts(name)[-1]):
        tiles, dense = (results(name, engine, context, {}, torch.bfloat16) for engine in ("tiled", "dense"))
        assert error(tiles[0], dense[0]) < 1e-6
        assert tiles[0].dtype == torch.float32
        for got, want in zip(tiles[1:], dense[1:], strict=True):
            assert got.dtype == want.dtype == torch.bfloat16
            # Near zero, the bfloat16 spacing is below the rounding error of float32.
            tiny = (got.float() - want.float()).abs() <= 1e-6 * want.float().abs().max()
            assert ((in_steps(got) - in_steps(want)).abs() <= 1)[~tiny].all()
            assert (got == want).float().mean() > 0.9


def edge(make, low, high):
    """Return the last parameter with a small exponent and the first without, found by bisection."""
    assert make(low).is_small
    assert not make(high).is_small
    while not math.isclose(low, high, rel_tol=1e-9):
        middle = (low + high) / 2
        low, high = (middle, high) if make(middle).is_small else (low, middle)
    return low, high


EDGES = {
    "infonce": (linear, 1, 100, lambda factor: {"temperature": 1 / factor}),
    "adnce": (lambda rate: linear(5.0) + gaussian(0.7, 1 / rate), 1, 100, lambda rate: {"sigma": 1 / rate}),
    "hcl": (lambda factor: linear(2 * factor), 1, 100, lambda factor: {"temperature": 1 / factor}),
}


@pytest.mark.parametrize("name", EDGES)
def test_either_side_of_the_limit_of_small_exponents(small_tiles, name):
    make, low, high, arguments = EDGES[name]
    drawn = data() | {}
    # Include negatives with cosines 1 and -1, where the exponents are extreme.
    drawn["z2"] = drawn["z2"].clone()
    drawn["z2"][4], drawn["z2"][9] = 3 * drawn["z1"][5], -2 * drawn["z1"][5]
    small_tiles(16)
    choices = contexts(name)
    for parameter in edge(make, low, high):
        check_engines(name, arguments(parameter), choices[::3], torch.float64, given_data=drawn)
        check_engines(name, arguments(parameter), choices[1::3], torch.float32, 1e-5, drawn)


@each_name
def test_anchors_without_a_negative(small_tiles, name):
    """For graph 3, the queue contains only its own keys."""
    if "held" not in contexts(name)[0] or name == "nt_xent":
        return  # always some negative
    small_tiles(16)
    drawn = data() | {"queue_ids": torch.full((Q,), 3)}
    assert (drawn["ids"] == 3).any()
    among = [{"negatives": "queue", "symmetric": symmetric, "held": "ids"} for symmetric in (True, False)]
    for own in ({}, cold(name)):
        check_engines(name, own, among, given_data=drawn)
        terms = results(name, "tiled", among[1], own, given_data=drawn)[0]
        assert not terms[drawn["ids"] == 3].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
@pytest.mark.parametrize(
    ("name", "own"), [("alpha_cl", {"temperature": 0.001}), ("reweight", {"mu": 1.0, "sigma": 0.02}), ("infonce", {})]
)
def test_a_key_left_out_that_outweighs_all_others(name, own, engine, dtype):
    """The queue contains each graph's own key, which is masked. Its weight relative to the other weights overflows."""
    eye = torch.eye(4, dtype=dtype)
    z1, z2, queue = (z.clone().requires_grad_() for z in (eye, eye + 0.1 * eye.roll(1, 0), eye))
    ids = torch.arange(4)
    value = losses[name](z1, z2, negatives="queue", queue=queue, ids=ids, queue_ids=ids, engine=engine, **own)
    value.backward()
    assert torch.isfinite(value)
    for z in (z1, z2, queue):
        assert torch.isfinite(z.grad).all()


SUMS = {
    "one": (linear(5.0),),
    "three": (linear(10.0), gaussian(0.0, 1.0), linear(5.0) + gaussian(0.7, 0.5, frozen=False)),
    "cold ones among warm ones": (linear(300.0), linear(2.0), gaussian(0.5, 0.01, frozen=False)),
    "no slope": (Exponent((0.5,)), Exponent((), (0.0, 3.0)), linear(1.0)),
    "every power": (Exponent((0.3, 2.0, -1.0, 1.5, -2.0), (0.1, 0.0, 0.0, 0.5), center=0.4), linear(2.0)),
    "cubic": (Exponent((0.0, 2.0, 1.0, -1.5), center=0.2), Exponent((0.0, 200.0, 100.0, -150.0))),
}


OTHERS = ("dot", "squared_distance")


def compared_by(engine, negatives, symmetric, held, similarity):
    drawn = data(length=0.6)
    leaves = [drawn[key].clone().requires_grad_() for key in ("z1", "z2", "queue")[: 2 if held == "nothing" else 3]]
    rest = {"queue": leaves[2]} if held != "nothing" else {}
    if held == "ids":
        rest |= {key: drawn[key] for key in ("ids", "queue_ids")}
    return leaves, compare(*leaves[:2], negatives, symmetric, similarity=similarity, engine=engine, **rest)


def check_reduction(reduce, exact=1e-11, similarity="cosine"):
    """Assert that a reduction of `Pairs` and its gradients are equal in both engines."""
    for context in contexts("infonce")[::3]:
        negatives, held, symmetric = context.values()
        found = []
        for engine in ("tiled", "dense"):
            leaves, made = compared_by(engine, negatives, symmetric, held, similarity)
            outputs = reduce(made)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            upstream = torch.randn(len(outputs), outputs[0].numel(), generator=torch.Generator().manual_seed(1))
            total = sum((each * up).sum() for each, up in zip(outputs, upstream.double(), strict=True))
            slopes = torch.autograd.grad(total, leaves, allow_unused=True)
            found.append([*outputs, *(torch.zeros_like(z) if g is None else g for z, g in zip(leaves, slopes))])  # noqa: B905
        for got, want in zip(*found, strict=True):
            assert error(got, want) <= exact, (negatives, symmetric, held)


@pytest.mark.parametrize(
    ("name", "similarity"),
    [*((name, "cosine") for name in SUMS), *((name, other) for name in ("three", "every power") for other in OTHERS)],
)
def test_several_sums_at_once(small_tiles, name, similarity):
    small_tiles(16)
    exponents = SUMS[name]
    if similarity == "squared_distance":
        exponents = tuple(Exponent((), each.total) + linear(-2.0) for each in exponents)
    check_reduction(lambda made: made.logsumexp(*exponents), similarity=similarity)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "squared_distance"])
def test_other_reductions(small_tiles, similarity):
    small_tiles(16)
    # The per-anchor argument has a gradient too.
    check_reduction(
        lambda made: made.rows(lambda row, p: row.mean((row.value - p[:, None]).tanh()), made.positive),
        similarity=similarity,
    )
    if similarity != "squared_distance":
        check_reduction(lambda made: made.moments(), similarity=similarity)
        for exponent in (linear(5.0), linear(300.0), gaussian(0.7, 0.1), SUMS["every power"][0]):
            check_reduction(lambda made, p=exponent: made.expectation(p)[0], similarity=similarity)
            both = (compared_by(engine, "all", True, "ids", similarity)[1] for engine in ("tiled", "dense"))
            assert error(*(made.expectation(exponent)[1].detach() for made in both)) < 1e-12


PROBED = ["infonce", "adnce", "alpha_cl", "cl_dro", "jsd", "n_pair", "mean_variance", "triplet", "reweight"]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(st.integers(2, 20), st.integers(1, 15), st.integers(1, 6)),
    seed=st.integers(0, 1000),
    tile=st.integers(1, 24),
    row_elements=st.integers(1, 200),
    name=st.sampled_from(PROBED),
    choice=st.integers(0, 15),
    warmth=st.sampled_from(["plain", "cold"]),
)
@with_example((2, 1, 1), 0, 1, 1, "infonce", 5, "cold")
def test_any_sizes(sizes, seed, tile, row_elements, name, choice, warmth):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_tiles, "TILE", tile)
        patch.setattr(tiled, "ROW_ELEMENTS", row_elements)
        choices = contexts(name)
        own = cold(name) if warmth == "cold" else {}
        drawn = data(sizes, seed)
        context = choices[choice % len(choices)]
        tiles, dense = (results(name, engine, context, own, given_data=drawn) for engine in ("tiled", "dense"))
        # With few columns gradients can cancel to 0, so errors are also relative to 1.
        largest = max(1.0, *(float(each.abs().max()) for each in dense))
        for got, want in zip(tiles, dense, strict=True):
            assert (got - want).abs().max() <= 1e-10 * largest


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_gradcheck(small_tiles, views):
    small_tiles(3, 12)
    leaves = [z.clone().requires_grad_() for z in (*views(5, 3), views(4, 3, seed=1)[0])]
    for name, own in (("infonce", {"temperature": 0.01}), ("mean_variance", {})):
        loss = partial(losses[name], negatives="all", engine="tiled", reduction="none", **own)
        assert gradcheck(lambda a, b, c, loss=loss: loss(a, b, queue=c), leaves, atol=1e-5)


@pytest.mark.parametrize("name", ["infonce", "alpha_cl", "mean_variance", "triplet"])
def test_a_second_derivative_is_right_or_refused(small_tiles, views, name):
    """Tiled sums raise an error. Losses without tiled sums have a correct second derivative."""
    small_tiles(3, 12)

    def second(engine):
        z1, z2 = (z.requires_grad_() for z in views(5, 3))
        value = losses[name](z1, z2, engine=engine, **needed(name, z1))
        slopes = torch.autograd.grad(value, (z1, z2), create_graph=True)
        (slopes[0].square().sum() + (slopes[1] * slopes[0]).sum()).backward()
        return z1.grad, z2.grad

    if name in ("mean_variance", "triplet"):
        for got, want in zip(second("tiled"), second("dense"), strict=True):
            assert error(got, want) < 1e-10
    else:
        with pytest.raises(RuntimeError, match="the tiled engine has no second derivative; pass `engine='dense'`"):
            second("tiled")


@pytest.mark.parametrize("name", ["infonce", "jsd"])
def test_function_transforms_are_refused(views, name):
    z1, z2 = views(5, 3)
    with pytest.raises(InputError, match=r"^the tiled engine does not support torch\.func; pass `engine='dense'`"):
        torch.func.grad(lambda z: losses[name](z, z2, engine="tiled"))(z1)
    torch.func.grad(lambda z: losses[name](z, z2, engine="dense"))(z1)


@pytest.mark.parametrize("name", PROBED)
def test_gradients_in_training(small_tiles, views, name):
    """One view may need no gradient, as in MoCo; backward can run twice; inputs stay, and graphs are freed."""
    small_tiles(3, 12)
    for wanted in ((True, False), (False, True)):
        found = []
        for engine in ("tiled", "dense"):
            leaves = [z.clone().requires_grad_(want) for z, want in zip(views(5, 3), wanted, strict=True)]
            losses[name](*leaves, negatives="all", engine=engine).backward()
            assert leaves[wanted.index(False)].grad is None
            found.append(leaves[wanted.index(True)].grad)
        assert error(*found) < 1e-11
    z1, z2 = (z.clone().requires_grad_() for z in views(5, 3))
    before = z1.detach().clone()
    middle = z1 * 1.0
    alive = weakref.ref(middle)
    value = losses[name](middle, z2, engine="tiled")
    value.backward(retain_graph=True)
    once = z1.grad.clone()
    value.backward()
    torch.testing.assert_close(z1.grad, 2 * once)
    assert torch.equal(z1, before)
    del middle, value
    assert alive() is None, "the graph holds itself in a circle"


# -- which engine ------------------------------------------------------------------------------------------------------


def test_auto_goes_by_the_number_of_similarities(monkeypatch, views):
    """By default, `auto` selects the dense engine for two views of 512 graphs, and the tiled engine for 513."""
    for count, kind in ((512, DensePairs), (513, TiledPairs)):
        assert type(compare(*torch.ones(2, count, 1))) is kind
    for negatives, symmetric, held, size in (
        ("cross", True, 4, 10 * 9), ("all", False, 0, 5 * 10), ("queue", True, 4, 10 * 4), ("queue", False, 0, 5 * 5)
    ):  # fmt: skip
        for limit, kind in ((size, DensePairs), (size - 1, TiledPairs)):
            monkeypatch.setattr(pairs, "DENSE_LIMIT", limit)
            for engine, wanted in (("auto", kind), ("dense", DensePairs), ("tiled", TiledPairs)):
                found = compare(*views(5, 3), negatives, symmetric, queue=views(4, 3)[0][:held], engine=engine)
                assert type(found) is wanted


# -- memory ------------------------------------------------------------------------------------------------------------


class Memory(TorchDispatchMode):
    """Record the bytes allocated by operations: the largest storage, and the peak of all live storages."""

    def __init__(self, *known):
        super().__init__()
        self.largest = self.live = self.peak = 0
        self.known = {each.untyped_storage()._cdata for each in known}

    def free(self, key, size):
        self.known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    size = storage.nbytes()
                    weakref.finalize(storage, self.free, storage._cdata, size)
                    self.largest = max(self.largest, size)
                    self.live += size
                    self.peak = max(self.peak, self.live)
        return out


def measured(name, count, columns, **arguments):
    """Run forward and backward in float32. Return the memory beyond the inputs and the largest saved tensor."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(count, columns, generator=generator).requires_grad_() for _ in range(2)]
    saved = [0]

    def pack(each):
        saved.append(each.numel())
        return each

    memory = Memory(*views)
    with memory:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            value = losses[name](*views, **needed(name, views[0]) | arguments)
        value.backward()
    return memory, max(saved)


def test_memory_of_a_large_batch():
    """A similarity matrix of 4,000 graphs takes 64 MB; `measured` detects that of 1,500 in the dense engine."""
    for name in ("adnce", "mean_variance"):
        memory, saved = measured(name, 4000, 16, engine="tiled", negatives="all")
        assert memory.peak < 13e6
        assert memory.largest <= max(4 * 2 * 4000 * 16, 4 * torch_tiles.TILE**2)
        assert saved <= 2 * 4000 * 16
    memory, saved = measured("infonce", 1500, 16, engine="dense")
    assert memory.peak > 62e6
    assert memory.largest >= 4 * 1500 * 1499
    assert saved >= 1500 * 1499


IDS = {"queue": torch.ones(400, 4), "ids": torch.arange(400), "queue_ids": torch.arange(400).flip(0)}
MEMORY = [*((name, {}) for name in NAMES), ("cl_dro", {"divergence": "chi2"})]
MEMORY += [(name, IDS) for name in ("infonce", "mean_variance", "triplet")]


@pytest.mark.parametrize(("name", "own"), MEMORY, ids=[f"{name} {list(own)}" for name, own in MEMORY])
def test_nothing_is_as_large_as_the_similarities(small_tiles, name, own):
    """No tensor of N x N numbers is alive at any time or saved for the backward pass, also with ids."""
    small_tiles(64, 2**12)
    memory, saved = measured(name, 400, 4, engine="tiled", **own)
    assert saved <= 10 * 400
    assert memory.largest < 4 * 400**2 / 10
    assert memory.peak < 4 * 400**2 / 2 * (1 + bool("ids" in own))


# -- the checks notice broken tiles ------------------------------------------------------------------------------------


def edited(change):
    """Return a patch that applies `change` to the list of tiles."""
    original = torch_tiles._tiles
    return {(torch_tiles, "_tiles"): lambda sums: change(list(original(sums)))}


def backward(change):
    """Return a patch that applies `change` to the gradients."""
    original = torch_tiles.backward
    return {(torch_tiles, "backward"): lambda *arguments: change(*original(*arguments))}


def one_sided(tiles):
    return [dataclasses.replace(tile, both=False) for tile in tiles]


def own_diagonal_twice(tiles):
    return [dataclasses.replace(tile, both=tile.rows[0] == tile.columns[0] or tile.both) for tile in tiles]


def chunk_at_zero():
    original = tiled.similarity_rows

    def broken(comparison, anchors, rows):
        sets = list(comparison.sets)
        sets[anchors] = sets[anchors].roll(-rows.start, dims=0)
        first = slice(0, rows.stop - rows.start)
        return original(dataclasses.replace(comparison, sets=tuple(sets)), anchors, first)

    return {(tiled, "similarity_rows"): broken}


def first_maximum(before, now):
    return torch.where(before > -1e30, before, now) + 0 * now


IN_BATCH, BY_ID, NOTHING = {"negatives": ("cross", "all")}, {"held": ("ids",)}, torch.zeros(0, dtype=torch.long)
OVERFLOWS = ("every exponent is small", "the maximum of the first tile")
BREAKS = [
    ("diagonal", lambda: {(torch_tiles.Tile, "fill_masked"): lambda *_: None}, "infonce", IN_BATCH),
    ("the side of the columns", lambda: edited(one_sided), "infonce", IN_BATCH | {"symmetric": (True,)}),
    ("the side of the columns", lambda: edited(one_sided), "reweight", {"negatives": ("all",), "symmetric": (False,)}),
    ("a view's own tiles twice", lambda: edited(own_diagonal_twice), "infonce", {"negatives": ("all",)}),
    ("the last tile", lambda: edited(lambda tiles: tiles[:-1]), "infonce", {}),
    ("the second set's gradient", lambda: backward(lambda a, b, *rest: [a, 0 * b, *rest]), "reweight", IN_BATCH),
    ("the queue's gradient", lambda: backward(lambda a, b, *rest: [a, b, *(0 * each for each in rest)]), "infonce",
     {"held": ("queue", "ids")}),
    ("slightly wrong", lambda: backward(lambda *every: [each * (1 + 1e-9) for each in every]), "infonce", {}),
    (OVERFLOWS[0], lambda: {(Sums, "small"): lambda *_: True}, "infonce", {}),
    (OVERFLOWS[0], lambda: {(Sums, "small"): lambda *_: True}, "n_pair", {}),
    (OVERFLOWS[1], lambda: {(torch, "maximum"): first_maximum}, "infonce", IN_BATCH),
    ("where the chunk starts", chunk_at_zero, "triplet", IN_BATCH),
    ("where the chunk starts", chunk_at_zero, "jsd", BY_ID),
    ("equal ids", lambda: {(tiled, "_same_pairs"): lambda _: (NOTHING, NOTHING)}, "mean_variance", BY_ID),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "broken", "name", "concerned"), BREAKS)
def test_the_check_notices_broken_tiles(small_tiles, monkeypatch, fault, broken, name, concerned):
    """Every third context that the fault affects is tested."""
    small_tiles(16, 500)
    among = [each for each in contexts(name) if all(each[key] in values for key, values in concerned.items())][::3]
    # A missing running maximum shows only in float32 with large exponents.
    overflows = fault in OVERFLOWS
    dtype, tolerance = (torch.float32, 1e-4) if overflows else (torch.float64, 1e-11)
    check = partial(check_engines, name, cold(name) if overflows else {}, dtype=dtype, tolerance=tolerance)
    drawn = data(length=4.0) if name == "n_pair" else data()
    check(among, given_data=drawn)
    for place, replacement in broken().items():
        monkeypatch.setattr(*place, replacement)
    for context in among:
        with pytest.raises(AssertionError):
            check([context], given_data=drawn)


def test_the_memory_checks_notice_a_matrix(monkeypatch, small_tiles):
    small_tiles(64, 2**14)
    monkeypatch.setattr(torch_tiles, "TILE", 1000)
    memory, _ = measured("infonce", 1000, 4, engine="tiled")
    assert memory.largest >= 4 * 1000**2
    monkeypatch.setattr(tiled, "checkpoint", lambda function, *tensors, use_reentrant: function(*tensors))
    memory, saved = measured("jsd", 600, 4, engine="tiled")
    assert memory.peak > 4 * 600**2 / 2
    assert saved > 10 * 600
