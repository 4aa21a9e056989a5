"""Test the Triton kernels against PyTorch's tiles and the dense engine.

On the CPU, the kernels run in Triton's interpreter. An environment variable must enable the interpreter before Triton
is imported, so one separate process runs all checks, and each test reads its result. The interpreter accepts code that
the compiler rejects, so the kernels are also compiled, which needs no GPU. Tests marked `cuda` run the same checks, and
larger ones, on a GPU.
"""

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
import torch

from graphcl.losses import adnce, alpha_cl, hcl, infonce
from graphcl.losses.engine import torch_tiles
from graphcl.losses.engine.comparison import Comparison
from graphcl.losses.engine.exponent import Exponent, gaussian, linear
from graphcl.losses.engine.tiled import Sums, tiles

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def on_cuda(test):
    return pytest.mark.cuda(needs_cuda(needs_triton(test)))


ROOT = Path(__file__).parents[2]
N, Q, D = 37, 19, 20  # not multiples of a block size
QUARTIC = Exponent((), (0.0, 0.0, 0.0, 0.0, -2.0), center=1.0)

EXPONENTS = {
    "linear": (linear(5.0),),
    "cold": (linear(100.0),),
    "frozen": (linear(5.0) + gaussian(0.7, 0.3), gaussian(0.7, 0.3)),
    "free": (linear(5.0) + gaussian(0.7, 0.3, frozen=False), gaussian(0.7, 0.3, frozen=False)),
    "narrow": (linear(100.0) + gaussian(0.3, 0.02),),
    "low": (Exponent((-200.0, 5.0)),),  # e^P is 0 in float32
    "two": (linear(10.0), linear(5.0)),
    "three": (linear(10.0), gaussian(0.0, 1.0), linear(5.0) + gaussian(0.7, 0.5, frozen=False)),
    "every power": (Exponent((0.3, 2.0, -1.0, 1.5, -2.0), (0.1, 0.0, 0.0, 0.5), center=0.4), linear(2.0)),
    "cubic": (Exponent((0.0, 2.0, 1.0, -1.5), center=0.2),),
}
EXPECTED = {
    "linear": (linear(5.0),),
    "quartic": (QUARTIC,),
    "cold": (linear(100.0),),
    "gaussian": (gaussian(0.7, 0.1),),
}

ACROSS, BACK, OWN, OWN_TOO = (1, "diagonal"), (0, "diagonal"), (0, "diagonal"), (1, "diagonal")
PAIRS = {
    "cross": ((ACROSS,),),
    "cross, symmetric": ((ACROSS,), (BACK,)),
    "all": ((ACROSS, OWN),),
    "all, symmetric": ((ACROSS, OWN), (BACK, OWN_TOO)),
    "queue": (((2, None),),),
    "queue, symmetric": (((2, None),), ((2, None),)),
    "all and queue, symmetric": ((ACROSS, OWN, (2, None)), (BACK, OWN_TOO, (2, None))),
    "queue by ids": (((2, "ids"),),),
    "cross and queue by ids, symmetric": ((ACROSS, (2, "ids")), (BACK, (2, "ids"))),
}
LOSSES = {
    "infonce": infonce,
    "infonce, cold": partial(infonce, temperature=0.01),
    "adnce": adnce,
    "adnce, free": partial(adnce, detach_weight=False, sigma=0.3),
    "hcl": hcl,
    "alpha_cl": alpha_cl,
    "alpha_cl, epsilon": partial(alpha_cl, epsilon=0.1),
}


# -- the checks, on a device -------------------------------------------------------------------------------------------


def agree(got, expected, tolerance=1e-5):
    """Assert that `got` equals `expected` up to `tolerance` times the largest expected absolute value."""
    assert got.shape == expected.shape
    expected = expected.to(got)
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(got), finite), (got, expected)
    assert torch.equal(got[~finite], expected[~finite]), (got, expected)
    error, largest = (got - expected)[finite].abs(), expected[finite].abs()
    assert error.numel() == 0 or error.max() <= tolerance * max(1e-3, largest.max()), (error.max(), largest.max())


