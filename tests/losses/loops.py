"""Slow float64 references of the losses without torch: loops over rows, and gradients by central differences.

A test file defines `batch(rows, frozen, **arguments)`, which returns one value per anchor. `rows` holds
`(anchor, positive, [negatives])` for each anchor. `frozen` holds the same rows as constants, for detached parts of the
loss. `of_cosines` and `of_rows` build `batch` from a formula for one anchor. `test_formulas.py` compares it with the
loss.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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


def every(term, **defaults):
    """Return `slow(z1, z2, **arguments)`, which evaluates the formula `term` of rows for every anchor."""
    return lambda z1, z2, **arguments: terms(of_rows(term), z1, z2, **defaults | arguments)


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
    """Return the tensors a loss needs in addition to the views `z`: distinct labels, and an empty queue."""
    known = losses.arguments(name)
    labels = {"labels": torch.arange(len(z))} if "labels" in known.tensors else {}
    return labels | ({"queue": z[:0].detach()} if (known.defaults | arguments).get("negatives") == "queue" else {})


def lonely(columns):
    """Return arguments for two graphs such that the first has no negatives: the queue holds only its own keys."""
    queue = torch.randn(3, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {
        "negatives": "queue",
        "queue": queue,
        "ids": torch.tensor([4, 5]),
        "queue_ids": torch.tensor([4, 4, 4]),
    }


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


def agree(loss, slow, z1, z2, *, engines=("dense", "tiled"), fixed=None, stopped=False, rtol=1e-10, **arguments):
    """Assert that terms, mean and gradient of `loss` equal those of the reference `slow`.

    Args:
        loss: loss to test.
        slow: reference, a `batch` as in the module docstring, or a function marked by `whole`.
        z1: projections of the first view.
        z2: projections of the second view.
        engines: engines to test; None for a loss without this argument.
        fixed: arguments that only the reference takes.
        stopped: whether the loss detaches `z2`.
        rtol: relative tolerance of the values.
        **arguments: arguments of the loss and the reference.
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
    """Mark `slow(z1, z2, **arguments)` as a reference that takes two views instead of the rows of each anchor."""
    slow.whole = True
    return slow


def agree_explicitly(loss, batch, similarity="cosine", **own):
    """Assert that `loss.terms` of explicit pairs equals `batch`, for shared negatives and for negatives per anchor."""
    generator = torch.Generator().manual_seed(5)
    anchors, positives = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    for negatives in (torch.randn(*shape, generator=generator).double() for shape in ((5, 3), (4, 2, 3))):
        each = negatives.expand(4, 5, 3) if negatives.dim() == 2 else negatives
        rows = list(zip(anchors.tolist(), positives.tolist(), each.tolist(), strict=True))
        got = loss.terms(explicit(anchors, positives, negatives, similarity=similarity), **own)
        np.testing.assert_allclose(got, batch(rows, rows, **own), rtol=1e-10, atol=1e-11)


def agree_in_float32(loss, batch, views, **own):
    """Assert that a float32 loss at temperature 0.01 is finite and accurate, and its gradient finite.

    Logits reach 100 at this temperature, so e^logit overflows float32.
    """
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
    """Assert that the value and the gradients of `loss` are finite."""
    for dtype in (torch.float64, torch.float32):
        a, b = (z.detach().to(dtype).clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b)
        value.backward()
        assert torch.isfinite(value), value
        for z in (a, b):
            assert z.grad is None or torch.isfinite(z.grad).all(), z.grad
