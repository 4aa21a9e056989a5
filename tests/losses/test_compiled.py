"""Compile the Triton kernels for GPUs, without one, and limit registers, spills and shared memory.

Triton contains NVIDIA's assembler and `cuobjdump`, which reads the compiled kernels. `pytest -m triton` compiles for
all GPUs and widths, in some minutes; otherwise a few kernels are compiled. The limits are what Triton 3.9 needs.
"""

import re
import subprocess
import tempfile
from collections import Counter
from itertools import product

import pytest
import torch

from graphcl import GIN, Loss
from graphcl.augment import subgraph
from graphcl.losses import tiled, triton_tiles
from graphcl.models import triton_gin
from graphcl.models.aggregate import CSRAdjacency, SegmentIndex
from graphcl.models.compiled import plain_weights

triton = pytest.importorskip("triton", "3.9", reason="the limits are those of Triton 3.9")
GPUS = 75, 80, 86, 90, 100, 120
LIMITS = {
    ("highest", "_forward"): (168, 16, 49_248),
    ("highest", "_backward"): (255, 24, 49_152),
    ("high", "_forward"): (168, 16, 49_152),
    ("high", "_backward"): (255, 24, 49_152),
    ("medium", "_forward"): (255, 16, 98_304),
    ("medium", "_backward"): (200, 16, 49_152),
}
LARGE = {
    90: {
        ("highest", "_forward"): (128, 0, 196_608),
        ("highest", "_backward"): (255, 16, 197_632),
        ("high", "_forward"): (128, 0, 163_840),
        ("high", "_backward"): (255, 72, 99_328),
        ("medium", "_forward"): (128, 0, 81_920),
        ("medium", "_backward"): (255, 0, 83_968),
    },
    100: {
        ("highest", "_forward"): (176, 0, 147_544),
        ("highest", "_backward"): (255, 248, 148_584),
        ("high", "_forward"): (128, 0, 131_112),
        ("high", "_backward"): (255, 80, 66_616),
        ("medium", "_forward"): (128, 0, 81_936),
        ("medium", "_backward"): (255, 544, 116_768),
    },
}
FLOAT32 = {"_forward": (255, 16, 16_384), "_backward": (255, 16, 24_576)}
"""Precision and kernel -> most registers and bytes of spills per thread, and bytes of shared memory.

`LARGE` is for capabilities with large blocks, and `FLOAT32` for those without products in bfloat16. Kernels with two
exponents spill most.
"""


class Driver:
    """Stand in for a driver, so that kernels are compiled for a GPU of this compute capability."""

    def __init__(self, capability):
        from triton.backends.compiler import GPUTarget

        self.target, self.capability = GPUTarget("cuda", capability, 32), capability

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.capability  # Triton keeps kernels by device

    def get_current_stream(self, device):
        return 0


class Compiled:
    """Compile a kernel where it would be launched, with the same arguments."""

    def __init__(self, kernel, found):
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self.found.append((self.kernel.fn.__name__, self.kernel.warmup(*arguments, grid=grid, **options)))

        return launch


@pytest.fixture
def compiled(monkeypatch):
    """Return `compile(capability, precision, width, loss)`, which returns the names and kernels of a training step."""
    found = []
    for name in ("_forward", "_backward"):
        monkeypatch.setattr(triton_tiles, name, Compiled(getattr(triton_tiles, name), found))
    monkeypatch.setattr(tiled, "tiles", lambda _: (triton_tiles.forward, triton_tiles.backward))

    def compile(capability, precision, width, loss="infonce"):
        monkeypatch.setattr(triton.runtime.driver, "_active", Driver(capability))
        monkeypatch.setattr(triton_tiles, "_device", lambda _: (capability, 100))
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
        found.clear()
        views = torch.randn(2, 1024, width, generator=torch.Generator().manual_seed(0)).requires_grad_()
        Loss(loss)(*views, negatives="all", engine="tiled").backward()
        return list({(name, kernel.hash): (name, kernel) for name, kernel in found}.values())

    return compile


def resources(kernel):
    """Return the registers and the bytes of spills (the stack) per thread, and the bytes of shared memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.search(rf"{name}:(\d+)", text)[1]) for name in ("REG", "STACK", "LOCAL"))
    return registers, stack + local, kernel.metadata.shared


def instructions(kernel):
    """Return the number of instructions of each kind in the kernel's PTX."""
    return Counter(re.findall(r"^\s+(?:@\S+ )?(wgmma\.mma|tcgen05\.mma|[a-z]+\d*)[._]", kernel.asm["ptx"], re.M))


