"""Check the rows of two views, scale them to norm 1, and choose the positives and negatives of each anchor.

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

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from graphcl.arguments import checked
from graphcl.distributed import ranks
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import native
from graphcl.losses.dense import DensePairs
from graphcl.losses.pairs import Comparison, KeySet, Pairs, Similarity, without_autocast
from graphcl.losses.tiled import TiledPairs

Negatives = Literal["cross", "all", "queue"]
Engine = Literal["auto", "dense", "tiled"]

DENSE_LIMIT = 2**19
"""Largest number of similarities for which `auto` selects `dense`: 2 MB in float32, two views of 512 graphs."""

SHORTEST = 1e-12
"""A row with no larger entry counts as a zero row. Equals the epsilon of `torch.nn.functional.normalize`."""


class NonFiniteInputError(InputError):
    """Error for NaN, infinity or too large entries in an input tensor."""


# -- checks ------------------------------------------------------------------------------------------------------------


def check_rows(name: str, z: Any, integer: bool = False) -> None:
    """Raise InputTypeError unless `z` is a tensor of floating-point numbers, or of integers if `integer`."""
    wrong = not isinstance(z, Tensor) or (z.is_floating_point() == integer) or (integer and z.is_complex())
    if wrong:
        kind = "an integer" if integer else "a floating-point"
        got = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise InputTypeError(f"`{name}` must be {kind} tensor, got {got}.")


def check_tensor(
    name: str, z: Any, z1: Tensor, shape: tuple[int | None, ...], rule: str, integer: bool = False
) -> None:
    """Raise an InputError unless `z` has this `shape` (None stands for any size) and is finite, on the device of `z1`.

    `rule` states the shape in the message. The type is checked as in `check_rows`, the values as in `check_finite`.
    """
    check_rows(name, z, integer)
    if z.dim() != len(shape) or any(size not in (None, length) for size, length in zip(shape, z.shape, strict=True)):
        raise InputError(f"`{name}` must be {rule}, got {list(z.shape)}.")
    if not integer:
        check_finite(name, z)


def check_finite(name: str, z: Tensor) -> None:
    """Raise NonFiniteInputError if `z` has NaN or infinity; only `_readable` tensors are checked."""
    # The sum is a fast filter. It can overflow on finite numbers, so check the entries before raising.
    if not _readable(z) or math.isfinite(float(z.detach().sum())):
        return
    bad = ~z.isfinite()
    if bad.any():
        raise NonFiniteInputError(f"`{name}` is not finite in row {int(bad.nonzero()[0][0]) if z.dim() else 0}.")


def _readable(tensor: Tensor) -> bool:
    """Return whether reading values of `tensor` is cheap: on the CPU, and not under `torch.compile`.

    On other devices it would wait for the device; compiled, it would break the graph.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_views(z1: Any, z2: Any, finite: bool = True) -> None:
    """Raise an InputError unless `z1` and `z2` are floating-point tensors `[N, D]` of one shape, N >= 2, on one device.

    Both are of float64, or neither: a loss computes others in float32, and a method may mix them inside autocast.
    With `finite`, also raise if a value is NaN or infinite (on the CPU). Across ranks this check is left to the caller:
    if one rank raised before a collective operation, the other ranks would hang.
    """
    check_rows("z1", z1)
    check_rows("z2", z2)
    if z1.dim() != 2 or z1.shape != z2.shape:
        raise InputError(f"`z1` and `z2` must both be [N, D], got {list(z1.shape)} and {list(z2.shape)}.")
    if z1.size(1) < 1:
        raise InputError(f"`z1` and `z2` must have at least one column, got {list(z1.shape)}.")
    if z1.dtype != z2.dtype and torch.float64 in (z1.dtype, z2.dtype):
        raise InputTypeError(f"`z1` and `z2` must have one dtype, got {z1.dtype} and {z2.dtype}.")
    if z1.size(0) < 2:
        advice = "a DataLoader leaves out a last batch of one graph with drop_last=True"
        rule = "a contrastive loss needs at least 2 graphs in a batch"
        raise InputError(f"{rule}, got {z1.size(0)} rows in `z1`; {advice}.")
    if finite and ranks.size() == 1:
        check_finite("z1", z1)
        check_finite("z2", z2)