def tolerance_of(name):
    """Return the tolerance of a check. It is larger for steep exponents, which amplify rounding errors."""
    return 4e-5 if "cold" in name or name in ("narrow", "low") else 1e-5


def example(key_sets, similarity="cosine", sizes=(N, Q, D), device="cpu"):
    """Return a float64 comparison of random rows and its upstream gradients. Some pairs are close, some ids match."""
    count, keys, width = sizes
    generator = torch.Generator().manual_seed(count + width)
    rows = torch.randn(2 * count + keys, width, generator=generator, dtype=torch.float64)
    rows = torch.nn.functional.normalize(rows) * (1.5 if similarity == "dot" else 1.0)
    # Include close pairs, at which steep exponents are much larger than elsewhere.
    close = torch.nn.functional.normalize(rows[: count - 1] + 0.1 * rows[count : 2 * count - 1])
    rows[count + 1 : 2 * count : 3] = close[::3]
    ids = torch.randint(6, (count,), generator=generator), torch.randint(6, (keys,), generator=generator)
    sets = rows.split([count, count, keys])[: 3 if any(key == 2 for of in key_sets for key, _ in of) else 2]
    upstream = [torch.randn(3, count, generator=generator, dtype=torch.float64) for _ in key_sets]
    sets, upstream = (tuple(each.to(device) for each in some) for some in (sets, upstream))
    by_id = any(mask == "ids" for of in key_sets for _, mask in of)
    return Comparison(sets, key_sets, similarity, tuple(each.to(device) for each in ids) if by_id else None), upstream


def in_dtype(comparison, dtype):
    return Comparison(tuple(z.to(dtype) for z in comparison.sets), *list(vars(comparison).values())[1:])


def check_sums(
    key_sets,
    exponents,
    expected,
    *,
    device,
    similarity="cosine",
    wanted=None,
    sizes=(N, Q, D),
    tolerance=1e-5,
    others=None,
):
    """Compare the kernels' sums and gradients with PyTorch's tiles in float64.

    With `others`, keys of other ranks are added to this rank's keys (`beside`) or replace them (`instead`).
    """
    from graphcl.losses.engine import triton_tiles

    comparison, upstream = example(key_sets, similarity, sizes, device)
    if others is not None:
        more = {number: comparison.sets[number].flip(1)[:-3].repeat(2, 1) for number in comparison.batch_sets}
        comparison = comparison.with_keys(more, own=others == "beside")
    wanted = [True] * len(comparison.sets) if wanted is None else wanted
    upstream = [each[: len(exponents)] for each in upstream]
    results = []
    for module, dtype in ((triton_tiles, torch.float32), (torch_tiles, torch.float64)):
        # Round the input to float32 for both, as steep exponents amplify input differences.
        sums = Sums(in_dtype(in_dtype(comparison, torch.float32), dtype), exponents, expected)
        totals, means = module.forward(sums)
        # Like autograd, pass views of one tensor for all anchors.
        given = list(torch.cat(upstream, dim=1).to(dtype).split(upstream[0].size(1), dim=1))
        gradients = module.backward(sums, totals, given, given, wanted)
        assert [each is not None for each in gradients] == wanted
        results.append([*totals, *means, *(each for each in gradients if each is not None)])
    for got, right in zip(*results, strict=True):
        assert got.dtype == torch.float32
        agree(got, right, tolerance)


