"""Test the decorator `pairwise`: signature, documentation, terms, defaults, weights and facts of a loss."""

import importlib
import inspect
import re
import typing
from typing import Annotated, Literal

import pytest
import torch
from torch import Tensor

from graphcl.arguments import Temperature, interval
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss, Pairs, explicit, infonce, moco, nt_xent, pairwise
from graphcl.registry import Registry, losses, methods
from tests.losses import loops

MODULE = importlib.import_module("graphcl.losses.engine.pairwise")
SHARED = ["negatives", "symmetric", "queue", "ids", "queue_ids", "weight", "engine", "reduction"]
FIXED = {
    "nt_xent": ["negatives", "symmetric"],
    "supcon": ["negatives", "symmetric", "queue", "ids", "queue_ids"],
    "tuplet": ["negatives", "queue", "ids", "queue_ids"],
}
DEFAULTS = {
    "moco": {"negatives": "queue", "symmetric": False},
    "instance_nce": {"negatives": "queue", "symmetric": False},
}
SIMILARITY = {"contrastive": "squared_distance", "jsd": "dot", "n_pair": "dot", "tuplet": "dot"}
NAMES = [name for name in losses if "engine" in losses.arguments(name).defaults]
WEIGHTED = [name for name in losses if "weight" in losses.arguments(name).tensors]
N, Q, D = 6, 4, 3

each_name = pytest.mark.parametrize("name", NAMES)
each_weighted = pytest.mark.parametrize("name", WEIGHTED)


@pytest.fixture
def registry(monkeypatch):
    """Return a separate registry, so that losses of this file are not registered for other tests."""
    own = Registry("loss", "graphcl.losses")
    monkeypatch.setattr(MODULE, "losses", own)
    return own


def others(name, z):
    """Return the tensors that the loss needs in addition to the views. Some labels are equal."""
    found = loops.needed(name, z)
    return found | {"labels": torch.tensor([0, 1, 0, 2, 2, 0])[: len(z)]} if "labels" in found else found


def gap(pairs: Pairs, *, scale: Annotated[float, interval("(0, inf)")] = 2.0, form: Literal["a", "b"] = "a") -> Tensor:
    r"""Compute the gap: mean negative minus positive.

    $$L_i = k (\frac1M \sum_j c_{ij} - c_i^+)$$

    Args:
        pairs: anchors, positives and negatives.
        scale: k, > 0.
        form: no matter.

    Returns:
        A scalar, or `[A]`.
    """
    mean, _ = pairs.moments()
    return scale * (mean - pairs.positive)


# -- a loss made here --------------------------------------------------------------------------------------------------


def test_a_formula_becomes_a_loss(registry, views):
    loss = pairwise("gap")(gap)
    assert registry["gap"] is loss
    assert inspect.unwrap(loss.terms) is gap
    assert loss.__name__ == loss.__qualname__ == "gap"
    assert loss.__module__ == gap.__module__
    z1, z2 = views(N, D)
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    cosine = a @ b.T
    off = ~torch.eye(N, dtype=torch.bool)
    expected = 2 * ((cosine * off).sum() / off.sum() - cosine.diagonal().mean())
    assert loss(z1, z2).item() == pytest.approx(expected.item(), rel=1e-12)
    assert loss(z1, z2, scale=1.0).item() == pytest.approx(expected.item() / 2, rel=1e-12)
    assert loss(z1=z1, z2=z2).item() == pytest.approx(expected.item(), rel=1e-12)
    # The loss is not in the public registry.
    assert "gap" not in losses


def test_its_ranges_are_guarded(registry, views):
    loss = pairwise("gap")(gap)
    for wrong, message in (
        ({"scale": 0.0}, r"`scale` must be in \(0, inf\), got 0\.0\."),
        ({"form": "c"}, "`form` must be 'a' or 'b', got 'c'"),
        ({"negatives": "none"}, "`negatives` must be 'cross', 'all' or 'queue', got 'none'"),
        ({"engine": "fast"}, "`engine` must be 'auto', 'dense' or 'tiled', got 'fast'"),
        ({"reduction": "sum"}, "`reduction` must be 'mean' or 'none', got 'sum'"),
        ({"symmetric": 1}, "`symmetric` must be true or false, got 1"),
    ):
        with pytest.raises(InputError, match=message):
            loss(*views(N, D), **wrong)
        assert re.search(message, " ".join(registry.problems("gap", wrong)))
    with pytest.raises(TypeError):
        loss(*views(N, D), 3.0)


