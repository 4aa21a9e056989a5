"""Test every registered loss by its entry in `table.py`, and test that the checks reject broken losses.

A check is a function `check_...(loss, ...)` that raises AssertionError. It is called for every registered loss, and for
losses that are broken on purpose. Not all combinations of arguments are tested, but all values of each argument are.
"""

import copy
import inspect
import itertools
import math
import pickle
import re
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

import graphcl.losses
from graphcl.arguments import Interval
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss, explicit, tiled
from graphcl.registry import losses, methods
from tests.conftest import assert_entries
from tests.losses import loops
from tests.losses.loops import needed
from tests.losses.table import TABLE, Entry
from tests.strategies import seeded

NAMES = [name for name in losses if name in TABLE]
PAIRWISE = [name for name in NAMES if hasattr(losses[name], "formula")]
each_name = pytest.mark.parametrize("name", NAMES)
each_pairwise = pytest.mark.parametrize("name", PAIRWISE)


def having(argument, among=NAMES):
    return [name for name in among if argument in inspect.signature(losses[name]).parameters]


def switches(name):
    """Yield each boolean or Literal argument of a loss, except `reduction` and `engine`, with its possible values."""
    hints = get_type_hints(inspect.unwrap(losses[name]))
    for argument in losses.arguments(name).defaults.keys() - {"reduction", "engine"}:
        if get_origin(hints[argument]) is Literal or hints[argument] is bool:
            yield argument, get_args(hints[argument]) or (False, True)


def variants(name):
    """Yield the arguments {} and each other value of each switch."""
    yield {}
    defaults = losses.arguments(name).defaults
    for argument, choices in switches(name):
        yield from ({argument: choice} for choice in choices if choice not in (defaults[argument], "queue"))


def bind(name, **arguments):
    return lambda z1, z2, **others: losses[name](z1, z2, **needed(name, z1, **arguments) | others, **arguments)


def draw(count=6, columns=5, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, count, columns, generator=generator, dtype=torch.float64).to(dtype).unbind()


def run(loss, z1, z2, autocast=None):
    """Return the value and the gradients of both views. Only the forward pass runs inside autocast."""
    z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        value = loss(z1, z2)
    value.backward()
    # The gradient of a detached view is None.
    return value.detach(), *(torch.zeros_like(z) if z.grad is None else z.grad for z in (z1, z2))


# -- the reference -----------------------------------------------------------------------------------------------------


def test_every_loss_has_an_entry():
    assert_entries(losses, TABLE, "TABLE in tests/losses/table.py")
    assert set(NAMES) == set(graphcl.losses.__all__) - {"Loss", "Pairs", "compare", "explicit", "pairwise"}
    assert all(getattr(graphcl.losses, name) is losses[name] for name in NAMES)


def contexts(name):
    """Return all pairs that a loss can compare: choices of negatives, directions, and a queue with or without ids."""
    if "negatives" not in losses.arguments(name).defaults:
        return [{}] if "queue" not in losses.arguments(name).tensors else [{}, {"held": "queue"}, {"held": "ids"}]
    every = itertools.product(loops.NEGATIVES, loops.HELD, (True, False))
    return [{"negatives": n, "held": h, "symmetric": s} for n, h, s in every if (n, h) != ("queue", "nothing")]


def tensors(name, count, columns, held="nothing", **context):
    """Return the arguments of a loss in a context, with a queue, ids and weights of graphs as tensors."""
    full = {"negatives": context.get("negatives", "cross"), "symmetric": True, "held": held}
    found = loops.who(count, columns, **full)
    known = losses.arguments(name).tensors
    labels = {"labels": torch.tensor([3, -1, 3, 0, 2, 0])[:count]} if "labels" in known else {}
    return context | labels | {key: each for key, each in found.items() if key in known}


