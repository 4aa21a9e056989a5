"""Who is compared with whom: the one place that decides positives and negatives.

Two views of N graphs give unit projections a_i and b_i. Graph i's views are each other's positive. Its negatives:

| `negatives` | anchors a_i                            | M      | known as                   |
|-------------|----------------------------------------|--------|----------------------------|
| `cross`     | b_j, j != i                            | N - 1  | CPC, CLIP, GraphCL         |
| `all`       | b_j and a_j, j != i                    | 2N - 2 | NT-Xent (SimCLR)           |
| `queue`     | none of the batch                      | 0      | MoCo, memory bank          |

Rows of a `queue` are negatives of every anchor besides; with ids, those of the anchor's own graph are not. (Without a
queue, or while it is empty, `queue` means `cross`.)

Across ranks (`graphcl.distributed.ranks`), j goes over the graphs of all ranks, and i over this rank's own.

`symmetric=True` lets the b_i be anchors too (then 2N anchors, the b_i after the a_i); `False` keeps the a_i only.
A loss is the mean over its anchors. (SimCLR differs here: its code sums the two directions' means.)
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError
from graphcl.losses.engine.checks import (
    check_choice,
    check_finite,
    check_ids,
    check_queue,
    check_rows,
    check_size,
    check_views,
)
from graphcl.losses.engine.comparison import Comparison, LeftOut, Pairs, Similarity
from graphcl.losses.engine.dense import DensePairs, ExplicitPairs
from graphcl.losses.engine.ring import RingPairs, rows_of_others
from graphcl.losses.engine.tiled import TiledPairs, tiles

Negatives = Literal["cross", "all", "queue"]
Engine = Literal["auto", "dense", "tiled"]

DENSE_LIMIT = 2**19
"""Similarities up to which `auto` holds them all: 2 MB in float32, about two views of 512 graphs."""
GATHER_LIMIT = 2**26
"""Numbers of all ranks' keys up to which `auto` gathers them: 256 MB in float32, two views of 262,144 graphs of 128."""


def compare(
    z1: Tensor,
    z2: Tensor,
    negatives: Negatives = "cross",
    symmetric: bool = True,
    *,
    queue: Tensor | None = None,
    ids: Tensor | None = None,
    queue_ids: Tensor | None = None,
    similarity: Similarity = "cosine",
    normalized: bool | None = None,
    engine: Engine = "auto",
) -> Pairs:
    """Anchors, positives and negatives of two views of the same N graphs.

    Half-precision input is compared in float32, inside autocast too; float64 stays float64. (Call `backward` outside of
    autocast, as PyTorch advises.)

    Args:
        z1: projections of the first view, `[N, D]`, N >= 2, floating point.
        z2: projections of the second view, `[N, D]`, row i the same graph as row i of `z1`.
        negatives: `cross`, `all` or `queue`, see the head of this file.
        symmetric: whether the second view's projections are anchors too.
        queue: further negatives of all anchors, `[Q, D]`.
        ids: which graph each row is, integers `[N]`.
        queue_ids: which graph each row of the queue is, `[Q]`; those of the anchor's own graph are left out.
        similarity: `cosine`, `dot` product or `squared_distance`.
        normalized: whether rows are brought to length 1 first; by default for the cosine only.
        engine: `dense` holds the similarities `[A, M]`, `tiled` needs memory O(N D) only; `auto` decides by their
            number. Across ranks that is their number on each; `dense` gathers the keys, `tiled` lets them travel round
            (`graphcl.losses.engine.ring`), and `auto` does that only where they are too many to be held.

    Raises:
        InputError: shapes differ, fewer than two graphs, a number that is not finite (looked for on the CPU only, where
            that does not stall the device), a queue of another width, ids that do not fit.
        InputTypeError: not floating-point tensors of one dtype.
    """
    check_views(z1, z2, finite=False)
    check_choice("negatives", negatives, get_args(Negatives))
    check_choice("engine", engine, get_args(Engine))
    check_choice("similarity", similarity, get_args(Similarity))
    sets = {"z1": z1, "z2": z2}
    if queue is not None:
        check_queue(queue, z1.size(1))
        if queue.size(0):
            sets["queue"] = queue
    check_ids(ids, queue_ids, z1.size(0), queue)
    by_id = (ids, queue_ids) if len(sets) == 3 and ids is not None and queue_ids is not None else None

    against: list[tuple[tuple[int, LeftOut | None], ...]] = []
    for view in (0, 1) if symmetric else (0,):
        keys: list[tuple[int, LeftOut | None]] = []
        if negatives != "queue" or len(sets) == 2:
            keys.append((1 - view, "diagonal"))
        if negatives == "all":
            keys.append((view, "diagonal"))
        if len(sets) == 3:
            keys.append((2, "ids" if by_id else None))
        against.append(tuple(keys))

    unit = _unit(similarity, normalized)
    with torch.autocast(z1.device.type, enabled=False):
        rows = tuple(_prepared(each, unit) for each in sets.values())
        comparison = Comparison(tuple(each.to(rows[0].dtype) for each in rows), tuple(against), similarity, by_id)
        dense = engine == "dense" or (engine == "auto" and _similarities(comparison) <= DENSE_LIMIT)
        shared = ranks.size() > 1 and bool(comparison.of_batch)
        numbers = ranks.size() * len(comparison.of_batch) * z1.numel()
        if shared and (engine == "tiled" or (not dense and numbers > GATHER_LIMIT)):
            return RingPairs(comparison, tiles(rows[0]))
        others = rows_of_others(comparison) if shared else {}
        # After they were sent: what one rank cannot use, all of them refuse. What the others have not seen goes on (it
        # shows in the loss), as a rank that refused alone would leave them waiting.
        seen = range(len(sets)) if ranks.size() == 1 else [*comparison.of_batch, *range(2, len(sets))]
        for number, name in enumerate(sets):
            if number in seen:
                _check(name, comparison.sets[number], unit)
        for number, each in others.items():
            _check(f"z{number + 1}", each, unit, " of the other ranks")
        if others:
            comparison = comparison.joined(others)
        return DensePairs(comparison) if dense else TiledPairs(comparison, tiles(rows[0]))