def check_lonely(device):
    """Check anchors without negatives: logsumexp -inf, mean 0 and zero gradient, for any upstream gradient."""
    from graphcl.losses.engine import triton_tiles

    comparison, upstream = example((((2, "ids"),), ((2, "ids"),)), device=device)
    comparison = in_dtype(comparison, torch.float32)
    ids = comparison.ids[0], torch.full_like(comparison.ids[1], 3)
    comparison = Comparison(comparison.sets, comparison.key_sets, "cosine", ids)
    lonely = ids[0] == 3
    assert lonely.any()
    assert not lonely.all()
    upstream = [each[:1].float().masked_fill(lonely, torch.inf) for each in upstream]
    for expected in (False, True):
        sums = Sums(comparison, (linear(5.0),), expected)
        totals, means = triton_tiles.forward(sums)
        for total, mean in zip(totals, means, strict=True):
            assert torch.equal(total[0] == -torch.inf, lonely)
            assert (mean[0, lonely] == 0).all()
        gradients = triton_tiles.backward(sums, totals, upstream, upstream, [True] * 3)
        for gradient in gradients:
            assert torch.isfinite(gradient).all()
        for gradient in gradients[:2]:
            assert (gradient[lonely] == 0).all()
            assert (gradient[~lonely] != 0).any(dim=1).all()


def check_repeatable(device):
    """Assert that two runs give bitwise equal sums and gradients."""
    from graphcl.losses.engine import triton_tiles

    comparison, upstream = example(PAIRS["all and queue, symmetric"], device=device)
    sums = Sums(in_dtype(comparison, torch.float32), EXPONENTS["two"], False)
    upstream = [each[:2].float() for each in upstream]
    runs = []
    for _ in range(2):
        totals, _ = triton_tiles.forward(sums)
        runs.append([*totals, *triton_tiles.backward(sums, totals, upstream, upstream, [True] * 3)])
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


def check_loss(loss, *, device, negatives="all", by_id=True, count=N, keys=Q, width=D, tolerance=1e-5, strided=False):
    """Compare a loss on the Triton tiles in float32 with the dense engine in float64."""
    from graphcl.losses.engine import triton_tiles

    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    shared = {
        "negatives": negatives,
        "weight": torch.rand(count, generator=generator).to(device),
        "ids": torch.randint(6, (count,), generator=generator).to(device) if by_id else None,
        "queue_ids": torch.randint(6, (keys,), generator=generator).to(device) if by_id else None,
    }
    rows = draw(count, width), draw(count, width), draw(keys, width)
    if strided:
        rows = tuple(each.T.contiguous().T for each in rows)
    results = []
    for engine, dtype in (("tiled", torch.float32), ("dense", torch.float64)):
        z1, z2, queue = (each.float().to(device, dtype).requires_grad_() for each in rows)
        with mock.patch("graphcl.losses.engine.pairs.tiles", return_value=triton_tiles):
            value = loss(z1, z2, queue=queue, engine=engine, **shared)
        value.backward()
        results.append([value.detach(), z1.grad, z2.grad, queue.grad])
    for got, right in zip(*results, strict=True):
        assert got.dtype == torch.float32
        agree(got, right, tolerance)


def checks():
    """Return all checks by name. Each takes the argument `device`."""
    full, by_ids = "all and queue, symmetric", "cross and queue by ids, symmetric"
    # Each row: pairs, exponents, whether means are compared, other arguments. All comparisons take two exponents; the
    # most complex one takes all exponents.
    rows = [(who, what, False, {}) for who, what in product(PAIRS, EXPONENTS) if what == "frozen" or who == by_ids]
    rows += [(who, what, True, {}) for who, what in product(("cross", full, "queue by ids"), EXPECTED)
             if what == "quartic" or who == "queue by ids"]  # fmt: skip
    rows += [("all, symmetric", "three times", False, {"similarity": "dot"})]
    rows += [(full, "linear", False, {"wanted": [number == one for number in range(3)]}) for one in range(3)]
    rows += [(full, "linear", False, {"sizes": size}) for size in ((2, 1, 1), (16, 16, 16), (17, 33, 70), (5, 40, 3))]
    rows += [(who, "frozen", False, {"others": others})
             for who, others in product(("all, symmetric", by_ids), ("beside", "instead"))]  # fmt: skip
    tables, result = (EXPONENTS | {"three times": (linear(3.0),)}, EXPECTED), {}
    for who, what, expected, own in rows:
        check = partial(check_sums, PAIRS[who], tables[expected][what], expected, tolerance=tolerance_of(what), **own)
        result[f"{who}: {what}, expected {expected}, {own}"] = check
    result |= {"lonely": check_lonely, "repeatable": check_repeatable}
    result |= {f"loss: {name}": partial(check_loss, LOSSES[name], tolerance=tolerance_of(name)) for name in LOSSES}
    result["loss: of the queue alone"] = partial(check_loss, infonce, negatives="queue", by_id=False)
    result["loss: of columns"] = partial(check_loss, infonce, strided=True)
    return result