@each_name
def test_value_and_gradient(views, monkeypatch, name):
    """Compare with loops and central differences, in small tiles; the settings share the contexts."""
    monkeypatch.setattr(tiled, "TILE", 2)
    monkeypatch.setattr(tiled, "ROW_ELEMENTS", 8)
    entry, every = TABLE[name], contexts(name)
    engines = ("dense", "tiled") if name in PAIRWISE else (None,)
    for number, own in enumerate(entry.settings):
        place = 5 * (NAMES.index(name) + number)  # 5 and the number of contexts have no common divisor
        chosen = [every[(place + 5 * step) % len(every)] for step in range(2)] if len(every) > 3 else every
        for context in chosen:
            loops.agree(
                bind(name), entry, *views(3, 2, seed=3), engines=engines, **tensors(name, 3, 2, **context), **own
            )


@each_name
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_values_at_random(name, data):
    """The drawn views contain small integers, fractions, zero rows, equal rows and constant columns."""
    entry = TABLE[name]
    z1, z2 = data.draw(loops.projections())
    if name == "contrastive":  # the distance of equal rows is the square root of a rounding error
        z1, z2 = z1 + [0.1, 0.3, 0.2, 0.5][: z1.shape[1]], z2 - [0.2, 0.1, 0.15, 0.4][: z1.shape[1]]
    own = {key: data.draw(strategy) for key, strategy in entry.random.items()}
    if having("temperature", [name]) and "temperature" not in own:
        own["temperature"] = data.draw(st.floats(0.02, 2.0))
    if having("labels", [name]):
        own["labels"] = data.draw(st.lists(st.integers(-2, 2), min_size=len(z1), max_size=len(z1)))
    position = {}
    if not entry.whole and entry.switches is None:
        position = {"negatives": data.draw(st.sampled_from(["cross", "all"])), "symmetric": data.draw(st.booleans())}
    slow = entry.reference if entry.whole else partial(loops.terms, entry.reference)
    expected = slow(z1.tolist(), z2.tolist(), **(position or entry.switches or {}), **own)
    own |= {"labels": torch.tensor(own["labels"])} if "labels" in own else {}
    own |= {"reduction": "none"} if having("reduction", [name]) else {}
    got = bind(name)(torch.tensor(z1), torch.tensor(z2), **position, **own)
    error = entry.error(**own) if callable(entry.error) else entry.error
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=error)


@pytest.mark.parametrize("name", having("ids", having("negatives")))
def test_an_anchor_without_negatives(views, name):
    """The queue of two graphs holds only keys of the first; and of six graphs, keys of all or of one."""
    lonely = {"ids": torch.tensor([4, 5]), "queue_ids": torch.tensor([4, 4, 4]), "queue": views(3, 3, seed=1)[1]}
    symmetric = losses.arguments(name).defaults["symmetric"]
    for own in TABLE[name].settings[:2]:
        arguments = {"negatives": "queue", "symmetric": symmetric, **lonely, **own}
        loops.agree(losses[name], TABLE[name], *views(2, 3), **arguments)
    for ids, dtype, engine in itertools.product(([0] * 6, [0, 1, 1, 1, 1, 1]), DTYPES, ("dense", "tiled")):
        z1, z2 = draw(dtype=dtype)
        own = {"queue": z1[:1], "ids": torch.tensor(ids), "queue_ids": torch.tensor([0]), "engine": engine}
        check_finite_scalar(partial(losses[name], negatives="queue", **own), z1, z2)