def test_its_documentation(registry):
    loss = pairwise("gap", fixed={"symmetric": False})(gap)
    text = inspect.getdoc(loss)
    before, after = text.split("Args:\n")
    arguments, rest = after.split("\n\n", 1)
    named = [line.split(":")[0].strip() for line in arguments.split("\n")]
    assert named == ["z1", "z2", "scale", "form", *(key for key in SHARED if key != "symmetric")]
    assert "scale: k, > 0." in arguments
    assert before == inspect.getdoc(gap).split("Args:\n")[0]
    assert rest == inspect.getdoc(gap).split("\n\n", 3)[3]
    assert registry.summary("gap") == "Compute the gap: mean negative minus positive."


def test_settled_and_changed_arguments(registry, views):
    z1, z2 = views(N, D)
    plain = pairwise("gap")(gap)
    one_sided = pairwise("one-sided", fixed={"symmetric": False}, negatives="all")(gap)
    assert "symmetric" not in inspect.signature(one_sided).parameters
    assert inspect.signature(one_sided).parameters["negatives"].default == "all"
    assert torch.equal(one_sided(z1, z2), plain(z1, z2, symmetric=False, negatives="all"))
    assert torch.equal(one_sided(z1, z2, negatives="cross"), plain(z1, z2, symmetric=False))
    with pytest.raises(TypeError, match="symmetric"):
        one_sided(z1, z2, symmetric=True)
    (problem,) = registry.problems("one-sided", {"symmetric": True})
    assert problem.startswith("`symmetric` is not a known key; ")


def test_a_formulas_own_argument_comes_before_a_shared_one(registry, views):
    """The formula has a number `weight`, which replaces the shared argument for graph weights."""

    def own(pairs: Pairs, *, weight: Temperature = 3.0) -> Tensor:
        """Own: $L = w$.

        Args:
            pairs: who.
            weight: a number.

        """
        return weight + 0 * pairs.positive

    loss = pairwise("own")(own)
    assert list(inspect.signature(loss).parameters).count("weight") == 1
    assert registry.arguments("own").defaults["weight"] == 3.0
    assert inspect.getdoc(loss).count("weight:") == 1


