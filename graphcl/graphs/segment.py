"""Vectorised operations on segments, such as the nodes of each graph in a batch.

Segment boundaries are given as `ptr [B + 1]`: segment g consists of elements ptr[g] .. ptr[g + 1] - 1, as in PyG's
`Batch.ptr`. No function loops over segments. Random functions draw from a `torch.Generator`.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from graphcl.graphs import native

_PAGEABLE = 2**16
"""Most bytes that CUDA's driver copies from pageable memory without waiting for the device."""


def pointers(counts: Tensor) -> Tensor:
    """Return the boundaries `[B + 1]` of segments of sizes `counts [B]`: 0, counts[0], counts[0] + counts[1], ...

    Of a mask, they count the true elements before each element.
    """
    ptr = counts.new_zeros(counts.numel() + 1, dtype=torch.long)
    torch.cumsum(counts, 0, out=ptr[1:])
    return ptr


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return `values` on `device`; CUDA's host does not wait, as it does for large copies from pageable memory."""
    if values.is_cpu and device.type == "cpu":
        return values
    staged = device.type == "cuda" and values.device.type == "cpu" and values.nbytes > _PAGEABLE
    return (values.pin_memory() if staged else values).to(device, non_blocking=True)


def nonzero(mask: Tensor, size: int | None = None, before: Tensor | None = None) -> Tensor:
    """Return the ascending indices at which `mask [N]` is true; with their number `size`, without a wait on CUDA.

    `before` is `pointers(mask)`, if it is at hand.
    """
    if mask.is_cuda and size is not None:
        before = pointers(mask) if before is None else before
        return torch.searchsorted(before[1:], torch.arange(1, size + 1, device=mask.device))
    if mask.is_cuda:
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))  # five times as fast as torch's nonzero on the CPU