@each_pairwise
def test_terms_of_explicit_pairs(name, views):
    """With the negatives of the loss, shared by all anchors or one set for each, the terms are those of the loss."""
    entry = TABLE[name]
    leaves = [z.requires_grad_() for z in views(6, 3)]
    both = torch.cat(leaves)
    more = {"normalized": True} if name == "contrastive" else {}
    place = {"negatives": "all", "symmetric": True} if "negatives" in losses.arguments(name).defaults else {}
    whose = "cross" if name == "tuplet" else "all"
    rows = loops.compared([(0, i) for i in range(6)], [(1, i) for i in range(6)], negatives=whose)
    keys = torch.tensor([[6 * view + i for view, i in negatives] for _, _, negatives in rows])
    others = needed(name, leaves[0], **place)
    terms = losses[name](*leaves, reduction="none", **place, **others)
    labels = {key: each for key, each in others.items() if key == "labels"}
    pairs = explicit(both, torch.cat(leaves[::-1]), both[keys], entry.similarity, **more)
    got = losses[name].terms(pairs, **labels)
    torch.testing.assert_close(got, terms, rtol=1e-11, atol=1e-12)
    for a, b in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(terms.sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
    if name in having("queue", having("negatives")):
        queue = views(4, 3, seed=1)[0]
        terms = losses[name](*leaves, queue=queue, negatives="queue", symmetric=False, reduction="none")
        for shared in (queue, queue.expand(6, 4, 3)):
            got = losses[name].terms(explicit(*leaves, shared, entry.similarity, **more))
            torch.testing.assert_close(got, terms, rtol=1e-11, atol=1e-12)


# -- properties of all losses ------------------------------------------------------------------------------------------

DTYPES = (torch.float64, torch.float32)


def check_finite_scalar(loss, z1, z2):
    value, *gradients = run(loss, z1, z2)
    assert value.dim() == 0
    assert value.is_floating_point()
    assert torch.isfinite(value), f"value {value}"
    for z, gradient in zip((z1, z2), gradients, strict=True):
        assert gradient.dtype == z.dtype
        assert torch.isfinite(gradient).all(), f"gradient {gradient}"


def check_separates_pairs(loss, steps=10, more=10):
    """Assert that 10 steps on free embeddings separate positives from negatives, and 20 steps rank positives first."""
    off = ~torch.eye(8, dtype=torch.bool)
    views = [z.clone().requires_grad_() for z in draw(8, 8)]
    optimizer = torch.optim.Adam(views, lr=0.1)
    gaps = []
    for step in range(steps + more + 1):
        a, b = (normalize(z.detach()) for z in views)
        cosine = a @ b.T
        gaps.append((cosine.diagonal().mean() - cosine[off].mean()).item())
        if step < steps + more:
            optimizer.zero_grad()
            loss(*views).backward()
            optimizer.step()
    assert gaps[steps] > max(gaps[0], 0) + 0.2, f"mean positive minus mean negative: {gaps}"
    first = (cosine.argmax(dim=1) == torch.arange(8)).float().mean()
    assert first > 0.8, f"only {first:.0%} of the positives rank first"


ROWS = {
    "usual": lambda z1, z2: (z1, z2),
    "large": lambda z1, z2: (6e4 * z1.sign(), 6e4 * z2.sign()),
    "large and equal": lambda z1, z2: (torch.full((6, 5), 6e4), torch.full((6, 5), 6e4)),
    "small": lambda z1, z2: (1e-7 * z1, 1e-7 * z2),
    "mixed": lambda z1, z2: (z1 * torch.tensor([1.5e4, 1.0, 1e-7, 1.0, 100.0, 1e-3])[:, None], z2),
    "zeros": lambda z1, z2: (0 * z1, 0 * z2),
    "a zero view": lambda z1, z2: (z1, 0 * z2),
    "zero rows": lambda z1, z2: (z1.index_fill(0, torch.tensor([0]), 0.0), z2.index_fill(0, torch.tensor([3]), 0.0)),
    "equal": lambda z1, z2: (z1[:1].repeat(6, 1), z1[:1].repeat(6, 1)),
    "same views": lambda z1, z2: (z1, z1.clone()),
    "opposite": lambda z1, z2: (torch.cat([z1[:3], -z1[:3]]), -z1),
}
"""Views of six graphs within the range of float16, about 1e-7 to 6e4."""


def check_near(got, want):
    """Assert that a half-precision result is close to the float32 result.

    Where the gradient overflows the dtype of the rows it must be infinite, so that a gradient scaler detects it.
    """
    assert got[0].dtype == torch.float32
    torch.testing.assert_close(got[0], want[0], rtol=1e-4, atol=1e-5)
    assert bool(got[0].isfinite())
    for half, single in zip(got[1:], want[1:], strict=True):
        rounded, held = single.to(half.dtype), torch.finfo(half.dtype)
        assert torch.equal(half.isinf(), rounded.isinf())
        assert torch.equal(half[half.isinf()], rounded[half.isinf()])
        finite = half.isfinite()
        assert bool((finite | half.isinf()).all())
        error = (half.double() - single.double()).abs()[finite]
        assert bool((error <= (2 * held.eps + 1e-3) * single.abs().max() + 2 * held.smallest_normal).all())


def check_precision(loss, cases=ROWS):
    """Assert that half precision is computed in float32, also inside autocast, that other dtypes are kept and exact."""
    for case in cases:
        for dtype, cast in ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)):
            z1, z2 = (z.to(dtype) for z in ROWS[case](*draw()))
            want = run(loss, z1.float(), z2.float())
            if dtype == torch.bfloat16 and case not in ("usual", "large", "small"):
                continue
            for autocast in (None, cast) if case == "usual" else (None,):
                try:
                    check_near(run(loss, z1, z2, autocast), want)
                except AssertionError as error:
                    raise AssertionError(f"{case}, {dtype}, autocast {autocast}: {error}") from None
    exact, single = run(loss, *draw(dtype=torch.float64)), run(loss, *draw())
    for got, wanted in zip(single, exact, strict=True):
        assert (got.dtype, wanted.dtype) == (torch.float32, torch.float64)
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    # Inside autocast, a lower precision than float32 would give an error of 1e-3.
    torch.testing.assert_close(run(loss, *draw(), torch.bfloat16)[0], single[0], rtol=1e-6, atol=1e-6)


