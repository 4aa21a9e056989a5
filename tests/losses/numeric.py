"""Losses of whole batches from the term of one anchor, with gradients by central differences: loops, no torch inside.

A term is `term(positive, negatives, temperature, **own)`, a function of cosines, or with frozen weights
`term(positive, negatives, temperature, frozen, **own)`, where `frozen` are the cosines that the weights are made of.
`each` makes a batch of it: `batch(pairs, frozen, temperature, **own) -> values`, both pairs being lists of
`(positive, negatives)`, one for each anchor.
"""

from itertools import product
from unittest import mock

import numpy as np
import torch

from graphcl.losses import explicit
from graphcl.losses.engine import tiled, torch_tiles

from .references import anchors, cosine

SWITCHES = list(product(["cross", "all"], [True, False]))


def each(term, freeze=False):
    """The batch's loss from an anchor's term; an anchor without negatives has none."""

    def batch(pairs, frozen, temperature, **own):
        return [
            term(positive, negatives, temperature, *([kept] if freeze else []), **own) if negatives else 0.0
            for (positive, negatives), (_, kept) in zip(pairs, frozen, strict=True)
        ]

    return batch


def compared(z1, z2, negatives="cross", symmetric=True, queue=None, ids=None, queue_ids=None):
    """For each anchor its positive cosine and its negatives' cosines, those with the queue last."""
    views = np.asarray(z1, dtype=float).tolist(), np.asarray(z2, dtype=float).tolist()
    queue = [] if queue is None else np.asarray(queue, dtype=float).tolist()
    batch = "cross" if negatives == "queue" else negatives
    result = []
    for (view, i), positive, keys in anchors(len(views[0]), batch, symmetric):
        anchor = views[view][i]
        others = [] if negatives == "queue" and queue else [views[a][j] for a, j in keys]
        others += [key for k, key in enumerate(queue) if ids is None or ids[i] != queue_ids[k]]
        result.append((cosine(anchor, views[positive[0]][i]), [cosine(anchor, other) for other in others]))
    return result


def values(batch, z1, z2, context, temperature=0.2, frozen=None, **own):
    """The terms; `frozen`: the cosines that frozen weights are made of, as `compared` gives them, if not these."""
    pairs = compared(z1, z2, **context)
    return np.array(batch(pairs, frozen or pairs, temperature, **own))


def mean(batch, z1, z2, context, weight=None, **arguments):
    terms = values(batch, z1, z2, context, **arguments)
    return float(np.average(terms, weights=None if weight is None else np.resize(weight, terms.shape)))


def slopes(batch, z1, z2, context, step=1e-6, **arguments):
    """Central differences of the mean, `[2, N, D]`, whatever can be frozen being frozen at `z1` and `z2`."""
    views, frozen = np.stack([z1, z2]), compared(z1, z2, **context)
    result = np.empty_like(views)
    for place in np.ndindex(*views.shape):
        there, back = views.copy(), views.copy()
        there[place] += step
        back[place] -= step
        difference = [mean(batch, *moved, context, frozen=frozen, **arguments) for moved in (there, back)]
        result[place] = (difference[0] - difference[1]) / (2 * step)
    return result


def contexts(columns, count=4):
    """Who is compared: all switches, plainly, with a queue, and with ids, so that the number of negatives differs."""
    queue = np.random.default_rng(7).normal(size=(4, columns))
    ids = {"ids": np.arange(count), "queue_ids": np.array([0, 0, 1, 0])}
    plain = [{"negatives": negatives, "symmetric": symmetric} for negatives, symmetric in SWITCHES]
    fed = [{**context, "queue": queue} for context in [*plain, {"negatives": "queue", "symmetric": True}]]
    known = [{**context, **ids} for context in fed]
    # The first graph is left without any negative.
    barren = {**known[-1], "queue_ids": np.zeros(4, dtype=int)}
    starved = [{"negatives": "queue", "symmetric": False}, {**fed[-1], "queue": queue[:0]}]
    return [*plain, *starved, *fed, *known, barren]


