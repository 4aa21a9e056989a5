"""Vectorised primitives over segments: consecutive runs of elements, one run per graph.

Segments are given by `ptr [B + 1]`: segment g holds the elements ptr[g] .. ptr[g + 1] - 1, as in PyG's `Batch.ptr`.
Nothing here loops over segments, and every random draw takes a `torch.Generator`.

On the CPU the same thing can be had at very different speeds, so what every step does often has a name here. With
40,000 to 160,000 elements and one thread, `positions` is 7 times as fast as `nonzero`, `pick` 3 times as fast as
indexing, `stable_sort` 3 times as fast as `sort`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphcl.graphs import native


def pointers(counts: Tensor) -> Tensor:
    """Segment boundaries `[B + 1]` from segment sizes `[B]`: 0, c0, c0 + c1, ..."""
    ptr = counts.new_zeros(counts.numel() + 1)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def positions(mask: Tensor) -> Tensor:
    """Where `mask [N]` is true, ascending."""
    if mask.is_cuda:
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def pick(values: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """`values.index_select(dim, index)`."""
    if values.dim() != 2 or dim % 2 == 0 or values.is_cuda or values.requires_grad:
        return values.index_select(dim, index)
    out = values.new_empty(values.size(0), index.numel())  # row by row, along consecutive numbers
    for row, wanted in zip(values, out, strict=True):
        torch.index_select(row, 0, index, out=wanted)
    return out


def stable_sort(ids: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """`ids [E]`, each in 0 .. bound - 1, sorted, and the order that does it; equal ones stay in theirs."""
    bits = _bits(ids.numel())
    if ids.is_cuda or bits + _bits(bound) > 63:
        return ids.sort(stable=True)
    packed = _sorted_with_position(ids << bits)
    return packed >> bits, packed.bitwise_and_((1 << bits) - 1)


def _bits(bound: int) -> int:
    """How many bits the numbers below `bound` take."""
    return max(bound - 1, 0).bit_length()


def _sorted_with_position(key: Tensor) -> Tensor:
    """`key [E]` on the CPU, its lowest bits free, with each number's position in them, sorted; `key` is overwritten.

    Sorting plain numbers, for which NumPy has vector instructions, spares sorting numbers together with positions.
    """
    packed = key.numpy()
    packed |= np.arange(packed.size)
    packed.sort()
    return key


def connected_pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The number of the pair of nodes that each edge connects `[E]`: both directions and parallel edges have one."""
    low, high = torch.minimum(*edge_index), torch.maximum(*edge_index)
    name, order = stable_sort(low * num_nodes + high, num_nodes**2)
    new = torch.zeros_like(name)
    new[1:] = name[1:] != name[:-1]
    return torch.empty_like(order).index_copy_(0, order, new.cumsum(0))


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


def shuffled(segment: Tensor, bound: int, generator: torch.Generator | None = None) -> Tensor:
    """An order of elements `[N]`, segment by segment, random within each.

    Args:
        segment: segment of each element `[N]`, in 0 .. bound - 1, in any order.
        bound: number of segments.
        generator: source of randomness, on the device of `segment`.
    """
    bits, free = _bits(segment.numel()), 62 - _bits(bound)
    packs = not segment.is_cuda and free - bits >= 31  # with fewer, equal draws would be no rarity
    draw = torch.randint(2 ** (free - bits if packs else 31), segment.shape, generator=generator, device=segment.device)
    if packs:
        packed = _sorted_with_position((segment << free).add_(draw << bits))
        return packed.bitwise_and_((1 << bits) - 1)
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
    if native.takes(ptr, k):
        return native.random_subset(ptr, k, generator)
    chosen = torch.zeros(int(ptr[-1]), dtype=torch.bool, device=ptr.device)
    # Only segments with something to choose are ranked.
    busy = positions(k > 0)
    counts, start = ptr.diff()[busy], ptr[busy]
    ends = counts.cumsum(0)
    segment = torch.arange(busy.numel(), device=ptr.device).repeat_interleave(counts)
    order = shuffled(segment, busy.numel(), generator)
    # Each segment's first k places in that order.
    first = pick(order, ranges(ends - counts, k[busy]))
    return chosen.index_fill_(0, first + pick(start - (ends - counts), pick(segment, first)), True)


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
    dense = positions(4 * k >= sizes)
    ptr = pointers(sizes[dense])
    position = positions(random_subset(ptr, k[dense], generator))
    place = torch.searchsorted(ptr, position, right=True) - 1
    dense_number, dense_segment = position - ptr[place], dense[place]

    segment = torch.arange(k.numel(), device=k.device).repeat_interleave(k.index_fill(0, dense, 0))
    number = torch.zeros_like(segment)
    pending = torch.arange(segment.numel(), device=k.device)
    base = pointers(sizes)
    bound = int(base[-1]) if not k.is_cuda else 0
    while pending.numel() > 0:
        draw = torch.rand(pending.numel(), generator=generator, device=k.device, dtype=torch.float64)
        number[pending] = (draw * pick(sizes, pick(segment, pending))).long()
        value, order = stable_sort(number + pick(base, segment), bound)
        repeated = torch.zeros_like(value, dtype=torch.bool)
        repeated[1:] = value[1:] == value[:-1]
        pending = pick(order, positions(repeated))
    return torch.cat([dense_number, number]), torch.cat([dense_segment, segment])