def check_zero_rows(loss):
    for dtype in DTYPES:
        for case in ("zeros", "a zero view", "zero rows"):
            check_finite_scalar(loss, *(z.to(dtype) for z in ROWS[case](*draw())))


def check_inputs_stay(loss):
    z1, z2 = draw()
    before, versions = (z1.clone(), z2.clone()), (z1._version, z2._version)
    loss(z1, z2)
    assert torch.equal(torch.stack([z1, z2]), torch.stack(before))
    assert (z1._version, z2._version) == versions
    assert not z1.requires_grad
    assert not z2.requires_grad


def check_low_temperature(loss):
    """Assert finite results of a loss at temperature 0.005. Logits reach 200, so e^logit overflows float32."""
    z1, z2 = draw()
    for views in ((z1, z2), (z1, z1), (z1, -z1), (z1, z1 + 1e-3 * z2), draw(2, 1), draw(40, 2)):
        check_finite_scalar(loss, *views)


@each_name
def test_separates_pairs(name):
    check_separates_pairs(bind(name))


@each_name
def test_precision(name):
    for own in variants(name):
        check_precision(bind(name, **own), ["usual"] if own else ROWS)


@each_name
def test_extreme_rows(name):
    """Zero rows, two graphs, and rows of almost nothing, whose gradient would overflow or stop Adam from learning."""
    for own in variants(name):
        check_zero_rows(bind(name, **own))
        check_finite_scalar(bind(name, **own), *draw(2))
    check_inputs_stay(bind(name))
    for size in (1e-13, 1e-41):
        found, zero = (draw() for _ in range(2))
        for some, factor in ((found, size), (zero, 0.0)):
            some[0][2] *= factor
            some[1][4] *= factor
        for got, want in zip(run(bind(name), *found), run(bind(name), *zero), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", having("temperature"))
def test_low_temperature(name):
    for own in (own for own in variants(name) if "temperature" not in own):
        check_low_temperature(bind(name, temperature=TABLE[name].low, **own))
    if name != "rince":  # its value overflows
        check_finite_scalar(bind(name, temperature=1e-6), *draw())


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e13, 1e20, 1e30])
@each_name
def test_float32_equals_float64_at_any_scale(name, scale):
    """Unless products overflow, in losses of rows that are not scaled to norm 1."""
    engines = ({"engine": "dense"}, {"engine": "tiled"}) if name in PAIRWISE else ({},)
    for own, engine in itertools.product(variants(name), engines):
        loss = partial(bind(name, **own), **engine)
        views = [z * scale for z in draw()]
        unscaled = TABLE[name].similarity == "dot" or name in ("vicreg", "sigreg") or own == {"normalize": False}
        if unscaled and scale > (1e4 if name == "vicreg" else 1e14):
            continue
        for got, want in zip(run(loss, *views), run(loss, *(z.double() for z in views)), strict=True):
            assert bool(want.isfinite().all())
            # rows below 1e-12 count as zero rows: their cosines are rounding, and mining chooses among ties
            absolute = 1e-6 if want.dim() == 0 else 1e-12 if scale < 1e-12 else 0.0
            assert (got - want).norm() <= 1e-4 * want.norm() + absolute, (own, engine)


