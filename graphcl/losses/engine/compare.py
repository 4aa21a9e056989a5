"""The functions `compare` and `explicit`, which choose the positives and negatives of each anchor.

Two views of N graphs give projections a_i and b_i. The two views of a graph are a positive pair. The negatives of
an anchor a_i are:

| `negatives` | negatives of a_i    | M      | known as           |
|-------------|---------------------|--------|--------------------|
| `cross`     | b_j, j != i         | N - 1  | CPC, CLIP, GraphCL |
| `all`       | b_j and a_j, j != i | 2N - 2 | NT-Xent (SimCLR)   |
| `queue`     | only the queue      | Q      | MoCo, memory bank  |

While the queue is empty, as in the first step of MoCo, `negatives="queue"` means `cross`.

Across ranks (`graphcl.distributed.ranks`), i runs over the graphs of this rank and j over the graphs of all ranks.

With `symmetric=True` the anchors are the a_i followed by the b_i, 2N in total; otherwise only the a_i. A loss is the
mean over its anchors. (SimCLR's code instead adds the means of the two directions.)
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from graphcl.arguments import checked
from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError
from graphcl.losses.engine.base import Comparison, Mask, Pairs, Row, Similarity, similarities
from graphcl.losses.engine.checks import check_finite, check_ids, check_queue, check_rows, check_views
from graphcl.losses.engine.dense import DensePairs
from graphcl.losses.engine.tiled import TiledPairs, tiles
from graphcl.losses.engine.unit import at_least_float32, normalize, normalize_all

Negatives = Literal["cross", "all", "queue"]
Engine = Literal["auto", "dense", "tiled"]

DENSE_LIMIT = 2**19
"""Largest number of similarities for which `auto` selects `dense`: 2 MB in float32, two views of 512 graphs."""


@checked
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
    """Return the `Pairs` of two views of the same N graphs: anchors, positives and negatives.

    Half-precision input is compared in float32, also inside autocast; float64 stays float64. Call `backward` outside
    autocast, as PyTorch recommends. The engine `auto` decides by the number of similarities per rank. Across ranks,
    the keys of all ranks are gathered.

    Args:
        z1: projections of the first view, `[N, D]`.
        z2: projections of the second view, `[N, D]`; row i is the same graph as row i of `z1`.
        negatives: `cross` (the other view's N - 1 rows), `all` (both views' 2N - 2) or `queue` (only the queue's rows).
        symmetric: whether the projections of both views are anchors.
        queue: further negatives of every anchor, `[Q, D]`: a queue or a memory bank; required with `negatives="queue"`.
        ids: id of each row's graph, `[N]`; requires `queue_ids`. An anchor without negatives contributes 0.
        queue_ids: id of each queue row's graph, `[Q]`; rows with an anchor's id are not its negatives.
        similarity: `cosine`, `dot` product or `squared_distance`.
        normalized: whether to scale rows to norm 1; by default for the cosine only.
        engine: `dense` holds all similarities; `tiled` needs memory O(N D), without second derivative; `auto` decides.

    Returns:
        Pairs to pass to `terms`, the per-anchor formula of a loss.

    Raises:
        InputError: shapes that do not match, fewer than two graphs, NaN or infinity (checked on the CPU only), a queue
            with another number of columns, ids of another length than the rows.
        InputTypeError: tensors that are not floating-point, or of different dtypes.
    """
    check_views(z1, z2, finite=False)
    sets = {"z1": z1, "z2": z2}
    if queue is not None:
        check_queue(queue, z1)
        if queue.size(0):
            sets["queue"] = queue
    check_ids(ids, queue_ids, z1, queue)
    if negatives == "queue" and queue is None:
        raise InputError("`negatives` is 'queue', but `queue` is missing: pass `queue`, or `negatives='cross'`.")
    by_id = (ids, queue_ids) if len(sets) == 3 and ids is not None and queue_ids is not None else None
    queued: list[tuple[int, Mask | None]] = [(2, "ids" if by_id else None)] if len(sets) == 3 else []
    key_sets = [_keys_of(view, negatives, queued) for view in ((0, 1) if symmetric else (0,))]
    with torch.autocast(z1.device.type, enabled=False):
        rows = _prepared(list(sets.values()), similarity, normalized)
        comparison = Comparison(tuple(each.to(rows[0].dtype) for each in rows), tuple(key_sets), similarity, by_id)
        entries = sum(
            rows[anchors].size(0) * rows[keys].size(0) * (ranks.size() if mask == "diagonal" else 1)
            for anchors, of in enumerate(key_sets)
            for keys, mask in of
        )
        dense = engine == "dense" or (engine == "auto" and entries <= DENSE_LIMIT)
        others = _rows_of_others(comparison) if ranks.size() > 1 and comparison.batch_sets else {}
        # Across ranks, check only gathered rows, which are equal on all ranks: if one rank raised alone, others would
        # hang. Other non-finite rows make the loss non-finite.
        seen = range(len(sets)) if ranks.size() == 1 else [*comparison.batch_sets, *range(2, len(sets))]
        for number, name in enumerate(sets):
            if number in seen:
                check_finite(name, comparison.sets[number], most=comparison.bound)
        for number, each in others.items():
            check_finite(f"z{number + 1}", each, " of the other ranks", comparison.bound)
        if others:
            comparison = comparison.with_keys(others)
        if dense:
            return DensePairs(comparison)
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, comparison.sets)):
            raise InputError("the tiled engine does not support torch.func; pass `engine='dense'` to the loss.")
        return TiledPairs(comparison, tiles(rows[0]))


@checked
def explicit(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    similarity: Similarity = "cosine",
    normalized: bool | None = None,
) -> Pairs:
    """Return the `Pairs` of anchors, positives and negatives chosen by the caller, for `terms` of a loss.

    Args:
        anchors: rows of the anchors, `[A, D]`, floating point.
        positives: rows of the positives, `[A, D]`, one for each anchor.
        negatives: rows of the negatives, `[M, D]` for all anchors, or `[A, M, D]` for each anchor.
        similarity: as in `compare`.
        normalized: as in `compare`.

    Raises:
        InputError: shapes that do not match.
        InputTypeError: tensors that are not floating-point, or of different dtypes.

    Example:
        >>> from graphcl.losses import infonce
        >>> anchors, positives, negatives = torch.eye(3)[:2], torch.eye(3)[:2], torch.eye(3)[2:]
        >>> infonce.terms(explicit(anchors, positives, negatives), temperature=1.0).shape
        torch.Size([2])
    """
    for name, each in (("anchors", anchors), ("positives", positives), ("negatives", negatives)):
        check_rows(name, each)
    shapes = [list(each.shape) for each in (anchors, positives, negatives)]
    fits = negatives.dim() == 2 or (negatives.dim() == 3 and negatives.size(0) == anchors.size(0))
    if anchors.dim() != 2 or anchors.shape != positives.shape or not fits or negatives.size(-1) != anchors.size(1):
        raise InputError(
            f"`anchors` and `positives` must be [A, D], `negatives` [M, D] or [A, M, D], got {shapes[0]}, {shapes[1]}, "
            f"{shapes[2]}."
        )
    if negatives.size(-2) < 1 or anchors.size(1) < 1:
        raise InputError(f"`negatives` must have at least one row and one column, got {shapes[2]}.")
    for kind in ("dtype", "device"):
        first, *others = (getattr(each, kind) for each in (anchors, positives, negatives))
        if others != [first, first]:
            kinds = ", ".join(map(str, (first, *others)))
            raise InputTypeError(f"`anchors`, `positives` and `negatives` must have one {kind}, got {kinds}.")
    with torch.autocast(anchors.device.type, enabled=False):
        a, p, n = _prepared((anchors, positives, negatives), similarity, normalized)
        comparison = Comparison((a, p), ((),), similarity)
        for name, each in (("anchors", a), ("positives", p), ("negatives", n)):
            check_finite(name, each, most=comparison.bound)
        if n.dim() == 2:
            value = similarities(a, n, similarity)
        elif similarity == "squared_distance":
            value = (a[:, None].double() - n).square().sum(dim=2)
        else:
            value = torch.einsum("ad,amd->am", a, n)
        return DensePairs(comparison, Row(value))


def _keys_of(
    view: int, negatives: Negatives, queued: Sequence[tuple[int, Mask | None]]
) -> tuple[tuple[int, Mask | None], ...]:
    """Return the sets of keys of the anchors in set `view`, and their masks; for an empty queue, as for `cross`."""
    of_batch = {"cross": [1 - view], "all": [1 - view, view], "queue": [] if queued else [1 - view]}
    return *((keys, "diagonal") for keys in of_batch[negatives]), *queued


def _rows_of_others(comparison: Comparison) -> dict[int, Tensor]:
    """Return, for each set in `batch_sets`, index -> rows of the other ranks, `[(R - 1) n, D]`, with gradients."""
    numbers = comparison.batch_sets
    rows = ranks.others(torch.stack([comparison.sets[number] for number in numbers], dim=1))
    return dict(zip(numbers, rows.unbind(dim=1), strict=True))


def _prepared(sets: Sequence[Tensor], similarity: Similarity, normalized: bool | None) -> tuple[Tensor, ...]:
    """Return `sets` in float32 or float64, with rows of norm 1 if `normalized`; by default for the cosine only."""
    if not (similarity == "cosine" if normalized is None else normalized):
        return tuple(map(at_least_float32, sets))
    return *normalize_all(*sets[:2]), *map(normalize, sets[2:])