def check(kernels, precision, where):
    """Assert that resources are within the limits, that FP fusion is on, and that products use tensor cores."""
    assert {name for name, _ in kernels} == {"_forward", "_backward"}
    for name, kernel in kernels:
        limits = LARGE.get(where[0], LIMITS) if where[2] <= triton_tiles.WIDEST else LIMITS
        used, most = resources(kernel), FLOAT32[name] if where[0] < 80 else limits[precision, name]
        assert all(one <= limit for one, limit in zip(used, most, strict=True)), (name, where, used)
        assert kernel.metadata.enable_fp_fusion
        counts = instructions(kernel)
        tensor_cores = sum(counts[each] for each in ("mma", "wgmma.mma", "tcgen05.mma"))
        assert (tensor_cores > 0) == (where[0] >= 80), (name, where, counts)
        if not tensor_cores:
            assert counts["fma"] > 4 * counts["mul"], (name, where, counts)


@pytest.mark.parametrize(("capability", "precision"), [(80, "high"), (90, "highest")])
def test_kernels_fit_and_use_the_tensor_cores(compiled, capability, precision):
    check(compiled(capability, precision, 128), precision, (capability, precision, 128))


@pytest.mark.triton
@pytest.mark.parametrize("capability", GPUS)
def test_kernels_of_all_widths_and_of_two_exponents_fit(compiled, capability):
    """`hcl` and `adnce` have two exponents, the latter quadratic ones."""
    cases = [("infonce", width) for width in (32, 64, 128, 256, 512)] + [("hcl", 128), ("adnce", 128)]
    for precision, (loss, width) in product(triton_tiles.PIECES, cases):
        check(compiled(capability, precision, width, loss), precision, (capability, precision, width, loss))


def test_a_kernel_that_spills_is_refused(compiled, monkeypatch):
    forward, backward = triton_tiles.SMALL[2]
    monkeypatch.setitem(triton_tiles.SMALL, 2, (forward, backward | {"maxnreg": 64}))
    with pytest.raises(AssertionError, match=r"_backward.*\(64, \d{2,}, "):
        check(compiled(80, "high", 128), "high", (80, "high", 128))


@pytest.mark.parametrize("capability", [80, *(pytest.param(each, marks=pytest.mark.triton) for each in (86, 90, 120))])
def test_kernels_of_gin_fit(monkeypatch, capability):
    """At the widths that `triton_gin` supports, few registers spill, and shared memory is that of chips with 99 KB."""
    found = []
    for name in ("_layer", "_merge", "_pool", "_row_gradients", "_mean_gradients", "_perceptron_gradients"):
        monkeypatch.setattr(triton_gin, name, Compiled(getattr(triton_gin, name), found))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(capability))
    for width in (37, triton_gin.WIDEST_INPUT):
        encoder = GIN(width, hidden_channels=triton_gin.WIDEST, num_layers=2)
        x, ids = torch.randn(64, width), torch.arange(64) // 8
        neighbours = CSRAdjacency.of(torch.stack([torch.arange(64), torch.arange(64).flip(0)]), 64)
        weights = plain_weights([conv.nn for conv in encoder.convs], encoder.norms, x, triton_gin.WIDEST)
        index = SegmentIndex.of(ids, 8)
        triton_gin.sums(x, neighbours, index, list(encoder.norms), weights, [32, 32]).sum().backward()
    used = [(name, *resources(kernel)) for name, kernel in found]
    assert len(used) == 22
    assert not [each for each in used if each[2] > 256 or each[3] > 99 * 1024], used


@pytest.mark.parametrize("capability", [80, *(pytest.param(each, marks=pytest.mark.triton) for each in (90, 120))])
def test_the_kernel_of_subgraphs_fits(monkeypatch, capability):
    found = []
    monkeypatch.setattr(subgraph, "_relax", Compiled(subgraph._relax, found))
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(capability))
    times, places = torch.zeros(8, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.long)
    for most in (20, 100, 5000):
        subgraph.first_passage(times, places, times[:4], places, most)
    used = [resources(kernel) for _, kernel in found]
    assert len(used) == 3
    assert max(registers for registers, _, _ in used) <= 80, used
    assert not any(spills for _, spills, _ in used), used
