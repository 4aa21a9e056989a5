"""Slow float64 references of the losses without torch: loops over rows, and gradients by central differences.

A reference `batch(rows, frozen, **arguments)` returns one value per anchor. `rows` holds `(anchor, positive,
[negatives])` for each anchor. `frozen` holds the same rows as constants, for detached parts of the loss. `of_cosines`
and `of_rows` build `batch` from a formula for one anchor; the formulas are in `table.py`.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphcl.registry import losses

NEGATIVES, HELD = ("cross", "all", "queue"), ("nothing", "queue", "ids")
SWITCHES = list(product(["cross", "all"], [True, False]))
SHARED = ("negatives", "symmetric", "queue", "ids", "queue_ids")


# -- rows --------------------------------------------------------------------------------------------------------------


def dot(u, v):
    return math.fsum(a * b for a, b in zip(u, v, strict=True))


def unit(row):
    """Return `row` scaled to norm 1. A zero row stays zero."""
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
    """Return a reference `batch` that evaluates `term(anchor, positive, negatives, **arguments)` for every anchor.

    An anchor without negatives has the value 0.
    """

    def batch(rows, frozen, **arguments):
        return [term(*row, **arguments) if row[2] else 0.0 for row in rows]

    return batch


def of_cosines(term, freeze=False):
    """Return a reference `batch` that evaluates `term(positive, negatives, **arguments)` for every anchor.

    The arguments `positive` and `negatives` are cosines. With `freeze`, `term` also takes `frozen`, a constant copy of
    the negatives' cosines, for detached weights. An anchor without negatives has the value 0.
    """

    def batch(rows, frozen, **arguments):
        values = []
        for (positive, negatives), (_, kept) in zip(cosines(rows), cosines(frozen), strict=True):
            more = {"frozen": kept} if freeze else {}
            values.append(term(positive, negatives, **more, **arguments) if negatives else 0.0)
        return values

    return batch


def cosines(rows):
    """Return `(cosine with the positive, [cosines with the negatives])` for each anchor."""
    return [(cosine(anchor, positive), [cosine(anchor, key) for key in keys]) for anchor, positive, keys in rows]


def compared(z1, z2, *, negatives="cross", symmetric=True, queue=None, ids=None, queue_ids=None):
    """Return `(anchor, positive, [negatives])` for each anchor; the anchors of the first view come first."""
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
    """Split `arguments` into the arguments shared by all losses and those of the formula; return both dicts."""
    shared = {name: value for name, value in arguments.items() if name in SHARED}
    return shared, {name: value for name, value in arguments.items() if name not in SHARED}


def terms(batch, z1, z2, frozen=None, **arguments):
    """Return the reference value of each anchor. `frozen`, a result of `compared`, defaults to that of these views."""
    shared, own = split(arguments)
    rows = compared(z1, z2, **shared)
    return batch(rows, rows if frozen is None else frozen, **own)


def mean(values, weight=None):
    """Return the mean of `values` weighted by graph. A graph has the same weight in both directions."""
    weight = [1.0] * len(values) if weight is None else weight * (len(values) // len(weight))
    return math.fsum(w * value for w, value in zip(weight, values, strict=True)) / math.fsum(weight)


# -- inputs ------------------------------------------------------------------------------------------------------------


@st.composite
def projections(draw, most_graphs=5, most_columns=4):
    """Draw two float64 views `[N, D]`, N >= 2. Zero rows and equal rows can occur."""
    shape = draw(st.integers(2, most_graphs)), draw(st.integers(1, most_columns))
    # Multiples of 1 / 64, so that no nonzero row has a smaller norm than 1 / 64.
    elements = st.integers(-192, 192).map(lambda number: number / 64)
    return tuple(draw(hnp.arrays(np.float64, shape, elements=elements)) for _ in range(2))


def who(count, columns, negatives, held, symmetric):
    """Return the shared arguments of a test case as tensors. Every other case has graph weights."""
    generator = torch.Generator().manual_seed(100 + count)  # other numbers than the views, which have small seeds
    result = {"negatives": negatives, "symmetric": symmetric}
    if held != "nothing":
        result["queue"] = 0.8 * torch.randn(5, columns, generator=generator, dtype=torch.float64)
    elif negatives == "queue":
        result["queue"] = torch.zeros(0, columns, dtype=torch.float64)
    if held == "ids":
        # Keys of the first graph are in the queue twice, of another graph once. Ids may repeat within the batch.
        result["ids"] = torch.tensor([7, 3, 3, 9, 4, 5])[:count]
        result["queue_ids"] = torch.tensor([1, 7, 3, 7, 2])
    if (NEGATIVES.index(negatives) + HELD.index(held)) % 2:
        result["weight"] = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25])[:count].double()
    return result


def needed(name, z, **arguments):
    """Return what a loss needs in addition to the views `z`: distinct labels, an empty queue, and a new generator."""
    known = losses.arguments(name)
    labels = {"labels": torch.arange(len(z))} if "labels" in known.tensors else {}
    if "generator" in known.tensors:
        labels["generator"] = torch.Generator().manual_seed(0)
    return labels | ({"queue": z[:0].detach()} if (known.defaults | arguments).get("negatives") == "queue" else {})


# -- the comparison ----------------------------------------------------------------------------------------------------


def differences(function, z1, z2, h=1e-4):
    """Return the gradient of `function(z1, z2)`, `[2, N, D]`, by central differences with Richardson extrapolation."""
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


def agree(loss, entry, z1, z2, *, engines=("dense", "tiled"), rtol=1e-10, **arguments):
    """Assert that terms, mean and gradient of `loss` equal those of the reference in `entry`, on all `engines`.

    `engine=None` is for losses without this argument. A reference may return one number, if there are no terms.
    """
    lists = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    weight = lists.pop("weight", None)
    rows, slow = (z1.tolist(), z2.tolist()), entry.reference
    if not entry.whole:
        lists |= entry.switches or {}
        frozen = compared(*rows, **split(lists)[0])

        def slow(a, b, **own):
            return terms(entry.reference, a, b, frozen=frozen, **own)

    expected = slow(*rows, **lists)
    single = isinstance(expected, float)

    def value(a, b):
        found = slow(a, b, **lists)
        return found if single else mean(found, weight)

    slopes = differences(value, *rows)
    if entry.stopped:
        slopes[1] = 0
    for engine in engines:
        own = arguments if engine is None else arguments | {"engine": engine}
        a, b = (z.detach().clone().requires_grad_() for z in (z1, z2))
        if not single:
            got = loss(a, b, reduction="none", **own).detach()
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-12, err_msg=f"terms, {engine}")
        result = loss(a, b, **own)
        assert result.item() == pytest.approx(value(*rows), rel=rtol, abs=1e-12), engine
        result.backward()
        gradient = np.stack([np.zeros(z.shape) if z.grad is None else z.grad.numpy() for z in (a, b)])
        scale = np.abs(slopes).max()
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8 * (1 + scale), err_msg=f"gradient, {engine}")


def finite(loss, z1, z2):
    """Assert that the value and the gradients of `loss` are finite, in float64 and float32."""
    for dtype in (torch.float64, torch.float32):
        a, b = (z.detach().to(dtype).clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b)
        value.backward()
        for each in (value, a.grad, b.grad):
            assert each is None or torch.isfinite(each).all(), each