def test_documented():
    for name in NAMES:
        text = inspect.getdoc(losses[name])
        for section in ("Args", "Returns", "Raises", "Example", "References"):
            assert re.search(rf"^{section}:$", text, re.MULTILINE), f"{name}: no section {section}"
        assert re.search(r"\$[^$]*=[^$]*\$", text), f"{name}: no equation"
        assert ">>> " in text, f"{name}: no runnable example"
        for argument in inspect.signature(losses[name]).parameters:
            assert re.search(rf"^ +{argument}: ", text, re.MULTILINE), f"{name}: `{argument}` is not documented"


@pytest.mark.parametrize("name", having("reduction"))
def test_reduction_and_weight(name):
    """The value is the mean of the terms, weighted by graph; the scale of weights does not matter."""
    z1, z2 = draw(dtype=torch.float64)
    weight = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.0, 0.25], dtype=torch.float64)
    more = {"labels": torch.tensor([0, 1, 0, 2, 2, 0])} if having("labels", [name]) else {}
    for own in variants(name):
        loss = partial(bind(name, **own), **more)
        terms = loss(z1, z2, reduction="none")
        assert len(terms) in (6, 12)
        torch.testing.assert_close(terms.mean(), loss(z1, z2), rtol=1e-13, atol=1e-13)
    loss = partial(bind(name), **more)
    terms = loss(z1, z2, reduction="none")
    expected = loops.mean(terms.tolist(), weight.tolist())
    for factor in (1, 1e-6, 1e6):
        assert loss(z1, z2, weight=factor * weight).item() == pytest.approx(expected, rel=1e-11)
    assert torch.equal(loss(z1, z2, weight=weight, reduction="none"), terms)
    for equal in (torch.full((6,), 0.3), torch.ones(6, dtype=torch.bfloat16)):
        assert loss(z1, z2, weight=equal).item() == pytest.approx(terms.mean().item(), rel=1e-9)
    # Only negatives make a term depend on other graphs.
    given_ = needed(name, z1[:3]) | {key: each[:3] for key, each in more.items()}
    half = losses[name](z1[:3], z2[:3], reduction="none", **given_)
    alone = terms.view(-1, 6)[:, :3].flatten().allclose(half, rtol=1e-9)
    assert alone == (losses.facts(name)["repels"] == "no")
    assert losses.facts(name)["method"] in methods


# -- the module and the function ---------------------------------------------------------------------------------------


@each_name
def test_the_module_equals_the_function(name):
    z1, z2 = draw()
    defaults = losses.arguments(name).defaults
    assert losses.problems(name, {}) == losses.problems(name, defaults) == []
    for own in (*variants(name), defaults):
        module = Loss(name, **own)
        assert not list(module.parameters())
        expected = bind(name, **own)(z1, z2)
        for each in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert torch.equal(each(z1, z2, **needed(name, z1, **own)), expected)
        assert repr(module) == f"Loss({', '.join([name, *(f'{key}={value!r}' for key, value in own.items())])})"
    changed = next((own for own in variants(name) if own), {})
    own = needed(name, z1, **changed)  # settings of one call override the fixed ones
    assert torch.equal(Loss(name)(z1, z2, **own, **changed), bind(name, **changed)(z1, z2))