def check_weight(weight: Any, z1: Tensor) -> None:
    """Raise an InputError unless `weight` is `[N]`, >= 0 and not all zero; values only if `_readable`."""
    check_tensor("weight", weight, z1, (z1.size(0),), f"[{z1.size(0)}], one number per graph")
    # Across ranks, the weights of one rank may all be zero, so `reduce` checks that case for all ranks together.
    if _readable(weight) and ((ranks.size() == 1 and float(weight.sum()) == 0) or float(weight.min()) < 0):
        raise InputError(f"`weight` must be >= 0 and not all zero, got a minimum of {float(weight.min())}.")


# -- norm 1 ------------------------------------------------------------------------------------------------------------


def at_least_float32(z: Tensor) -> Tensor:
    """Return `z` in float32 if its precision is lower; else return it unchanged."""
    return z if z.dtype == torch.float64 else z.float()


def normalize(z: Tensor) -> Tensor:
    """Return `z` with rows scaled to norm 1, in float32 or float64.

    A row with no entry above 1e-12 in absolute value counts as a zero row and is not scaled. The gradient of a scaled
    row grows with 1 / norm, and a single huge gradient would stop Adam from learning.
    """
    z = at_least_float32(z)
    if not z.requires_grad:  # a call of the function takes several times as long as its operations
        return _Normalize.forward(z)[0]
    return _Normalize.apply(z)[0]