CHECKS = checks()


# -- in the interpreter ------------------------------------------------------------------------------------------------


def interpret():
    """Run all checks and return the traceback of each by name; empty if the check passed."""
    from graphcl.losses.engine import triton_tiles

    # Use small blocks, so that rows, columns and coordinates take several blocks.
    small = triton_tiles.Blocks(rows=32, columns=32, depth=16, width=32)
    triton_tiles.FORWARD = triton_tiles.BACKWARD = {"ieee": small}
    outcomes = {}
    for name, check in CHECKS.items():
        try:
            check(device="cpu")
            outcomes[name] = ""
        except Exception:
            outcomes[name] = traceback.format_exc()
    return outcomes


@pytest.fixture(scope="module")
def outcomes():
    """Run all checks in a separate process and return the traceback of each by name."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_triton
@pytest.mark.parametrize("name", CHECKS)
def test_in_the_interpreter(outcomes, name):
    assert not outcomes[name], outcomes[name]


# -- through the compiler ----------------------------------------------------------------------------------------------


@pytest.fixture
def precision():
    """Return a function that sets the precision of float32 products until the end of the test."""
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@needs_triton
def test_the_kernels_compile(precision, tmp_path, monkeypatch):
    """Compile each kernel for Hopper instead of running it, and check its shared memory."""
    triton = pytest.importorskip("triton", minversion="3.3", reason="an earlier Triton compiles by other arguments")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from graphcl.losses.engine import triton_tiles

    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("Triton was asked to interpret its kernels")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kinds = {torch.float32: "*fp32", torch.int64: "*i64"}
    memory = {"_forward": [], "_backward": []}

    class Launcher:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            return self.launch

        def launch(self, *values, num_warps, num_stages, **constants):
            names = self.kernel.arg_names
            given = [kinds[each.dtype] if isinstance(each, torch.Tensor) else type(each) for each in values]
            given = [{int: "i32", float: "fp32"}.get(each, each) for each in given]
            signature = dict(zip(names, given, strict=False)) | dict.fromkeys(constants, "constexpr")
            assert list(signature) == names
            known = {(names.index(name),): value for name, value in constants.items()}
            aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(given) if kind.startswith("*")}
            compiled = triton.compile(
                ASTSource(self.kernel, signature, known, aligned),
                target=GPUTarget("cuda", 90, 32),
                options={"num_warps": num_warps, "num_stages": num_stages},
            )
            # Machine code and resource usage are available without a GPU.
            assert compiled.asm["cubin"]
            memory[self.kernel.__name__].append(compiled.metadata.shared / 1024)

    for name in memory:
        monkeypatch.setattr(triton_tiles, name, Launcher(getattr(triton_tiles, name)))
    for level, exponents, key_sets in (
        ("highest", EXPONENTS["every power"], ((2, "ids"),)),
        ("high", EXPONENTS["two"], (OWN,)),
        ("medium", EXPONENTS["linear"], (OWN,)),
    ):
        precision(level)
        comparison, upstream = example((key_sets,), sizes=(32, 32, 128))
        sums = Sums(in_dtype(comparison, torch.float32), exponents, level == "medium")
        totals, _ = triton_tiles.forward(sums)
        upstream = [each[: len(exponents)].float() for each in upstream]
        triton_tiles.backward(sums, totals, upstream, upstream, [True] * len(comparison.sets))
    # Every GPU with TF32 tensor cores has this much shared memory.
    assert 0 < max(memory["_forward"]) <= 99, memory
    assert 0 < max(memory["_backward"]) <= 99, memory


# -- on a device -------------------------------------------------------------------------------------------------------


@on_cuda
def test_on_cuda_the_tiles_are_tritons():
    from graphcl.losses.engine import triton_tiles

    assert tiles(torch.zeros(2, 2, device="cuda")) is triton_tiles
    assert tiles(torch.zeros(2, 2, device="cuda", dtype=torch.float64)) is torch_tiles


@on_cuda
@pytest.mark.parametrize("name", CHECKS)
def test_on_cuda(precision, name):
    precision("highest")
    CHECKS[name](device="cuda")


@on_cuda
@pytest.mark.parametrize(("level", "tolerance"), [("highest", 1e-5), ("high", 1e-4), ("medium", 1e-2)])
@pytest.mark.parametrize("width", [128, 300])
def test_precisions_on_cuda(precision, level, tolerance, width):
    precision(level)
    check_loss(infonce, device="cuda", count=1100, keys=700, width=width, tolerance=tolerance)


@on_cuda
@pytest.mark.parametrize("name", LOSSES)
def test_as_the_dense_engine_on_cuda(precision, name):
    precision("highest")
    check_loss(LOSSES[name], device="cuda", count=2000, width=64, tolerance=10 * tolerance_of(name))


@on_cuda
def test_twenty_thousand_graphs_on_cuda(precision):
    """Compare with PyTorch's tiles in float64. A similarity matrix would take 1.6 GB."""
    precision("highest")
    rows = torch.randn(2, 20_000, 128, generator=torch.Generator().manual_seed(0)).cuda()
    results = []
    for dtype in (torch.float32, torch.float64):
        z1, z2 = (z.to(dtype).requires_grad_() for z in rows)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        value = infonce(z1, z2, negatives="all", engine="tiled")
        value.backward()
        if dtype == torch.float32:
            assert torch.cuda.max_memory_allocated() - before < 2e8
        results.append([value.detach(), z1.grad, z2.grad])
    for got, right in zip(*results, strict=True):
        agree(got, right)