LEARNABLE = [name for name in NAMES if losses.arguments(name).learnable]


def learned(name, **own):
    """Return a float64 loss with a learned temperature whose gradient is the derivative of its value."""
    return Loss(name, temperature="learn", **own).double()


@pytest.mark.parametrize("name", LEARNABLE)
def test_the_gradient_of_a_learned_temperature_is_the_derivative(name, monkeypatch):
    """On both engines, for each choice of the arguments; the reference is the function at a shifted temperature."""
    monkeypatch.setattr(tiled, "TILE", 4)
    z1, z2 = draw(dtype=torch.float64)
    settings = ({key: each[key] for key in each.keys() - {"temperature"}} for each in TABLE[name].settings)
    for own in (*variants(name), *settings):
        if losses.problems(name, own | {"temperature": "learn"}):  # RINCE overflows at large q
            continue
        # By definition, all forms of FlatNCE have the gradient of the form `log`.
        valued = own | {"form": "log"} if name == "flatnce" else own
        fixed = valued | {"engine": "dense"}
        start, step = -math.log(losses.arguments(name).defaults["temperature"]), 1e-5
        at = [bind(name, **fixed, temperature=math.exp(-start - shift))(z1, z2).item() for shift in (step, 0, -step)]
        for engine in ("dense", "tiled"):
            module = learned(name, engine=engine, **own)
            value = module(z1, z2, **needed(name, z1, **own))
            value.backward()
            if valued == own:
                assert value.item() == pytest.approx(at[1], rel=1e-6)  # the parameter starts in float32
            assert module.log_scale.grad.item() == pytest.approx((at[0] - at[2]) / (2 * step), rel=1e-5), own


def test_a_learned_temperature():
    """It is the only parameter, stays at 0.01 or above, is shared by `with_settings`, and refused elsewhere."""
    z1, z2 = draw()
    module = Loss("infonce", temperature="learn")
    assert repr(module) == "Loss(infonce, temperature='learn')"
    assert module.setting("temperature").item() == pytest.approx(0.2)
    twin = module.with_settings(symmetric=False)
    assert [*twin.parameters()] == [*module.parameters()] == [module.log_scale]
    assert [*Loss("infonce").with_settings(temperature="learn").parameters()] == [module.log_scale]
    assert module(z1, z2, symmetric=False) == twin(z1, z2)
    assert twin(z1, z2).item() == pytest.approx(losses["infonce"](z1, z2, symmetric=False).item())
    assert module(z1, z2, temperature=0.5) == losses["infonce"](z1, z2, temperature=0.5)
    with pytest.raises(InputError, match=r"^`symmetric` must be true or false, got 3\.$"):
        module(z1, z2, symmetric=3)
    optimizer = torch.optim.SGD(module.parameters(), lr=10.0)  # equal views pull the temperature down
    for _ in range(20):
        optimizer.zero_grad()
        module(z1, z1).backward()
        optimizer.step()
    module(z1, z1)
    assert module.setting("temperature").item() == pytest.approx(0.01, rel=1e-5)
    module(z1, -z1).backward()
    assert module.log_scale.grad > 0  # and it can rise again
    for call in (partial(losses["infonce"], z1, z2), partial(Loss, "alpha_cl")):
        with pytest.raises(InputError, match=r"^`temperature` must be a number, got 'learn'\.$"):
            call(temperature="learn")
    with pytest.raises(InputError, match=r"^`q` must be at most 60 times `temperature`, .* got 0\.7 at 0\.01\.$"):
        Loss("rince", temperature="learn", q=0.7)
    copied = pickle.loads(pickle.dumps(module))
    copied.load_state_dict(module.state_dict())
    assert copied(z1, z2) == module(z1, z2)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "supcon"])
