"""Vectorised primitives over segments: consecutive runs of elements, one run per graph.

Segments are given by `ptr [B + 1]`: segment g holds the elements ptr[g] .. ptr[g + 1] - 1, as in PyG's `Batch.ptr`.
Nothing here loops over segments, and every random draw takes a `torch.Generator`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pointers(counts: Tensor) -> Tensor:
    """Segment boundaries `[B + 1]` from segment sizes `[B]`: 0, c0, c0 + c1, ..."""
    ptr = counts.new_zeros(counts.numel() + 1)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def segment_ids(ptr: Tensor, size: int | None = None) -> Tensor:
    """The segment of each element, `[ptr[-1]]`. Pass `size = ptr[-1]` where it is known, to spare a device sync."""
    ids = torch.arange(ptr.numel() - 1, device=ptr.device)
    return ids.repeat_interleave(ptr.diff(), output_size=size)


def ranges(starts: Tensor, counts: Tensor, size: int | None = None) -> Tensor:
    """The ranges starts[g] .. starts[g] + counts[g] - 1, one after the other."""
    ptr = pointers(counts)
    shift = (starts - ptr[:-1]).repeat_interleave(counts, output_size=size)
    return torch.arange(shift.numel(), device=shift.device) + shift


def count(mask: Tensor, ptr: Tensor) -> Tensor:
    """How many elements of `mask [N]` are true in each segment, `[B]`."""
    return pointers(mask)[ptr].diff() if mask.dtype != torch.bool else pointers(mask.long())[ptr].diff()


def share(ratio: float, counts: Tensor) -> Tensor:
    """floor(ratio * n) for each n in `counts`, as the decimal `ratio` < 1 means it: 0.29 of 100 is 29; never all."""
    return torch.minimum((counts.double() * ratio + 1e-9).floor().long(), (counts - 1).clamp(min=0))


def shuffled(segment: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """An order of elements `[N]`, segment by segment, random within each; `segment [N]` need not be sorted."""
    draw = torch.randint(2**31, segment.shape, generator=generator, device=segment.device)
    return (segment * 2**31 + draw).argsort()


def random_subset(ptr: Tensor, k: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A uniformly random subset of exactly k[g] elements in each segment g.

    Args:
        ptr: segment boundaries `[B + 1]`.
        k: subset sizes `[B]`, 0 <= k[g] <= size of segment g.
        generator: source of randomness, on the device of `ptr`.

    Returns:
        Mask `[N]` of the chosen elements.
    """
    chosen = torch.zeros(int(ptr[-1]), dtype=torch.bool, device=ptr.device)
    # Only segments with something to choose are ranked.
    busy = (k > 0).nonzero().flatten()
    counts = ptr.diff()[busy]
    start = pointers(counts)[:-1]
    segment = torch.arange(busy.numel(), device=ptr.device).repeat_interleave(counts)
    order = shuffled(segment, generator)
    rank = torch.arange(order.numel(), device=ptr.device)
    first = rank < (start + k[busy])[segment]
    chosen[(order + (ptr[busy] - start)[segment])[first]] = True
    return chosen


def random_distinct(sizes: Tensor, k: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """k[g] distinct uniformly random numbers out of 0 .. sizes[g] - 1, for each g.

    Where k is at least a quarter of the range, the range is written out and a subset of it drawn. Elsewhere numbers
    are drawn freely and repeated ones drawn again until all differ; the procedure treats all numbers alike, so every
    subset stays equally likely.

    Args:
        sizes: range of each segment `[B]`.
        k: how many numbers, `[B]`, 0 <= k[g] <= sizes[g].
        generator: source of randomness, on the device of `sizes`.

    Returns:
        `(numbers, segment)`, each `[sum(k)]`, in no particular order.
    """
    dense = (4 * k >= sizes).nonzero().flatten()
    ptr = pointers(sizes[dense])
    position = random_subset(ptr, k[dense], generator).nonzero().flatten()
    place = torch.searchsorted(ptr, position, right=True) - 1
    dense_number, dense_segment = position - ptr[place], dense[place]

    segment = torch.arange(k.numel(), device=k.device).repeat_interleave(k.index_fill(0, dense, 0))
    number = torch.zeros_like(segment)
    pending = torch.arange(segment.numel(), device=k.device)
    base = pointers(sizes)[:-1]
    while pending.numel() > 0:
        draw = torch.rand(pending.numel(), generator=generator, device=k.device, dtype=torch.float64)
        number[pending] = (draw * sizes[segment[pending]]).long()
        value, order = (number + base[segment]).sort(stable=True)
        repeated = torch.zeros_like(value, dtype=torch.bool)
        repeated[1:] = value[1:] == value[:-1]
        pending = order[repeated]
    return torch.cat([dense_number, number]), torch.cat([dense_segment, segment])
