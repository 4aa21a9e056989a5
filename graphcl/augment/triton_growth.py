# mypy: allow-untyped-defs
"""Let signals spread over all graphs of a batch on CUDA, in one Triton kernel with a program for each graph."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcl.system.kernels import jit, tl, triton

MOST_EDGES = 2**15
"""Most edges of a graph, as one program relaxes them block by block."""
BLOCK = 1024
"""Most edges of a block."""


def takes(time: Tensor, counts: Tensor) -> bool:
    """Return whether the kernel supports `time` and graphs with counts[g] edges; `counts [B]` are on the CPU."""
    fits = time.is_cuda and counts.numel() > 0 and int(counts.max()) <= MOST_EDGES
    return fits and triton is not None and torch.cuda.get_device_capability(time.device) >= (7, 0)


def first_passage(start: Tensor, ends: Tensor, travel: Tensor, places: Tensor, most: int) -> Tensor:
    """Return the earliest time `[N]` at which a signal arrives at each node, if every node u sends one at start[u].

    Signals cross the edges, with `ends [2, E]` and `travel` time `[E]`, in both directions. `places [2, B]` holds the
    first edge of each graph and their number, at most `most`. Times are not negative, in float64.
    """
    time = start.clone()
    block = min(max(triton.next_power_of_2(most), 32), BLOCK)
    # Non-negative floats sort like the integers with the same bits, of which the hardware has an atomic minimum.
    bits = time.view(torch.long)
    sizes = {"EDGES": block, "num_warps": max(block // 128, 1)}
    with torch.cuda.device_of(time):  # Triton launches on the current device
        _relax[(places.size(1),)](bits, ends, travel, places, travel.numel(), **sizes)
    return time


@jit("edges")
def _relax(time, ends, travel, places, edges, EDGES: tl.constexpr):
    """Relax the edges of a graph until no time improves: the Bellman-Ford algorithm.

    The results do not depend on the order in which threads run: each is the least of the same rounded sums.
    """
    graph = tl.program_id(0)
    begin = tl.load(places + graph)
    end = begin + tl.load(places + tl.num_programs(0) + graph)
    improved = tl.full((), 1, tl.int32)
    while improved > 0:
        improved = tl.full((), 0, tl.int32)
        for first in range(begin, end, EDGES):
            edge = first + tl.arange(0, EDGES)
            inside = edge < end
            u = tl.load(ends + edge, inside, 0)
            v = tl.load(ends + edges + edge, inside, 0)
            length = tl.load(travel + edge, inside, 0.0)
            # Volatile, as another thread may have changed a time since it was last read.
            at_u = tl.load(time + u, inside, 0, volatile=True)
            at_v = tl.load(time + v, inside, 0, volatile=True)
            through_u = (at_u.to(tl.float64, bitcast=True) + length).to(tl.int64, bitcast=True)
            through_v = (at_v.to(tl.float64, bitcast=True) + length).to(tl.int64, bitcast=True)
            at_v_improves, at_u_improves = inside & (through_u < at_v), inside & (through_v < at_u)
            tl.atomic_min(time + v, through_u, at_v_improves, sem="relaxed")
            tl.atomic_min(time + u, through_v, at_u_improves, sem="relaxed")
            improved += tl.sum((at_v_improves | at_u_improves).to(tl.int32))
        tl.debug_barrier()  # the next round reads what all threads wrote
