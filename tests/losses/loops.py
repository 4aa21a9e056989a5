"""Slow float64 references of the losses: plain loops over rows, slopes by central differences, no torch inside.

A test file defines `batch(rows, frozen, **arguments) -> values`. `rows` holds `(anchor, positive, [negatives])` of
each anchor, `frozen` the rows for parts that are constants to the gradient. `of_cosines` and `of_rows` make it from
a formula for one anchor. `test_formulas.py` compares the loss with it.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch

from graphcl.losses import explicit
from graphcl.registry import losses

NEGATIVES, HELD = ("cross", "all", "queue"), ("nothing", "queue", "ids")
CASES = list(product(NEGATIVES, HELD, (True, False)))
SWITCHES = list(product(["cross", "all"], [True, False]))
SHARED = ("negatives", "symmetric", "queue", "ids", "queue_ids")


# -- rows --------------------------------------------------------------------------------------------------------------


def dot(u, v):
    return math.fsum(a * b for a, b in zip(u, v, strict=True))


def unit(row):
    """The row at length 1; zero stays zero."""
    length = math.sqrt(dot(row, row))
    return [value / length for value in row] if length else list(row)


def cosine(u, v):
    return dot(unit(u), unit(v))


def log_sum_exp(values):
    highest = max(values)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in values))


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


# -- references --------------------------------------------------------------------------------------------------------


def of_rows(term):
    """A batch's reference from `term(anchor, positive, negatives, **arguments)`; 0 for an anchor without negatives."""

    def batch(rows, frozen, **arguments):
        return [term(*row, **arguments) if row[2] else 0.0 for row in rows]

    return batch


def of_cosines(term, freeze=False):
    """The same from `term(positive, negatives, **arguments)` of cosines.

    With `freeze`, the term gets the argument `frozen` too: the negatives' cosines that its weights are made of.
    """

    def batch(rows, frozen, **arguments):
        values = []
        for (positive, negatives), (_, kept) in zip(cosines(rows), cosines(frozen), strict=True):
            more = {"frozen": kept} if freeze else {}
            values.append(term(positive, negatives, **more, **arguments) if negatives else 0.0)
        return values

    return batch


def cosines(rows):
    """`(cosine with the positive, [cosines with the negatives])` of each anchor."""
    return [(cosine(anchor, positive), [cosine(anchor, key) for key in keys]) for anchor, positive, keys in rows]


def compared(z1, z2, *, negatives="cross", symmetric=True, queue=None, ids=None, queue_ids=None):
    """`(anchor, positive, [negatives])` as rows, the first view's anchors first."""
    result = []
    queue = queue or []
    for own, other in [(z1, z2), (z2, z1)] if symmetric else [(z1, z2)]:
        for i, anchor in enumerate(own):
            keys = [key for k, key in enumerate(queue) if ids is None or queue_ids[k] != ids[i]]
            if negatives != "queue" or not queue:
                keys += [row for j, row in enumerate(other) if j != i]
            if negatives == "all":
                keys += [row for j, row in enumerate(own) if j != i]
            result.append((anchor, other[i], keys))
    return result


def split(arguments):
    """The shared arguments and those of the formula."""
    shared = {name: value for name, value in arguments.items() if name in SHARED}
    return shared, {name: value for name, value in arguments.items() if name not in SHARED}


def terms(batch, z1, z2, frozen=None, **arguments):
    """One value per anchor of views given as nested lists; `frozen` as from `compared`, by default these views."""
    shared, own = split(arguments)
    rows = compared(z1, z2, **shared)
    return batch(rows, rows if frozen is None else frozen, **own)


def every(term, **defaults):
    """`slow(z1, z2, **arguments)` of a term of rows, one value per anchor."""
    return lambda z1, z2, **arguments: terms(of_rows(term), z1, z2, **defaults | arguments)


def mean(values, weight=None):
    """sum_i w_i L_i / sum_i w_i; in both directions a graph has the same weight."""
    weight = [1.0] * len(values) if weight is None else weight * (len(values) // len(weight))
    return math.fsum(w * value for w, value in zip(weight, values, strict=True)) / math.fsum(weight)


# -- inputs ------------------------------------------------------------------------------------------------------------


def who(count, columns, negatives, held, symmetric):
    """Shared arguments of a case, as tensors; every other case is weighted."""
    generator = torch.Generator().manual_seed(count)
    result = {"negatives": negatives, "symmetric": symmetric}
    if held != "nothing":
        result["queue"] = 0.8 * torch.randn(5, columns, generator=generator, dtype=torch.float64)
    elif negatives == "queue":
        result["queue"] = torch.zeros(0, columns, dtype=torch.float64)
    if held == "ids":
        # The first graph is in the queue twice, another one once; ids need not differ within the batch.
        result["ids"] = torch.tensor([7, 3, 3, 9, 4, 5])[:count]
        result["queue_ids"] = torch.tensor([1, 7, 3, 7, 2])
    if (NEGATIVES.index(negatives) + HELD.index(held)) % 2:
        result["weight"] = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25])[:count].double()
    return result