def check(loss, batch, z1, z2, context, weight=None, gradient=True, engines=("auto",), **arguments):
    """`loss` equals the loops, with each engine: terms, mean, gradient."""
    fixed = [torch.as_tensor(z) for z in (z1, z2)]
    given = {name: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for name, v in context.items()} | arguments
    weights = {} if weight is None else {"weight": torch.as_tensor(weight)}
    own = {name: value for name, value in arguments.items() if name != "detach_weight"}
    z1, z2 = (z.numpy() for z in fixed)
    terms = values(batch, z1, z2, context, **own)
    average = mean(batch, z1, z2, context, weight=weight, **own)
    wanted = slopes(batch, z1, z2, context, weight=weight, **own) if gradient else np.zeros(1)
    size = max(1, np.abs(terms).max(), np.abs(wanted).max())
    for engine in engines:
        given["engine"] = engine
        np.testing.assert_allclose(loss(*fixed, reduction="none", **given), terms, rtol=1e-10, atol=1e-11)
        views = [z.clone().requires_grad_() for z in fixed]
        value = loss(*views, **given, **weights)
        np.testing.assert_allclose(value.item(), average, rtol=1e-10, atol=1e-11)
        if gradient:
            value.backward()
            np.testing.assert_allclose(torch.stack([z.grad for z in views]), wanted, rtol=1e-6, atol=1e-7 * size)


def check_shared(loss, batch, z1, z2, kinds=None, **own):
    """Queue, ids, weights and both engines against the loops, over all contexts or the given kinds of them."""
    weight = np.linspace(1.5, 0, len(z1)) ** 2
    for context in kinds or contexts(z1.shape[1], len(z1)):
        check(loss, batch, z1, z2, context, weight=weight, engines=("dense", "tiled"), **own)


def check_explicit(loss, batch, **own):
    """`loss.terms` over explicit anchors, positives and negatives, these shared or each anchor's own."""
    generator = torch.Generator().manual_seed(3)
    anchor, positive = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    for shape in ((5, 3), (4, 5, 3)):
        negative = torch.randn(shape, generator=generator, dtype=torch.float64)
        pairs = [
            (cosine(a, p), [cosine(a, n) for n in keys])
            for a, p, keys in zip(anchor.tolist(), positive.tolist(), negative.expand(4, 5, 3).tolist(), strict=True)
        ]
        got = loss.terms(explicit(anchor, positive, negative), **own)
        np.testing.assert_allclose(got, batch(pairs, pairs, **{"temperature": 0.2, **own}), rtol=1e-10, atol=1e-11)


def check_engines(loss, count=150, **own):
    """Both engines over more rows than fit one tile, queue, ids and weights included."""
    generator = torch.Generator().manual_seed(5)
    z1, z2, queue = torch.randn(3, count, 4, generator=generator, dtype=torch.float64)
    shared = {
        "queue": queue[: count // 2],
        "ids": torch.arange(count) % 40,
        "queue_ids": torch.arange(count // 2) % 30,
        "weight": torch.rand(count, generator=generator, dtype=torch.float64),
    }
    results = []
    for engine in ("dense", "tiled"):
        views = [z.clone().requires_grad_() for z in (z1, z2)]
        with mock.patch.object(torch_tiles, "TILE", 64), mock.patch.object(tiled, "ROW_ELEMENTS", 2**13):
            value = loss(*views, engine=engine, **shared, **own)
            value.backward()
        results.append([value.detach(), *(z.grad for z in views)])
    for dense, tiles in zip(*results, strict=True):
        torch.testing.assert_close(tiles, dense, rtol=1e-9, atol=1e-13)


def check_single(loss, batch, views, **own):
    """float32 at temperature 0.01 is finite, gradient included, and right: exponentials of logits of 100 overflow."""
    z1, z2 = views(6, 4, dtype=torch.float32)
    for second, negatives, engine in product((z2, z1, -z1), ("cross", "all"), ("dense", "tiled")):
        a, b = (z.clone().requires_grad_() for z in (z1, second))
        value = loss(a, b, temperature=0.01, negatives=negatives, engine=engine, **own)
        value.backward()
        assert value.dtype == torch.float32
        assert torch.isfinite(a.grad).all()
        assert torch.isfinite(b.grad).all()
        wanted = mean(batch, z1, second, {"negatives": negatives}, temperature=0.01, **own)
        np.testing.assert_allclose(value.item(), wanted, rtol=1e-4, atol=1e-3)
