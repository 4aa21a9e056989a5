"""Compute the least time that a step of the encoder can take on this machine.

Rates, measured in the same process with the same threads, the best of several tries each: copying (bytes read plus
bytes written), between buffers that lie in memory and between ones that lie in the cache; products of large square
matrices, and of the encoder's own shape, [rows, 32] by [32, 32].

A step is forward and backward of GIN with L layers of width H on two views. A view has N nodes, E directed edges and F
features. Layer l has inputs of width w (F, then H).

Flops: the two linear maps take 2 N (w H + H H), three times over for forward, gradient of the input and gradient of the
weights; the first map of the first layer needs no gradient of its input. Sums over neighbours take E w, and once more
backward except in the first layer.

Bytes: what an implementation moves that fuses all it can, in float32. What is local to a row stays in registers,
BatchNorm and the pooling accumulate while their input is written, and normalisation happens where the next layer reads.

| moved by layer l                                                                    | numbers           |
|-------------------------------------------------------------------------------------|-------------------|
| forward: read a row per edge and each node's own, keep the sums                     | E w + N w + N w   |
| forward: keep the hidden layer and the output                                       | N H + N H         |
| backward: read the output once for BatchNorm's sums                                 | N H               |
| backward: read gradient, output, hidden layer and kept sums                         | 3 N H + N w       |
| backward, not in the first layer: write the sums' gradient; read it a row per edge   | N w + E w         |
| and each node's own, write the gradient of the layer below                          | + N w + N w       |
| the other ends of the edges, four bytes each, at each reading per edge              | E                 |

`floor_s` is the larger of flops / best rate and bytes / cache bandwidth: no implementation in float32 is faster that
sums neighbours before it maps and computes nothing twice, even if everything overlaps. (Where F > H, mapping first
would move less; one-hot features could be looked up instead of multiplied.) `reachable_s` is the sum of flops / rate at
the encoder's shape and bytes / bandwidth, that of the cache if what a view keeps fits into it and that of memory
otherwise: nothing overlaps, but nothing is moved twice.

`step_bounds` is a model of a whole eager step on a GPU that is not there, from its data sheet. A step takes at least
the bytes above / bandwidth, the flops / peak in float32, and 2 microseconds for each kernel. It takes at most 40
microseconds for each operation that the host dispatches (5 to 8 are usual; the host of the H200 that was measured took
16 to 34), and then the bytes of all tensors that kernels read and write, at half of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from timing import timed

GPUS = {"H100": (3.35e12, 67e12), "H200": (4.8e12, 67e12), "A100": (2.04e12, 19.5e12), "L4": (0.3e12, 30.3e12)}
"""Bytes and float32 flops per second, of the SXM modules of the first three, the A100 with 80 GB."""
LAUNCH_S, DISPATCH_S = 2e-6, 40e-6
CACHE_BYTES = 16 * 2**20
"""A view whose kept numbers take less is assumed to fit into the cache."""


@dataclass(frozen=True)
class Rates:
    memory_copy: float
    """Bytes per second."""
    cache_copy: float
    square: float
    """Flops per second of [n, n] by [n, n]."""
    shape: float
    """Flops per second of [rows, 32] by [32, 32]."""


@dataclass(frozen=True)
class Floor:
    flops: float
    bytes: float
    floor_s: float
    reachable_s: float


def rates(
    rows: int, device: torch.device | str = "cpu", quick: bool = False, dtype: torch.dtype = torch.float32
) -> Rates:
    """Return the machine's rates; `rows` is the number of nodes in a view."""
    large, small = (2**20, 2**18) if quick else (2**28, 2**20)
    square = 128 if quick else 2048
    return Rates(
        _copy(large, device),
        max(_copy(size, device) for size in (small, 2 * small, 4 * small)),
        _product(square, square, square, device, dtype),
        _product(rows, 32, 32, device, dtype),
    )


def _best(action, device: torch.device | str) -> float:
    """Return the least seconds of one call, over tries of about 20 ms each."""
    action()
    calls = max(1, min(2000, int(0.02 / max(1e-7, timed(action, device)))))
    return min(timed(lambda: [action() for _ in range(calls)], device) for _ in range(7)) / calls


def _copy(size: int, device: torch.device | str) -> float:
    source = torch.ones(size // 4, device=device)
    target = torch.zeros_like(source)
    return 2 * size / _best(lambda: target.copy_(source), device)


def _product(n: int, k: int, m: int, device: torch.device | str, dtype: torch.dtype) -> float:
    a, b = torch.randn(n, k, device=device, dtype=dtype), torch.randn(k, m, device=device, dtype=dtype)
    out = torch.empty(n, m, device=device, dtype=dtype)
    return 2 * n * k * m / _best(lambda: torch.mm(a, b, out=out), device)


def work(nodes: float, edges: float, features: int, hidden: int = 32, layers: int = 3) -> tuple[float, float, float]:
    """Return the least flops and bytes of forward and backward of a view, and the bytes kept between them."""
    flops = numbers = kept = 0.0
    for layer in range(layers):
        w = hidden if layer else features
        first, second = 2 * nodes * w * hidden, 2 * nodes * hidden * hidden
        flops += (3 if layer else 2) * first + 3 * second + (2 if layer else 1) * edges * w
        numbers += edges * w + 2 * nodes * w + 2 * nodes * hidden + edges
        numbers += nodes * hidden + 3 * nodes * hidden + nodes * w
        if layer:
            numbers += edges * w + 3 * nodes * w + edges
        kept += nodes * w + 2 * nodes * hidden
    return flops, 4 * numbers, 4 * kept


def step_floor(views: list[tuple[float, float]], features: int, known: Rates) -> Floor:
    """Return the floor of a step on views with these nodes and edges."""
    flops, moved, kept = map(sum, zip(*(work(*view, features) for view in views), strict=True))
    bandwidth = known.cache_copy if kept / len(views) < CACHE_BYTES else known.memory_copy
    best = max(known.square, known.shape)
    fastest = max(known.cache_copy, known.memory_copy)
    return Floor(flops, moved, max(flops / best, moved / fastest), flops / known.shape + moved / bandwidth)


def step_bounds(count: Mapping[str, Any], gpu: str) -> tuple[float, float]:
    """Return the least and the most milliseconds of a step by its counts: a model, not a measurement."""
    bandwidth, peak = GPUS[gpu]
    least = max(count["least_bytes"] / bandwidth, count["flops"] / peak, count["launches"] * LAUNCH_S)
    most = count["operations"] * DISPATCH_S + 2 * count["bytes"] / bandwidth
    return 1e3 * least, 1e3 * most


def as_row(known: Rates) -> dict[str, float]:
    """Return the rates in GB and Gflop per second, as text."""
    return {name: value / 1e9 for name, value in asdict(known).items()}