class _Normalize(torch.autograd.Function):
    """Map z to u = z / |z| and |z|; autograd needs 24 operations for what takes eleven.

    The gradient is (g - (g . u) u) / |z|. The norm is an output so that second derivatives are right.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        # Divide by the largest entry first, so that no square overflows. The norm is then at least 1.
        largest = torch.linalg.vector_norm(z, torch.inf, dim=-1, keepdim=True)
        scale = largest.masked_fill(largest <= SHORTEST, 1.0)
        unit = z / scale
        norm = torch.linalg.vector_norm(unit, dim=-1, keepdim=True).clamp(min=1)
        return unit / norm, scale * norm

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None) -> Tensor | None:
        return _slope(grad, grad_norm, *ctx.saved_tensors)


def _slope(grad: Tensor | None, grad_norm: Tensor | None, unit: Tensor, norm: Tensor) -> Tensor | None:
    """Return the gradient by z of the gradients by the unit rows and by the norms."""
    along = None
    if grad is not None:  # in place, as the largest batches are as large as memory
        along = torch.addcmul(grad, (grad * unit).sum(dim=-1, keepdim=True), unit, value=-1).div_(norm)
    if grad_norm is None:
        return along
    return grad_norm * unit if along is None else along + grad_norm * unit


class _UnitViews(torch.autograd.Function):
    """Map two views to the results of `native.unit`, whose norms are an output as in `_Normalize`."""

    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor, copies: int) -> tuple[Tensor, Tensor, Tensor, Tensor, bool]:
        unit1, unit2, norm, positive, finite = native.unit(z1, z2, copies)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(unit1, unit2, norm)
        return unit1, unit2, norm, positive, finite

    @staticmethod
    def backward(
        ctx: Any,
        grad1: Tensor | None,
        grad2: Tensor | None,
        grad_norm: Tensor | None,
        grad_positive: Tensor | None,
        _: Any,
    ) -> tuple[Tensor | None, ...]:
        *units, norm = ctx.saved_tensors
        upstream = [grad for grad in (grad1, grad2, grad_positive) if grad is not None]
        if grad_norm is None and not torch.is_grad_enabled() and not any(map(native.is_batched, upstream)):
            return *native.unit_slopes(units, norm, (grad1, grad2), grad_positive, ctx.needs_input_grad), None
        slopes: list[Tensor | None] = [grad1, grad2]
        if grad_positive is not None:
            up = grad_positive.view(-1, len(units[0])).sum(dim=0)[:, None]
            slopes = [
                up * units[1 - k] if slope is None else slope + up * units[1 - k] for k, slope in enumerate(slopes)
            ]
        norms = (None, None) if grad_norm is None else grad_norm
        return *(_slope(*each) for each in zip(slopes, norms, units, norm, strict=True)), None


# -- choice of pairs ---------------------------------------------------------------------------------------------------


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
    n, columns = z1.shape
    if queue is not None:
        check_tensor("queue", queue, z1, (None, columns), f"[Q, {columns}], with the columns of `z1`")
    sets: tuple[Tensor, ...] = (z1, z2) if queue is None or queue.size(0) == 0 else (z1, z2, queue)
    by_id = None
    if ids is not None or queue_ids is not None:
        if ids is None or queue_ids is None or queue is None:
            raise InputError("`ids` and `queue_ids` must be given together, and with a `queue`.")
        for name, labels, rows in (("ids", ids, n), ("queue_ids", queue_ids, queue.size(0))):
            check_tensor(name, labels, z1, (rows,), f"[{rows}], one integer per row", integer=True)
        by_id = (ids.long().contiguous(), queue_ids.long().contiguous()) if len(sets) == 3 else None
    if negatives == "queue" and queue is None:
        raise InputError("`negatives` is 'queue', but `queue` is missing: pass `queue`, or `negatives='cross'`.")
    # For each set of anchors, the views whose rows are keys, on this rank and on the others.
    views = {"cross": [[1], [0]], "all": [[1, 0], [0, 1]], "queue": [[], []] if len(sets) == 3 else [[1], [0]]}
    of_batch = views[negatives][: 1 + symmetric]
    with without_autocast(z1):
        sets, positive, finite = _prepared(sets, similarity, normalized, len(of_batch))
        shared = sorted({view for keys in of_batch for view in keys})
        others: tuple[Tensor, ...] = ()
        if ranks.size() > 1 and shared:
            others = ranks.others(torch.stack([sets[view] for view in shared], dim=1)).unbind(dim=1)
        key_sets: list[tuple[KeySet, ...]] = []
        for keys in of_batch:
            key_set: list[KeySet] = []
            for view in keys:
                key_set.append((view, "diagonal"))
                if others:
                    key_set.append((len(sets) + shared.index(view), None))
            if len(sets) == 3:
                key_set.append((2, "ids" if by_id else None))
            key_sets.append(tuple(key_set))
        comparison = Comparison((*sets, *others), tuple(key_sets), similarity, by_id, positive)
        # Across ranks, check only gathered rows, which are equal on all ranks: if one rank raised alone, others would
        # hang. Other non-finite rows make the loss non-finite.
        for number, name in enumerate(("z1", "z2", "queue")[: len(sets)]):
            if (ranks.size() == 1 or number in (*shared, 2)) and not (finite and number < 2):
                check_finite(name, sets[number])
        for view, rows_of_others in zip(shared, others, strict=False):
            check_finite(f"z{view + 1}", rows_of_others)
        entries = sum(n * comparison.sets[keys].size(0) for key_set in key_sets for keys, _ in key_set)
        if engine == "dense" or (engine == "auto" and entries <= DENSE_LIMIT):
            return DensePairs(comparison)
        return TiledPairs(comparison)


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
    rows = {"anchors": anchors, "positives": positives, "negatives": negatives}
    for name, z in rows.items():
        check_rows(name, z)
        check_finite(name, z)
    fits = negatives.dim() == 2 or (negatives.dim() == 3 and negatives.size(0) == anchors.size(0))
    if anchors.dim() != 2 or anchors.shape != positives.shape or not fits or negatives.size(-1) != anchors.size(1):
        shapes = ", ".join(str([*z.shape]) for z in rows.values())
        raise InputError(f"`anchors` and `positives` must be [A, D], `negatives` [M, D] or [A, M, D], got {shapes}.")
    if negatives.size(-2) < 1 or anchors.size(1) < 1:
        raise InputError(f"`negatives` must have at least one row and one column, got {[*negatives.shape]}.")
    with without_autocast(anchors):
        sets, positive, _ = _prepared([*rows.values()], similarity, normalized)
        return DensePairs(Comparison(sets, (((2, None),),), similarity, positive=positive))


def _prepared(
    sets: Sequence[Tensor], similarity: Similarity, normalized: bool | None, copies: int = 1
) -> tuple[tuple[Tensor, ...], Tensor | None, bool]:
    """Return `sets` in one precision, float32 or float64, with rows of norm 1 if `normalized`, or for the cosine.

    Also return the cosines of the positives, `copies` times, if they were computed with the norms, else None; and
    whether the views are known to be finite.
    """
    sets = [at_least_float32(rows) for rows in sets]
    if not (similarity == "cosine" if normalized is None else normalized):
        return tuple(rows.to(sets[0].dtype) for rows in sets), None, False
    others = (normalize(rows).to(sets[0].dtype) for rows in sets[2:])
    if native.takes(*sets[:2]):
        unit1, unit2, _, positive, finite = _UnitViews.apply(*sets[:2], copies)
        return (unit1, unit2, *others), positive if similarity == "cosine" else None, finite
    pair = normalize(torch.cat([*sets[:2]]))  # in one call, which launches fewer operations
    return (*pair.split(sets[0].size(0)), *others), None, False