def needed(name, z, **arguments):
    """What a loss with these arguments needs beside the views `z`: labels, all different, and a queue without rows."""
    known = losses.arguments(name)
    labels = {"labels": torch.arange(len(z))} if "labels" in known.tensors else {}
    return labels | ({"queue": z[:0].detach()} if (known.defaults | arguments).get("negatives") == "queue" else {})


def lonely(columns):
    """The first of two graphs finds only its own keys in the queue: no negative at all."""
    queue = torch.randn(3, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {
        "negatives": "queue",
        "queue": queue,
        "ids": torch.tensor([4, 5]),
        "queue_ids": torch.tensor([4, 4, 4]),
    }


# -- the comparison ----------------------------------------------------------------------------------------------------


def differences(function, z1, z2, h=1e-4):
    """Slopes `[2, N, D]` of `function(z1, z2)`: central differences of steps h and 2h, extrapolated."""
    views = np.array([z1, z2], dtype=float)

    def central(index, step):
        moved = []
        for sign in (1, -1):
            at = views.copy()
            at[index] += sign * step
            moved.append(function(*at.tolist()))
        return (moved[0] - moved[1]) / (2 * step)

    near, far = np.zeros_like(views), np.zeros_like(views)
    for index in np.ndindex(*views.shape):
        near[index], far[index] = central(index, h), central(index, 2 * h)
    assert np.abs(near - far).max() < 1e-3 * (1 + np.abs(near).max()), "a kink nearby: choose other inputs"
    return (4 * near - far) / 3


def agree(loss, slow, z1, z2, *, engines=("dense", "tiled"), fixed=None, stopped=False, rtol=1e-10, **arguments):
    """Terms, mean and gradient of `loss` equal those of a batch's reference, or of `slow(z1, z2, **arguments)`.

    `fixed` are arguments of the reference only; `stopped`: z2 has no gradient.
    """
    lists = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    lists |= fixed or {}
    weight = lists.pop("weight", None)
    rows = z1.tolist(), z2.tolist()
    if not getattr(slow, "whole", False):
        batch, frozen = slow, compared(*rows, **split(lists)[0])

        def slow(a, b, **own):
            return terms(batch, a, b, frozen=frozen, **own)

    expected = slow(*rows, **lists)
    slopes = differences(lambda a, b: mean(slow(a, b, **lists), weight), *rows)
    if stopped:
        slopes[1] = 0
    for engine in engines:
        own = arguments if engine is None else arguments | {"engine": engine}
        a, b = (z.detach().clone().requires_grad_() for z in (z1, z2))
        got = loss(a, b, reduction="none", **own).detach()
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-12, err_msg=f"terms, {engine}")
        value = loss(a, b, **own)
        assert value.item() == pytest.approx(mean(expected, weight), rel=rtol, abs=1e-12), engine
        value.backward()
        gradient = np.stack([np.zeros(z.shape) if z.grad is None else z.grad.numpy() for z in (a, b)])
        scale = np.abs(slopes).max()
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8 * (1 + scale), err_msg=f"gradient, {engine}")


def whole(slow):
    """Mark `slow(z1, z2, **arguments)` as a reference of whole views, for losses that are no function of one anchor."""
    slow.whole = True
    return slow


def agree_explicitly(loss, batch, similarity="cosine", **own):
    """`loss.terms` of anchors, positives and negatives given apart, one set for all or one set each."""
    generator = torch.Generator().manual_seed(5)
    anchors, positives = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    for negatives in (torch.randn(*shape, generator=generator).double() for shape in ((5, 3), (4, 2, 3))):
        each = negatives.expand(4, 5, 3) if negatives.dim() == 2 else negatives
        rows = list(zip(anchors.tolist(), positives.tolist(), each.tolist(), strict=True))
        got = loss.terms(explicit(anchors, positives, negatives, similarity=similarity), **own)
        np.testing.assert_allclose(got, batch(rows, rows, **own), rtol=1e-10, atol=1e-11)


def agree_in_float32(loss, batch, views, **own):
    """float32 at temperature 0.01 is finite, gradient included, and right: exponentials of logits of 100 overflow."""
    z1, z2 = views(6, 4, dtype=torch.float32)
    for second, negatives, engine in product((z2, z1, -z1), ("cross", "all"), ("dense", "tiled")):
        a, b = (z.clone().requires_grad_() for z in (z1, second))
        value = loss(a, b, temperature=0.01, negatives=negatives, engine=engine, **own)
        value.backward()
        assert value.dtype == torch.float32
        assert torch.isfinite(a.grad).all()
        assert torch.isfinite(b.grad).all()
        exact = mean(terms(batch, z1.tolist(), second.tolist(), negatives=negatives, temperature=0.01, **own))
        np.testing.assert_allclose(value.item(), exact, rtol=1e-4, atol=1e-3)


def finite(loss, z1, z2):
    """Neither value nor gradient is NaN or infinite."""
    for dtype in (torch.float64, torch.float32):
        a, b = (z.detach().to(dtype).clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b)
        value.backward()
        assert torch.isfinite(value), value
        for z in (a, b):
            assert z.grad is None or torch.isfinite(z.grad).all(), z.grad