def test_similarities_and_lengths(registry, views):
    """Only the cosine scales rows to norm 1, unless the formula has an argument `normalize`."""
    z1, z2 = views(N, D)
    seen = []

    def look(pairs: Pairs) -> Tensor:
        """Look."""
        seen.append(pairs.positive)
        return pairs.positive

    def choose(pairs: Pairs, *, normalize: bool = True) -> Tensor:
        """Choose."""
        return look(pairs)

    unit = [torch.nn.functional.normalize(z) for z in (z1, z2)]
    pairwise("cosine")(look)(z1, z2, symmetric=False)
    pairwise("dot", similarity="dot")(look)(z1, z2, symmetric=False)
    pairwise("distance", similarity="squared_distance")(look)(z1, z2, symmetric=False)
    chosen = pairwise("chosen", similarity="squared_distance")(choose)
    chosen(z1, z2, symmetric=False)
    chosen(z1, z2, symmetric=False, normalize=False)
    raw = (z1 - z2).square().sum(dim=1)
    short = (unit[0] - unit[1]).square().sum(dim=1)
    for got, want in zip(seen, [(unit[0] * unit[1]).sum(1), (z1 * z2).sum(1), raw, short, raw], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_an_anchor_without_a_negative_contributes_nothing(registry, views):
    """The term is 0 even if the formula returns NaN."""

    def undefined(pairs: Pairs) -> Tensor:
        """Undefined."""
        return 5.0 * pairs.positive / pairs.positive / (pairs.count > 0)

    loss = pairwise("undefined")(undefined)
    z1, z2 = views(3, D)
    ids = {"ids": torch.arange(3), "queue_ids": torch.tensor([1, 1])}
    terms = loss(z1, z2, negatives="queue", queue=z1[:2], reduction="none", **ids)
    assert terms.tolist() == pytest.approx([5, 0, 5, 5, 0, 5])
    assert loss(z1, z2, negatives="queue", queue=z1[:2], **ids).item() == pytest.approx(20 / 6)


def test_inside_autocast_the_formula_sees_float32(registry, views):
    dtypes = []

    def look(pairs: Pairs) -> Tensor:
        """Look."""
        dtypes.append((pairs.positive.dtype, (pairs.anchor @ pairs.partner.T).dtype))
        return pairs.positive

    loss = pairwise("look")(look)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(*views(N, D, dtype=torch.bfloat16)).dtype == torch.float32
    assert dtypes == [(torch.float32, torch.float32)]


# -- every registered one ----------------------------------------------------------------------------------------------


@each_name
def test_signature(name):
    parameters = inspect.signature(losses[name]).parameters
    expected = [key for key in SHARED if key not in FIXED.get(name, [])]
    assert list(parameters)[:2] == ["z1", "z2"]
    assert list(parameters)[-len(expected) :] == expected
    own = list(parameters)[2 : -len(expected)]
    assert own == [key for key in inspect.signature(losses[name].terms).parameters if key != "pairs"]
    assert all(
        each.kind is inspect.Parameter.KEYWORD_ONLY for key, each in parameters.items() if key not in ("z1", "z2")
    )
    usual = {"negatives": "cross", "symmetric": True, "engine": "auto", "reduction": "mean"} | DEFAULTS.get(name, {})
    for key in expected:
        assert parameters[key].default == usual.get(key), key
    # Type hints agree with the signature.
    assert list(typing.get_type_hints(inspect.unwrap(losses[name]))) == [*parameters, "return"]


@pytest.mark.parametrize("name", FIXED)
def test_settled_arguments_are_unknown(name, views):
    for key in FIXED[name]:
        value = {"negatives": "all", "symmetric": True}.get(key)
        with pytest.raises(TypeError, match=f"`{name}` has no argument `{key}`; "):
            losses[name](*views(N, D), **{key: value})
        with pytest.raises(InputError, match=f"`{key}` is not a known key; .*engine"):
            Loss(name, **{key: value})
        assert not Loss(name).accepts(key)
        assert losses.problems(name, {key: value})


def test_defaults_are_honoured(views):
    z1, z2 = views(N, D)
    queue = views(Q, D, seed=1)[0]
    same = {"temperature": 0.07, "symmetric": False}
    assert torch.equal(moco(z1, z2, queue=queue), infonce(z1, z2, negatives="queue", queue=queue, **same))
    assert torch.equal(moco(z1, z2, queue=queue[:0]), infonce(z1, z2, **same))
    assert torch.equal(
        moco(z1, z2, queue=queue, negatives="cross", symmetric=True),
        infonce(z1, z2, queue=queue, temperature=0.07),
    )
    for held in ({}, {"queue": queue}):
        assert torch.equal(nt_xent(z1, z2, **held), infonce(z1, z2, negatives="all", **held))


def test_a_wrong_call_names_the_loss_and_the_argument(views):
    z1, z2 = views(N, D)
    for call, message in (
        (lambda: infonce(z1, z2, tau=0.1), "`infonce` has no argument `tau`; did you mean temperature?"),
        (lambda: infonce(z1), "`infonce`: missing a required argument: 'z2'."),
        (lambda: infonce(z1, z2, 0.1), "`infonce`: too many positional arguments."),
        (lambda: infonce.terms(explicit(z1, z2, z2), tau=0.1), "`infonce` has no argument `tau`; did you mean temp"),
    ):
        with pytest.raises(InputTypeError, match="^" + re.escape(message)):
            call()


# -- explicit pairs ----------------------------------------------------------------------------------------------------


def negatives_of(z1, z2, queue, negatives):
    """Return the negatives of all anchors of both views, `[2N, M, D]`."""
    result = []
    for own, other in ((z1, z2), (z2, z1)):
        for i in range(len(own)):
            rest = [j for j in range(len(own)) if j != i]
            parts = [other[rest]] if negatives != "queue" or queue is None else []
            parts += [own[rest]] if negatives == "all" else []
            parts += [queue] if queue is not None else []
            result.append(torch.cat(parts))
    return torch.stack(result)


@pytest.mark.parametrize("name", [*NAMES, "tuplet"])
@pytest.mark.parametrize("held", ["nothing", "queue"])
@pytest.mark.parametrize("negatives", ["cross", "all", "queue"])
def test_terms_of_explicit_pairs_are_those_of_the_loss(name, views, negatives, held):
    known = losses.arguments(name)
    queue = views(Q, D, seed=1)[0] if held == "queue" else None
    choice = {"negatives": negatives, "symmetric": True} if "negatives" in known.defaults else {}
    if (not choice and negatives != ("cross" if name == "tuplet" else "all")) or (
        queue is not None and "queue" not in known.tensors
    ):
        pytest.skip("not a choice of this loss")
    leaves = [z.requires_grad_() for z in views(N, D)]
    held = loops.needed(name, leaves[0], **choice) | ({} if queue is None else {"queue": queue})
    terms = losses[name](*leaves, reduction="none", **choice, **held)
    own = {key: value for key, value in held.items() if key == "labels"}
    pairs = explicit(
        torch.cat(leaves),
        torch.cat(leaves[::-1]),
        negatives_of(*leaves, queue, negatives),
        SIMILARITY.get(name, "cosine"),
        normalized=True if name == "contrastive" else None,
    )
    got = losses[name].terms(pairs, **own)
    torch.testing.assert_close(got, terms, rtol=1e-11, atol=1e-12)
    for a, b in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(terms.sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@each_name
def test_explicit_negatives_shared_by_all_are_a_queue(name, views):
    if "queue" not in losses.arguments(name).tensors or "negatives" not in losses.arguments(name).defaults:
        pytest.skip("not a choice of this loss")
    z1, z2 = views(N, D)
    queue = views(Q, D, seed=1)[0]
    terms = losses[name](z1, z2, queue=queue, negatives="queue", symmetric=False, reduction="none")
    kind = SIMILARITY.get(name, "cosine")
    for keys in (queue, queue.expand(N, Q, D)):
        pairs = explicit(z1, z2, keys, kind, normalized=True if name == "contrastive" else None)
        torch.testing.assert_close(losses[name].terms(pairs), terms, rtol=1e-11, atol=1e-12)


# -- weights -----------------------------------------------------------------------------------------------------------


@each_weighted
def test_the_weighted_mean_of_the_terms(name, views):
    z1, z2 = views(N, D)
    weight = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25], dtype=torch.float64)
    terms = losses[name](z1, z2, reduction="none", **others(name, z1))
    assert len(terms) in (N, 2 * N)
    expected = sum(w * t for w, t in zip(weight.tolist() * 2, terms.tolist())) / (  # noqa: B905
        weight.sum().item() * len(terms) / N
    )
    assert losses[name](z1, z2, weight=weight, **others(name, z1)).item() == pytest.approx(expected, rel=1e-12)
    # With `reduction="none"`, terms are not weighted.
    assert torch.equal(losses[name](z1, z2, weight=weight, reduction="none", **others(name, z1)), terms)


