"""Test the decorator `pairwise`: signature, documentation, terms, defaults, weights and facts of a loss."""

import importlib
import inspect
import re
from typing import Annotated, Literal

import pytest
import torch
from torch import Tensor

from graphcl.arguments import Temperature, interval
from graphcl.errors import InputError
from graphcl.losses import Pairs, explicit, infonce, pairwise
from graphcl.registry import Registry

MODULE = importlib.import_module("graphcl.losses.loss")
SHARED = ["negatives", "symmetric", "queue", "ids", "queue_ids", "engine", "weight", "reduction"]
N, Q, D = 6, 4, 3


@pytest.fixture
def registry(monkeypatch):
    """Return a separate registry, so that losses of this file are not registered for other tests."""
    own = Registry("loss", "graphcl.losses.formulas")
    monkeypatch.setattr(MODULE, "losses", own)
    return own


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
    assert registry.summary("gap") == "Compute the gap: mean negative minus positive."
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(loss), re.MULTILINE)
    assert documented == ["z1", "z2", "scale", "form", *SHARED, "InputError"]
    z1, z2 = views(N, D)
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    cosine = a @ b.T
    off = ~torch.eye(N, dtype=torch.bool)
    expected = 2 * ((cosine * off).sum() / off.sum() - cosine.diagonal().mean())
    assert loss(z1, z2).item() == pytest.approx(expected.item(), rel=1e-12)
    assert loss(z1, z2, scale=1.0).item() == pytest.approx(expected.item() / 2, rel=1e-12)
    for wrong in ({"scale": 0.0}, {"form": "c"}, {"symmetric": 1}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}` must be "):
            loss(z1, z2, **wrong)


def test_settled_and_changed_arguments(registry, views):
    """An argument of the formula comes before a shared one of the same name."""
    z1, z2 = views(N, D)
    plain = pairwise("gap")(gap)
    one_sided = pairwise("one-sided", fixed={"symmetric": False}, negatives="all")(gap)
    assert inspect.signature(one_sided).parameters["negatives"].default == "all"
    assert torch.equal(one_sided(z1, z2), plain(z1, z2, symmetric=False, negatives="all"))
    assert torch.equal(one_sided(z1, z2, negatives="cross"), plain(z1, z2, symmetric=False))
    with pytest.raises(TypeError, match="symmetric"):
        one_sided(z1, z2, symmetric=True)
    (problem,) = registry.problems("one-sided", {"symmetric": True})
    assert problem.startswith("`symmetric` is not a known key; ")

    def own(pairs: Pairs, *, weight: Temperature = 3.0) -> Tensor:
        """Own: $L = w$.

        Args:
            weight: a number.

        """
        return weight + 0 * pairs.positive

    loss = pairwise("own")(own)
    assert registry.arguments("own").defaults["weight"] == 3.0
    assert inspect.getdoc(loss).count("weight:") == 1


# -- registered losses -------------------------------------------------------------------------------------------------


def test_a_wrong_call_names_the_loss_and_the_argument(views):
    z1, z2 = views(N, D)
    for call, message in (
        (lambda: infonce(z1, z2, tau=0.1), "`infonce` has no argument `tau`; did you mean temperature?"),
        (lambda: infonce(z1), "`infonce`: missing a required argument: 'z2'."),
        (lambda: infonce(z1, z2, 0.1), "`infonce`: too many positional arguments."),
        (lambda: pairwise("misspelt", negatve="all"), "unknown shared argument `negatve`; did you mean negatives"),
        (lambda: infonce.terms(explicit(z1, z2, z2), tau=0.1), "`infonce` has no argument `tau`; did you mean temp"),
    ):
        with pytest.raises(InputError, match="^" + re.escape(message)):
            call()
