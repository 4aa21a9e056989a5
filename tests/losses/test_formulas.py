"""Compare every loss with the reference that its test file defines.

A test file `test_NAME.py` takes part by defining some of these names:

- `batch`: slow reference, see `loops`;
- `SETTINGS`: arguments to test, `{}` for the defaults;
- `RANDOM`: hypothesis strategies for random arguments;
- `tolerance`: absolute error allowed for random arguments;
- `SMOOTH`: arguments for gradcheck, far from any kink;
- `FLOAT32`: arguments to test in float32 at temperature 0.01;
- `EXPLICIT`: whether to test explicit pairs;
- `SIMILARITY`: similarity of the explicit pairs;
- `STOPPED`: whether the loss detaches the second view.
"""

import importlib
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from graphcl.registry import losses
from tests.losses import loops

FOUND = {name: importlib.import_module(f"tests.losses.test_{name}") for name in losses}
MODULES = {name: module for name, module in FOUND.items() if hasattr(module, "batch")}
PAIRWISE = [name for name in MODULES if hasattr(losses[name], "terms")]
FIXED = {
    "nt_xent": {"negatives": "all", "symmetric": True},
    "byol": {"symmetric": False},
    "simsiam": {"symmetric": False},
}
POSITIONS = {
    "nothing": [("cross", True), ("all", False)],
    "queue": [("all", True), ("queue", False)],
    "ids": [("cross", False), ("queue", True)],
}


def each(attribute, names=MODULES):
    """Parametrise a test over losses and the entries of `attribute` in their test files; `{}` if it is missing."""
    cases = [(name, own) for name in names for own in getattr(FOUND[name], attribute, [{}])]
    return pytest.mark.parametrize(("name", "own"), cases, ids=[f"{name}-{own}" for name, own in cases])


def shared(name, negatives, symmetric):
    """Return the two switches as arguments of the loss; None if the loss does not allow these values."""
    if name in FIXED:
        own = FIXED[name]
        return {} if (own.get("negatives", "cross"), own["symmetric"]) == (negatives, symmetric) else None
    return {"negatives": negatives, "symmetric": symmetric}


def usual(name):
    """Return the loss's default values of the two switches."""
    defaults = losses.arguments(name).defaults
    return FIXED.get(name) or {key: defaults[key] for key in ("negatives", "symmetric")}


@pytest.mark.parametrize("name", MODULES)
def test_defaults(name, views):
    z1, z2 = views(5, 3)
    expected = loops.mean(loops.terms(MODULES[name].batch, z1.tolist(), z2.tolist(), **usual(name)))
    assert losses[name](z1, z2, **loops.needed(name, z1)).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_values_at_random(name, data):
    """The drawn views contain small integers, fractions, zero rows and equal rows."""
    module = MODULES[name]
    z1, z2 = data.draw(loops.projections())
    own = {key: data.draw(strategy) for key, strategy in getattr(module, "RANDOM", {}).items()}
    if "temperature" in losses.arguments(name).defaults and "temperature" not in own:
        own["temperature"] = data.draw(st.floats(0.02, 2.0))
    position = {} if name in FIXED else {"negatives": data.draw(st.sampled_from(["cross", "all"]))}
    position |= {} if name in FIXED else {"symmetric": data.draw(st.booleans())}
    expected = loops.terms(module.batch, z1.tolist(), z2.tolist(), **(position or FIXED[name]), **own)
    got = losses[name](torch.tensor(z1), torch.tensor(z2), reduction="none", **position, **own)
    tolerance = getattr(module, "tolerance", 1e-11)
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=tolerance(**own) if callable(tolerance) else tolerance)


@each("SETTINGS")
@pytest.mark.parametrize("held", loops.HELD)
def test_value_and_gradient(views, name, own, held):
    """Test all switches without a queue, with a queue, and with a queue and ids. Some cases have weights."""
    loss, module = losses[name], MODULES[name]
    if name not in PAIRWISE and held != "nothing":
        return
    only = FIXED.get(name)
    for negatives, symmetric in POSITIONS[held] if only is None else [(only.get("negatives"), only["symmetric"])]:
        arguments = loops.who(3, 2, negatives or "cross", held, symmetric)
        position = {key: arguments.pop(key) for key in ("negatives", "symmetric")} if only is None else {}
        arguments = {key: value for key, value in arguments.items() if key not in ("negatives", "symmetric")}
        how = {"fixed": FIXED.get(name), "stopped": getattr(module, "STOPPED", False)}
        if name not in PAIRWISE:
            how["engines"] = (None,)
        loops.agree(loss, module.batch, *views(3, 2, seed=3), **how, **position, **arguments, **own)


@each("SETTINGS", [name for name in PAIRWISE if name not in FIXED])
def test_an_anchor_without_negatives(views, name, own):
    loops.agree(losses[name], MODULES[name].batch, *views(2, 3), **usual(name) | loops.lonely(3), **own)


@each("SETTINGS", PAIRWISE)
def test_explicit_pairs(name, own):
    module = MODULES[name]
    if getattr(module, "EXPLICIT", True):
        loops.agree_explicitly(losses[name], module.batch, getattr(module, "SIMILARITY", "cosine"), **own)


@each("SMOOTH", [name for name in FOUND if hasattr(FOUND[name], "SMOOTH")])
def test_gradcheck(views, name, own):
    z1, z2 = (z.requires_grad_() for z in views(3, 2))
    if not hasattr(losses[name], "terms"):
        assert gradcheck(lambda a: losses[name](a, z2.detach(), reduction="none", **own), (z1,))
        return
    for engine, negatives, symmetric in (("dense", "all", True), ("tiled", "cross", False)):
        if (position := shared(name, negatives, symmetric)) is not None:
            loss = partial(losses[name], engine=engine, reduction="none", **position, **own)
            assert gradcheck(loss, (z1, z2))


@each("FLOAT32", [name for name in MODULES if hasattr(MODULES[name], "FLOAT32")])
def test_float32_at_a_low_temperature(views, name, own):
    loops.agree_in_float32(losses[name], MODULES[name].batch, views, **own)


@pytest.mark.parametrize("name", [name for name in MODULES if getattr(MODULES[name], "STOPPED", False)])
def test_the_target_has_no_gradient(views, name):
    """The target gets no gradient, even if it is computed from the prediction."""
    loss = losses[name]
    z1, z2 = (z.requires_grad_() for z in views(4, 3))
    loss(z1, z2).backward()
    assert z2.grad is None or not z2.grad.any()
    assert z1.grad.abs().max() > 1e-3
    turned = z1.flip(0) * torch.tensor([1.0, -2.0, 0.5])
    expected, got, both = (
        torch.autograd.grad(value, z1)[0]
        for value in (loss(z1, turned.detach()), loss(z1, turned), loss(z1, z2) + loss(z2, z1))
    )
    assert torch.equal(got, expected)
    torch.testing.assert_close(both, z1.grad, rtol=0, atol=0)


def test_most_losses_take_part():
    assert len(MODULES) >= 18