@each_weighted
@pytest.mark.parametrize("factor", [1e-6, 0.25, 1e6])
def test_the_scale_of_weights_does_not_matter(name, views, factor):
    weight = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25], dtype=torch.float64)
    found = []
    for each in (weight, factor * weight):
        z1, z2 = (z.requires_grad_() for z in views(N, D))
        value = losses[name](z1, z2, weight=each, **others(name, z1))
        value.backward()
        found.append((value.detach(), z1.grad))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)


@each_weighted
def test_equal_weights_are_none(name, views):
    z1, z2 = views(N, D)
    for weight in (torch.ones(N), torch.full((N,), 0.3), torch.ones(N, dtype=torch.bfloat16)):
        got = losses[name](z1, z2, weight=weight, **others(name, z1))
        assert got.dtype == torch.float64
        assert got.item() == pytest.approx(losses[name](z1, z2, **others(name, z1)).item(), rel=1e-12)


# -- facts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in losses if "reduction" in losses.arguments(name).defaults])
def test_a_loss_whose_graphs_do_not_meet_cannot_repel(name, views):
    """A loss is registered with repels="no" exactly if the terms of half a batch do not depend on the other half."""
    z1, z2 = views(N, D)
    whole = losses[name](z1, z2, reduction="none", **others(name, z1)).view(-1, N)[:, :3]
    half = losses[name](z1[:3], z2[:3], reduction="none", **others(name, z1[:3])).view(-1, 3)
    assert torch.allclose(whole, half, rtol=1e-9) == (losses.facts(name)["repels"] == "no")
    assert losses.facts(name)["method"] in methods


def test_a_misspelt_shared_argument_is_refused_at_once():
    with pytest.raises(InputError, match="unknown shared argument `negatve`; did you mean negatives"):
        pairwise("misspelt", negatve="all")