@on_cuda
def test_the_kernels_do_not_wait_for_cuda():
    from graphcl.losses.engine import triton_tiles

    comparison, upstream = example(PAIRS["cross and queue by ids, symmetric"], device="cuda")
    sums = Sums(in_dtype(comparison, torch.float32), EXPONENTS["two"], False)
    upstream = [each[:2].float() for each in upstream]

    def both_passes():
        totals, _ = triton_tiles.forward(sums)
        triton_tiles.backward(sums, totals, upstream, upstream, [True] * 3)

    both_passes()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        both_passes()
    finally:
        torch.cuda.set_sync_debug_mode("default")


# -- what is chosen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "dtype", "found", "name"),
    [
        (True, torch.float32, object(), "triton_tiles"),
        (True, torch.float64, object(), "torch_tiles"),
        (True, torch.float32, None, "torch_tiles"),
        (False, torch.float32, object(), "torch_tiles"),
    ],
)
def test_the_choice_for_a_device(cuda, dtype, found, name):
    some = mock.Mock(is_cuda=cuda, dtype=dtype)
    with mock.patch("importlib.util.find_spec", return_value=found):
        assert tiles(some).__name__ == f"graphcl.losses.engine.{name}"


def test_the_kernels_can_be_read_without_triton():
    """Documentation tools and tests import every module, also without Triton."""
    path = ROOT / "graphcl" / "losses" / "engine" / "triton_tiles.py"
    spec = importlib.util.spec_from_file_location("without_triton", path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"triton": None, "without_triton": module}):
        spec.loader.exec_module(module)
    assert callable(module._forward)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(interpret()))