def test_compiled_without_a_graph_break(name):
    """`supcon` finds the classes of a batch, a shape that depends on values."""
    z1, z2 = draw()
    more = needed(name, z1) | ({"weight": torch.rand(6, generator=seeded(0))} if having("weight", [name]) else {})
    more.pop("generator", None)  # torch.compile takes the global one only
    torch._dynamo.reset()
    compiled = torch.compile(Loss(name), backend="eager", fullgraph=True)
    found = []
    for loss in (losses[name], compiled):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found.append(run(partial(loss, **more), z1, z2))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want)


# -- messages: the argument, the rule, the value -----------------------------------------------------------------------


@each_name
def test_every_argument_refuses_a_wrong_type(name):
    choices = dict(switches(name)) | {"engine": ("auto", "dense", "tiled"), "reduction": ("mean", "none")}
    for argument, default in losses.arguments(name).defaults.items():
        for wrong in ([], "nonsense", *([] if default is None else [None])):
            message = f"`{argument}` must be .*, got {re.escape(repr(wrong))}"
            for call in (partial(losses[name], *draw()), partial(Loss, name), partial(Loss(name), *draw())):
                with pytest.raises(InputError, match=message) as caught:
                    call(**{argument: wrong})
                assert "\n" not in str(caught.value)
                assert losses.problems(name, {argument: wrong}) == [str(caught.value)]
                if call.func is losses[name]:
                    assert isinstance(caught.value, InputTypeError) or argument in choices
            if wrong == "nonsense":
                assert all(str(each).lower() in str(caught.value) for each in choices.get(argument, ()))
    with pytest.raises(InputError, match="`nonsense` is not a known key") as caught:
        Loss(name, nonsense=1)
    assert all(argument in str(caught.value) for argument in losses.arguments(name).defaults)
    for call in (losses[name], Loss(name)):
        with pytest.raises(InputTypeError, match=f"^`{name}` has no argument `nonsense`; .*choose from: .*z1, z2"):
            call(*draw(), nonsense=1)


def test_ranges():
    for name in NAMES:
        ranges = TABLE[name].ranges | ({"temperature": "[1e-6, inf)"} if having("temperature", [name]) else {})
        for argument, notation in ranges.items():
            for value in (-math.inf, -1.0, 0.0, 0.5, 1.0, 1.1, math.inf, math.nan):
                found = losses.problems(name, {argument: value})
                if value in Interval(notation):
                    assert found == [], name
                    continue
                message = rf"`{argument}` must be in {re.escape(notation)}, got {value}"
                assert re.match(message, found[0])
                with pytest.raises(InputError, match=message):
                    losses[name](*draw(), **{argument: value})


# -- the checkers notice broken losses ---------------------------------------------------------------------------------


def test_the_checkers_fail_a_broken_loss(views):
    def exponentials(z1, z2):
        e = torch.exp(normalize(z1) @ normalize(z2).T / 0.005)
        return -torch.log(e.diagonal() / e.sum(dim=1)).mean()

    whole = losses["infonce"]
    for check, broken in (
        (check_separates_pairs, lambda z1, z2: whole(z1, z2.roll(1, dims=0))),
        (check_separates_pairs, lambda z1, z2: whole(z1, z2).detach() + 0 * (z1.sum() + z2.sum())),
        (check_precision, lambda z1, z2: whole(z1.bfloat16().float(), z2.bfloat16().float())),
        (check_precision, lambda z1, z2: whole(z1, z2).to(z1.dtype)),
        (check_zero_rows, lambda z1, z2: whole(z1, z2) + (z1 / z1.norm(dim=1, keepdim=True)).sum()),
        (check_inputs_stay, lambda z1, z2: whole(z1.div_(2), z2)),
        (check_low_temperature, exponentials),
    ):
        with pytest.raises(AssertionError):
            check(broken)
    for wrong in (TABLE["dcl"], Entry(TABLE["infonce"].reference, stopped=True)):
        with pytest.raises(AssertionError):
            loops.agree(whole, wrong, *views(3, 2))