def pick(values: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """Return `values.index_select(dim, index)`, faster for the columns of a matrix on the CPU."""
    if values.dim() != 2 or dim % 2 == 0 or values.is_cuda or values.requires_grad:
        return values.index_select(dim, index)
    # Select row by row, so that each copy reads one contiguous array: three times as fast.
    out = values.new_empty(values.size(0), index.numel())
    for row, selected in zip(values, out, strict=True):
        torch.index_select(row, 0, index, out=selected)
    return out


def group(ids: Tensor, num_groups: int, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return `values` stably sorted by group, and the boundaries of the groups.

    Args:
        ids: group of each element `[E]`, in 0 .. num_groups - 1.
        num_groups: number of groups G.
        values: values to sort, `[E]`; 0 .. E - 1 by default, which gives the sorting permutation.

    Returns:
        The sorted values `[E]` and the boundaries `[G + 1]` of the groups in them.

    Raises:
        IndexError: an id is out of range (checked on the CPU only).
    """
    if native.takes(ids, values):
        return native.group(ids, num_groups, values)
    if ids.is_cuda:
        ids, order = narrow(ids, num_groups).sort(stable=True)
        bounds = torch.arange(num_groups + 1, dtype=ids.dtype, device=ids.device)
        return order if values is None else pick(values, order), torch.searchsorted(ids, bounds)  # bincount would wait
    if values is None:
        values = torch.arange(ids.numel())
    if ids.numel() == 0:
        return values, ids.new_zeros(num_groups + 1)
    low, high = ids.aminmax()
    if int(low) < 0 or int(high) >= num_groups:
        raise IndexError(f"indices must be in 0 .. {num_groups - 1}, got {int(low)} .. {int(high)}")
    from scipy.sparse import csr_array

    # SciPy converts a one-row matrix to columns by a compiled counting sort, which is five times as fast as sorting.
    row = csr_array((values.numpy(), ids.numpy(), np.array([0, ids.numel()])), shape=(1, num_groups)).tocsc()
    return torch.from_numpy(row.data), torch.from_numpy(row.indptr).long()


def narrow(ids: Tensor, num_groups: int) -> Tensor:
    """Return `ids` in the smallest type for `num_groups`: CUDA's radix sort takes a pass for each byte of its keys."""
    return ids.to(torch.short if num_groups < 2**15 else torch.int if num_groups < 2**31 else torch.long)


def sort_pairs(first: Tensor, second: Tensor, bound: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the stable order of index pairs, sorted by the first index, then by the second.

    Args:
        first: first index of each pair `[E]`, in 0 .. bound - 1.
        second: second index of each pair `[E]`, in 0 .. bound - 1.
        bound: exclusive upper bound of the indices.

    Returns:
        The sorting permutation `[E]`, the sorted pairs as first * bound + second, `[E]`, and a mask `[E]` that is true
        where a sorted pair differs from its predecessor.
    """
    key = first * bound + second
    if key.is_cuda:
        key, order = key.sort(stable=True)
    else:
        order = group(second, bound)[0]
        order = group(pick(first, order), bound, order)[0]
        key = pick(key, order)
    is_new = torch.ones_like(key, dtype=torch.bool)
    torch.ne(key[1:], key[:-1], out=is_new[1:])
    return order, key, is_new


def connected_pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return an id `[E]` for the node pair of each edge; edges between two nodes share an id, in both directions."""
    order, _, is_new = sort_pairs(torch.minimum(*edge_index), torch.maximum(*edge_index), num_nodes)
    return torch.empty_like(order).index_copy_(0, order, is_new.cumsum(0) - 1)


def segment_ids(counts: Tensor, size: int | None = None) -> Tensor:
    """Return the segment of each element, `[N]`: counts[0] zeros, counts[1] ones, ...

    Nothing waits for the device if `size`, the sum of `counts [B]`, is given.
    """
    return torch.repeat_interleave(counts, output_size=size)


def repeat(values: Tensor, counts: Tensor, device: torch.device | None = None, size: int | None = None) -> Tensor:
    """Return values[g] repeated counts[g] times for all g, concatenated, on `device` (default: that of `values`).

    Nothing waits for the device if `counts` are on the CPU, or if `size`, their sum, is given.
    """
    size = int(counts.sum()) if size is None else size
    values, counts = (to_device(tensor, device or values.device) for tensor in (values, counts))
    return values.repeat_interleave(counts, output_size=size)


def ranges(starts: Tensor, counts: Tensor, device: torch.device | None = None, size: int | None = None) -> Tensor:
    """Return the integers starts[g] .. starts[g] + counts[g] - 1 for all g, concatenated; see `repeat`."""
    shift = repeat(starts - pointers(counts)[:-1], counts, device, size)
    return torch.arange(shift.numel(), device=shift.device) + shift


def ratio_count(ratio: float, counts: Tensor) -> Tensor:
    """Return floor(ratio * n), at most n - 1, for each n in `counts`.

    A tiny offset makes 0.29 * 100 give 29 despite binary rounding.
    """
    if native.takes(counts):
        return native.ratio_count(ratio, counts)
    return torch.minimum((counts.double() * ratio + 1e-9).floor().long(), (counts - 1).clamp(min=0))


def shuffled(segment: Tensor, num_segments: int, generator: torch.Generator | None = None) -> Tensor:
    """Return the indices `[N]` of all elements, sorted by segment and in uniformly random order within each segment.

    Args:
        segment: segment of each element `[N]`, in 0 .. num_segments - 1, in any order.
        num_segments: number of segments.
        generator: source of randomness, on the device of `segment`.
    """
    order = torch.randperm(segment.numel(), generator=generator, device=segment.device)
    if order.is_cuda:
        return pick(order, pick(narrow(segment, num_segments), order).sort(stable=True).indices)
    return group(pick(segment, order), num_segments, order)[0]


def cumulative(x: Tensor) -> Tensor:
    """Return the cumulative sums of a short vector; `cumsum` has no deterministic form on CUDA for floating point."""
    return torch.stack(list(itertools.accumulate(x.unbind())))


def random_sample(
    ptr: Tensor, k: Tensor, generator: torch.Generator | None = None, device: torch.device | None = None
) -> Tensor:
    """Return the indices of k[g] elements drawn uniformly without replacement from each segment g.

    Args:
        ptr: segment boundaries `[B + 1]`, best on the CPU, as their values are read.
        k: sample sizes `[B]`, 0 <= k[g] <= size of segment g, on the device of `ptr`.
        generator: source of randomness, on `device`.
        device: device of the indices; default: that of `ptr`.

    Returns:
        Indices of the drawn elements `[sum(k)]`, sorted by segment and in random order within each segment.
    """
    device = device or ptr.device
    ptr, k = ptr.cpu(), k.cpu()
    if native.takes(ptr, k) and device.type == "cpu":
        size, elements, _ = native.sample_sizes(k, ptr, ptr)
        return native.sample(ptr, k, torch.randperm(elements, generator=generator), size)
    drawn = nonzero(k > 0)  # skip segments with k = 0, which need no permutation
    sizes, k, start = ptr.diff()[drawn], k[drawn], ptr[drawn]
    before = pointers(sizes)[:-1]  # the elements of these segments only
    table = to_device(torch.stack([sizes, k, before - pointers(k)[:-1], start - before]), device)
    order = shuffled(segment_ids(table[0], int(sizes.sum())), drawn.numel(), generator)
    segment = segment_ids(table[1], int(k.sum()))
    to_order, to_element = (pick(shift, segment) for shift in table[2:])
    return pick(order, torch.arange(segment.numel(), device=device) + to_order) + to_element


def random_subset(
    ptr: Tensor, k: Tensor, generator: torch.Generator | None = None, segment: Tensor | None = None
) -> Tensor:
    """Return a mask `[N]` of k[g] elements drawn uniformly from each segment g; see `random_sample`.

    With `segment [N]`, the segment of each element in ascending order, nothing waits for the device.
    """
    if segment is not None and segment.is_cuda:
        first = torch.arange(segment.numel(), device=segment.device) < pick(ptr[:-1] + k, segment)
        chosen = torch.empty_like(segment, dtype=torch.bool)
        return chosen.index_copy_(0, shuffled(segment, k.numel(), generator), first)
    size = int(ptr[-1]) if segment is None else segment.numel()
    chosen = torch.zeros(size, dtype=torch.bool, device=ptr.device)
    return chosen.index_fill_(0, random_sample(ptr, k, generator), True)
