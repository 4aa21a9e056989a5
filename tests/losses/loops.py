"""Under the slow references of the single test files: who is compared with whom, and slopes without autograd.

Rows are lists of floats. A reference takes the views as nested lists and returns one value per anchor; `agree` holds a
loss against it: terms, mean and gradient, for every engine.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch

# Who is compared: every kind of negatives, both directions or one, with nothing / a queue / a queue and ids.
NEGATIVES, HELD = ("cross", "all", "queue"), ("nothing", "queue", "ids")
CASES = list(product(NEGATIVES, HELD, (True, False)))
SHARED = ("negatives", "symmetric", "queue", "ids", "queue_ids")
each_case = pytest.mark.parametrize(("negatives", "held", "symmetric"), CASES)


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


# -- who is compared ---------------------------------------------------------------------------------------------------


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


def every(term, **defaults):
    """The reference `slow(z1, z2, **arguments)` of `term(anchor, positive, negatives, **own)`, one value per anchor."""

    def slow(z1, z2, **arguments):
        own = defaults | arguments
        shared = {name: own.pop(name) for name in SHARED if name in own}
        # An anchor that has no negative contributes 0.
        return [term(*rows, **own) if rows[2] else 0.0 for rows in compared(z1, z2, **shared)]

    return slow


def mean(terms, weight=None):
    """sum_i w_i L_i / sum_i w_i; in both directions a graph has the same weight."""
    weight = [1.0] * len(terms) if weight is None else weight * (len(terms) // len(weight))
    return math.fsum(w * term for w, term in zip(weight, terms, strict=True)) / math.fsum(weight)


def who(count, columns, negatives, held, symmetric):
    """Shared arguments of a case, as tensors; every other case is weighted."""
    generator = torch.Generator().manual_seed(count)
    result = {"negatives": negatives, "symmetric": symmetric}
    if held != "nothing":
        result["queue"] = 0.8 * torch.randn(5, columns, generator=generator, dtype=torch.float64)
    if held == "ids":
        # The first graph is in the queue twice, another one once; ids need not differ within the batch.
        result["ids"] = torch.tensor([7, 3, 3, 9, 4, 5])[:count]
        result["queue_ids"] = torch.tensor([1, 7, 3, 7, 2])
    if (NEGATIVES.index(negatives) + HELD.index(held)) % 2:
        result["weight"] = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25])[:count].double()
    return result


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


def agree(loss, slow, z1, z2, *, engines=("dense", "tiled"), frozen=None, stopped=False, **arguments):
    """Terms, mean and gradient of `loss` equal those of `slow`.

    `frozen(z1, z2, ...)` gives arguments of `slow` that a difference must not move; `stopped`: z2 has no gradient.
    """
    lists = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
    weight = lists.pop("weight", None)
    rows = z1.tolist(), z2.tolist()
    expected = slow(*rows, **lists)
    held = lists if frozen is None else lists | frozen(*rows, **lists)
    slopes = differences(lambda a, b: mean(slow(a, b, **held), weight), *rows)
    if stopped:
        slopes[1] = 0
    for engine in engines:
        own = arguments if engine is None else arguments | {"engine": engine}
        a, b = (z.detach().clone().requires_grad_() for z in (z1, z2))
        terms = loss(a, b, reduction="none", **own).detach()
        np.testing.assert_allclose(terms, expected, rtol=1e-10, atol=1e-12, err_msg=f"terms, {engine}")
        value = loss(a, b, **own)
        assert value.item() == pytest.approx(mean(expected, weight), rel=1e-10, abs=1e-12), engine
        value.backward()
        got = np.stack([np.zeros(z.shape) if z.grad is None else z.grad.numpy() for z in (a, b)])
        scale = np.abs(slopes).max()
        np.testing.assert_allclose(got, slopes, rtol=1e-6, atol=1e-8 * (1 + scale), err_msg=f"gradient, {engine}")


def agree_explicitly(loss, term, explicit, similarity, **own):
    """`loss.terms` of anchors, positives and negatives given apart, one set for all or one set each."""
    generator = torch.Generator().manual_seed(5)
    anchors, positives, *_ = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    for negatives in (torch.randn(*shape, generator=generator).double() for shape in ((5, 3), (4, 2, 3))):
        each = negatives.expand(4, 5, 3) if negatives.dim() == 2 else negatives
        expected = [
            term(*rows, **own) for rows in zip(anchors.tolist(), positives.tolist(), each.tolist(), strict=True)
        ]
        got = loss.terms(explicit(anchors, positives, negatives, similarity=similarity), **own)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def agree_in_tiles(loss, count=1100, keys=700, **own):
    """Many rows: what fits in no single tile equals the dense form, value and gradient."""
    generator = torch.Generator().manual_seed(0)
    z1, z2 = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    shared = {
        "queue": torch.randn(keys, 3, generator=generator, dtype=torch.float64),
        "ids": torch.randint(50, (count,), generator=generator),
        "queue_ids": torch.randint(50, (keys,), generator=generator),
        "weight": torch.rand(count, generator=generator, dtype=torch.float64),
    }
    results = []
    for engine in ("dense", "tiled"):
        a, b = (z.clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b, engine=engine, negatives="all", symmetric=True, **shared, **own)
        value.backward()
        results.append((value.detach(), a.grad, b.grad))
    for dense, tiled in zip(*results, strict=True):
        torch.testing.assert_close(tiled, dense, rtol=1e-9, atol=1e-12)


def finite(loss, z1, z2):
    """Neither value nor gradient is NaN or infinite."""
    for dtype in (torch.float64, torch.float32):
        a, b = (z.detach().to(dtype).clone().requires_grad_() for z in (z1, z2))
        value = loss(a, b)
        value.backward()
        assert torch.isfinite(value), value
        for z in (a, b):
            assert z.grad is None or torch.isfinite(z.grad).all(), z.grad