def _similarities(comparison: Comparison) -> int:
    """How many there are of a rank's anchors with all keys."""
    sizes = [each.size(0) for each in comparison.sets]
    return sum(
        sizes[anchors] * sizes[keys] * (ranks.size() if left_out == "diagonal" else 1)
        for anchors, against in enumerate(comparison.against)
        for keys, left_out in against
    )


def explicit(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    similarity: Similarity = "cosine",
    normalized: bool | None = None,
) -> Pairs:
    """Anchors, positives and negatives that the caller has chosen: for the `terms` of a loss.

    Args:
        anchors: `[A, D]`, floating point.
        positives: `[A, D]`, one of each anchor.
        negatives: `[M, D]` for all anchors, or `[A, M, D]` for each.
        similarity: as in `compare`.
        normalized: as in `compare`.

    Raises:
        InputError: shapes that do not fit.
        InputTypeError: not floating-point tensors.

    Example:
        >>> from graphcl.losses import infonce
        >>> anchors, positives, negatives = torch.eye(3)[:2], torch.eye(3)[:2], torch.eye(3)[2:]
        >>> infonce.terms(explicit(anchors, positives, negatives), temperature=1.0).shape
        torch.Size([2])
    """
    check_rows("anchors", anchors)
    check_rows("positives", positives)
    check_rows("negatives", negatives)
    shapes = [list(each.shape) for each in (anchors, positives, negatives)]
    fits = negatives.dim() == 2 or (negatives.dim() == 3 and negatives.size(0) == anchors.size(0))
    if anchors.dim() != 2 or anchors.shape != positives.shape or not fits or negatives.size(-1) != anchors.size(1):
        raise InputError(
            f"`anchors` and `positives` must be [A, D], `negatives` [M, D] or [A, M, D], got {shapes[0]}, {shapes[1]}, "
            f"{shapes[2]}."
        )
    if negatives.size(-2) < 1 or anchors.size(1) < 1:
        raise InputError(f"`negatives` must hold one or more rows of one or more columns, got {shapes[2]}.")
    if not anchors.dtype == positives.dtype == negatives.dtype:
        kinds = f"{anchors.dtype}, {positives.dtype}, {negatives.dtype}"
        raise InputTypeError(f"`anchors`, `positives` and `negatives` must have one dtype, got {kinds}.")
    check_choice("similarity", similarity, get_args(Similarity))
    given = {"anchors": anchors, "positives": positives, "negatives": negatives}
    with torch.autocast(anchors.device.type, enabled=False):
        unit = _unit(similarity, normalized)
        rows = [_prepared(each, unit) for each in given.values()]
        for name, each in zip(given, rows, strict=True):
            _check(name, each, unit)
        a, p, n = rows
        return ExplicitPairs(a, p, n, similarity)


def normalize(z: Tensor) -> Tensor:
    """Rows scaled to Euclidean norm 1, at least in float32; a zero row stays zero and passes its gradient on."""
    z = at_least_float32(z)
    # A cosine does not depend on the scale, so rows are brought near 1 first: no square over- or underflows.
    largest = z.detach().abs().amax(dim=-1, keepdim=True)
    z = z / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(norm > 0, norm, 1.0)


def _unit(similarity: Similarity, normalized: bool | None) -> bool:
    """Whether rows are brought to length 1."""
    return normalized or (normalized is None and similarity == "cosine")


def _prepared(z: Tensor, unit: bool) -> Tensor:
    """Rows as they are compared."""
    return normalize(z) if unit else at_least_float32(z)


def _check(name: str, rows: Tensor, unit: bool, whose: str = "") -> None:
    """Refuse prepared rows that cannot be compared."""
    check_finite(name, rows, whose)
    if not unit:
        check_size(name, rows, whose)


def at_least_float32(z: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return z if z.dtype == torch.float64 else z.float()
