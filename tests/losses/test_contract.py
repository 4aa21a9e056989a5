"""Test the contract of every registered loss, and test that the checks reject broken losses.

A check is a function `check_...(loss, ...)` that raises AssertionError. It is called for every registered loss, with
the defaults and with every other value of each switch, and for losses that are broken on purpose.
"""

import copy
import importlib
import inspect
import math
import pickle
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

import graphcl.losses
from graphcl.arguments import Interval
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss
from graphcl.registry import losses
from tests.losses.loops import needed

NAMES = list(losses)


def switches(name):
    """Yield each boolean or Literal argument of a loss, except `reduction`, with its possible values."""
    hints = get_type_hints(inspect.unwrap(losses[name]))
    for argument in losses.arguments(name).defaults:
        if argument == "reduction":
            continue
        if get_origin(hints[argument]) is Literal:
            yield argument, get_args(hints[argument])
        elif hints[argument] is bool:
            yield argument, (False, True)


def variants():
    """Yield every loss with its defaults, and with each other value of each switch.

    The values `engine=...` and `negatives="queue"` are left to `test_tiled.py`.
    """
    for name in NAMES:
        yield pytest.param(name, {}, id=name)
        defaults = losses.arguments(name).defaults
        for argument, choices in switches(name):
            for choice in choices:
                if choice not in (defaults[argument], "queue") and argument != "engine":
                    yield pytest.param(name, {argument: choice}, id=f"{name}-{argument}={choice}")


def having(argument):
    return [name for name in NAMES if argument in losses.arguments(name).defaults]


def bind(name, arguments):
    return lambda z1, z2, **others: losses[name](z1, z2, **needed(name, z1, **arguments) | others, **arguments)


each_name = pytest.mark.parametrize("name", NAMES)
each_variant = pytest.mark.parametrize(("name", "arguments"), list(variants()))


def draw(count=6, columns=5, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, count, columns, generator=generator, dtype=torch.float64).to(dtype).unbind()


def run(loss, z1, z2, autocast=False):
    """Return the value and the gradients of both views. Only the forward pass runs inside autocast."""
    z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        value = loss(z1, z2)
    value.backward()
    # The gradient of a detached view is None.
    return value.detach(), *(torch.zeros_like(z) if z.grad is None else z.grad for z in (z1, z2))


# -- the checkers ------------------------------------------------------------------------------------------------------


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
        a, b = (torch.nn.functional.normalize(z.detach()) for z in views)
        cosine = a @ b.T
        gaps.append((cosine.diagonal().mean() - cosine[off].mean()).item())
        if step < steps + more:
            optimizer.zero_grad()
            loss(*views).backward()
            optimizer.step()
    assert gaps[steps] > max(gaps[0], 0) + 0.2, f"mean positive minus mean negative: {gaps}"
    first = (cosine.argmax(dim=1) == torch.arange(8)).float().mean()
    assert first > 0.8, f"only {first:.0%} of the positives rank first"


def check_permutation_invariance(loss):
    z1, z2 = draw(dtype=torch.float64)
    expected = run(loss, z1, z2)
    for order in (torch.arange(6).flip(0), torch.tensor([1, 2, 0, 5, 3, 4])):
        got = run(loss, z1[order], z2[order])
        torch.testing.assert_close(got[0], expected[0], rtol=1e-10, atol=1e-12)
        for after, before in zip(got[1:], expected[1:], strict=True):
            torch.testing.assert_close(after, before[order], rtol=1e-10, atol=1e-12)


def check_precision(loss):
    """Assert that half precision is computed in float32, also inside autocast, and that other dtypes are kept."""
    exact = run(loss, *draw(dtype=torch.float64))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        z1, z2 = draw(dtype=dtype)
        wide = torch.promote_types(dtype, torch.float32)
        expected = run(loss, z1.to(wide), z2.to(wide))
        for autocast in (False, True):
            got = run(loss, z1, z2, autocast)
            assert got[0].dtype == wide, f"{dtype} in, {got[0].dtype} out (autocast: {autocast})"
            # A lower precision than float32 would give an error of 1e-3.
            torch.testing.assert_close(got[0], expected[0], rtol=1e-6, atol=1e-6)
            for gradient, wanted in zip(got[1:], expected[1:], strict=True):
                assert gradient.dtype == dtype
                torch.testing.assert_close(gradient, wanted.to(dtype))
    single = run(loss, *draw(dtype=torch.float32))
    for got, wanted in zip(single, exact, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


def check_zero_rows(loss):
    """Assert that zero projections give no NaN and no infinity."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        zero = torch.zeros(6, 5, dtype=dtype)
        z1, z2 = draw(dtype=dtype)
        one1, one2 = z1.clone(), z2.clone()
        one1[0] = 0
        one2[3] = 0
        for views in ((one1, one2), (zero, z2), (z1, zero), (zero, zero)):
            check_finite_scalar(loss, *views)


def check_inputs_stay(loss):
    z1, z2 = draw()
    before = z1.clone(), z2.clone()
    versions = z1._version, z2._version
    loss(z1, z2)
    assert torch.equal(z1, before[0])
    assert torch.equal(z2, before[1])
    assert (z1._version, z2._version) == versions
    assert not z1.requires_grad
    assert not z2.requires_grad


def check_low_temperature(loss):
    """Assert finite results of a loss at temperature 0.005. Logits reach 200, so e^logit overflows float32."""
    z1, z2 = draw()
    near = z1 + 1e-3 * z2
    for views in ((z1, z2), (z1, z1), (z1, -z1), (z1, near), draw(2, 1), draw(40, 2)):
        check_finite_scalar(loss, *views)


def check_anchors_without_negatives(loss):
    """Assert that value and gradient are finite if ids leave some or all anchors without negatives."""
    for own in (torch.zeros(6, dtype=torch.long), torch.tensor([0, 1, 1, 1, 1, 1])):
        for dtype in (torch.float64, torch.float32):
            z1, z2 = draw(dtype=dtype)
            queue = {"queue": z1[:1].clone(), "ids": own, "queue_ids": torch.zeros(1, dtype=torch.long)}
            check_finite_scalar(lambda a, b, queue=queue: loss(a, b, **queue), z1, z2)


def check_documented(function):
    text = inspect.getdoc(function) or ""
    for section in ("Args", "Returns", "Raises", "Example", "References"):
        assert re.search(rf"^{section}:$", text, re.MULTILINE), f"no section {section}"
    assert re.search(r"\$[^$]*=[^$]*\$", text), "no equation"
    assert ">>> " in text, "no runnable example"
    for argument in inspect.signature(function).parameters:
        assert re.search(rf"^ +{argument}: ", text, re.MULTILINE), f"`{argument}` is not documented"


def check_tested(names, folder):
    missing = [name for name in names if not (folder / f"test_{name}.py").is_file()]
    assert not missing, f"no test file of its own: {', '.join(missing)}"


# -- over the registry -------------------------------------------------------------------------------------------------


def test_every_loss_has_a_test_file_of_its_own():
    check_tested(NAMES, Path(__file__).parent)


def test_the_registry_knows_the_public_losses():
    assert set(NAMES) == set(graphcl.losses.__all__) - {"Loss", "Pairs", "compare", "explicit", "pairwise"}
    for name in NAMES:
        assert getattr(graphcl.losses, name) is losses[name]
    assert len(losses) == len(NAMES)


@each_variant
def test_finite_scalar(name, arguments):
    for dtype in (torch.float32, torch.float64):
        for count in (2, 7):
            check_finite_scalar(bind(name, arguments), *draw(count, dtype=dtype))


@each_variant
def test_separates_pairs(name, arguments):
    check_separates_pairs(bind(name, arguments))


@each_variant
def test_permutation_invariance(name, arguments):
    check_permutation_invariance(bind(name, arguments))


@each_variant
def test_precision(name, arguments):
    check_precision(bind(name, arguments))


@each_variant
def test_zero_rows(name, arguments):
    check_zero_rows(bind(name, arguments))


@each_variant
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_anchors_without_negatives(name, arguments, engine):
    if "ids" in losses.arguments(name).tensors:
        options = {"negatives": "queue"} if "negatives" in losses.arguments(name).defaults else {}
        options |= {**arguments, "engine": engine}
        check_anchors_without_negatives(lambda z1, z2, **queue: losses[name](z1, z2, **options, **queue))


@each_variant
def test_inputs_stay(name, arguments):
    check_inputs_stay(bind(name, arguments))


@each_variant
def test_low_temperature(name, arguments):
    if name in having("temperature"):
        # RINCE grows with e^(q / temperature) and rejects temperatures that would overflow float32.
        lowest = 0.02 if name == "rince" else 0.005
        check_low_temperature(bind(name, {"temperature": lowest, **arguments}))


@each_name
def test_documented(name):
    check_documented(losses[name])
    assert losses.summary(name)


@each_name
def test_defaults_are_accepted_and_are_the_defaults(name):
    z1, z2 = draw()
    defaults = losses.arguments(name).defaults
    assert losses.problems(name, {}) == []
    assert losses.problems(name, defaults) == []
    loss = bind(name, {})
    assert torch.equal(bind(name, defaults)(z1, z2), loss(z1, z2))


@each_variant
def test_the_module_equals_the_function(name, arguments):
    z1, z2 = draw()
    module = Loss(name, **arguments)
    assert isinstance(module, torch.nn.Module)
    assert not list(module.parameters())
    assert torch.equal(module(z1, z2, **needed(name, z1, **arguments)), bind(name, arguments)(z1, z2))
    text = repr(module)
    assert text.startswith(f"Loss({name}")
    for argument, value in arguments.items():
        assert f"{argument}={value!r}" in text


@each_name
def test_the_module_can_be_copied_and_pickled(name):
    z1, z2 = draw()
    module = Loss(name)
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(again(z1, z2, **needed(name, z1)), module(z1, z2, **needed(name, z1)))


@pytest.mark.parametrize("name", having("reduction"))
def test_the_scalar_is_the_mean_of_the_terms(name):
    z1, z2 = draw(dtype=torch.float64)
    for arguments in ({argument: choice} for argument, choices in switches(name) for choice in choices):
        terms = bind(name, {"reduction": "none", **arguments})(z1, z2)
        assert terms.dim() == 1
        torch.testing.assert_close(terms.mean(), bind(name, arguments)(z1, z2), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", having("symmetric"))
def test_a_symmetric_loss_is_unchanged_by_swapping_the_views(name):
    z1, z2 = draw(dtype=torch.float64)
    for arguments in ({argument: choice} for argument, choices in switches(name) for choice in choices):
        loss = bind(name, {**arguments, "symmetric": True})
        torch.testing.assert_close(loss(z1, z2), loss(z2, z1), rtol=1e-12, atol=1e-12)


# -- messages: the argument, the rule, the value -----------------------------------------------------------------------


@each_name
def test_every_argument_refuses_a_wrong_type(name):
    z1, z2 = draw()
    choices = dict(switches(name))
    for argument in losses.arguments(name).defaults:
        optional = losses.arguments(name).defaults[argument] is None
        for wrong in ([], "nonsense", *([] if optional else [None])):
            with pytest.raises(InputError, match=f"`{argument}` must be .*, got {re.escape(repr(wrong))}") as caught:
                losses[name](z1, z2, **{argument: wrong})
            assert "\n" not in str(caught.value)
            if argument not in (*choices, "reduction"):
                assert isinstance(caught.value, InputTypeError)
            (problem,) = losses.problems(name, {argument: wrong})
            assert problem == str(caught.value)
            with pytest.raises(InputError, match=f"`{argument}` must be"):
                Loss(name, **{argument: wrong})
    for argument, legal in choices.items():
        with pytest.raises(InputError) as caught:
            losses[name](z1, z2, **{argument: "nonsense"})
        assert all(str(choice).lower() in str(caught.value) for choice in legal)


@each_name
def test_ranges(name):
    """The function, the module and the registry reject values outside the test file's `RANGES`."""
    ranges = getattr(importlib.import_module(f"tests.losses.test_{name}"), "RANGES", {})
    ranges |= {"temperature": "[1e-6, inf)"} if name in having("temperature") else {}
    for argument, notation in ranges.items():
        for value in (-math.inf, -1.0, -0.1, 0.0, 0.5, 1.0, 1.1, math.inf, math.nan):
            if value in Interval(notation):
                assert losses.problems(name, {argument: value}) == []
                continue
            message = rf"`{argument}` must be in {re.escape(notation)}.*, got {value}"
            for call in (losses[name], Loss):
                with pytest.raises(InputError, match=message):
                    call(*(draw() if call is losses[name] else [name]), **{argument: value})
            (problem,) = losses.problems(name, {argument: value})
            assert re.match(message, problem)


@each_name
def test_an_unknown_argument_lists_the_valid_ones(name):
    with pytest.raises(InputError, match="`nonsense` is not a known key") as caught:
        Loss(name, nonsense=1)
    for argument in losses.arguments(name).defaults:
        assert argument in str(caught.value)
    assert losses.problems(name, {"nonsense": 1}) == [str(caught.value)]
    with pytest.raises(InputTypeError, match=f"^`{name}` has no argument `nonsense`; .*choose from: .*z1, z2"):
        losses[name](*draw(), nonsense=1)


# -- the checkers notice broken losses ---------------------------------------------------------------------------------


def healthy(z1, z2, temperature=0.2):
    """Return InfoNCE. The broken losses below are variants of this function."""
    wide = torch.promote_types(z1.dtype, torch.float32)
    with torch.autocast("cpu", enabled=False):
        a, b = (torch.nn.functional.normalize(z.to(wide)) for z in (z1, z2))
        logits = a @ b.T / temperature
        return torch.nn.functional.cross_entropy(logits, torch.arange(len(z1)))


def positives_as_negatives(z1, z2):
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    logits = a @ b.T / 0.2
    return (logits.logsumexp(dim=1) + logits.diagonal()).mean()


def neighbours_as_positives(z1, z2):
    return healthy(z1, z2.roll(1, dims=0))


def without_gradient(z1, z2):
    return healthy(z1, z2).detach() + 0 * (z1.sum() + z2.sum())


def only_attraction(z1, z2):
    """Attract all rows, which collapses them to one point."""
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    return -(a @ b.T).mean() * 100


def first_graph_weighs_double(z1, z2):
    return healthy(z1, z2) + healthy(z1[:2], z2[:2])


def bfloat16_inside(z1, z2):
    return healthy(z1.bfloat16().float(), z2.bfloat16().float())


def half_precision_out(z1, z2):
    return healthy(z1, z2).to(z1.dtype)


def unguarded_norm(z1, z2):
    return healthy(z1 / z1.norm(dim=1, keepdim=True), z2)


def normalizes_in_place(z1, z2):
    if not z1.requires_grad:
        z1 /= z1.norm(dim=1, keepdim=True)
    return healthy(z1, z2)


def exponentials_written_out(z1, z2, temperature=0.005):
    a, b = (torch.nn.functional.normalize(z) for z in (z1, z2))
    e = torch.exp(a @ b.T / temperature)
    return -torch.log(e.diagonal() / e.sum(dim=1)).mean()


def half_documented(z1, z2):
    """Return zero, with undocumented arguments: $L = 0$.

    Returns:
        Zero.

    Example:
        >>> 1
        1

    References:
        None.
    """


CHECKERS = [
    check_separates_pairs,
    check_permutation_invariance,
    check_precision,
    check_zero_rows,
    check_inputs_stay,
    lambda loss: check_low_temperature(lambda z1, z2: loss(z1, z2, 0.005)),
]


@pytest.mark.parametrize("check", CHECKERS, ids=lambda check: check.__name__)
def test_the_checkers_pass_a_healthy_loss(check):
    check(healthy)


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (check_separates_pairs, positives_as_negatives),
        (check_separates_pairs, neighbours_as_positives),
        (check_separates_pairs, without_gradient),
        (check_separates_pairs, only_attraction),
        (check_permutation_invariance, neighbours_as_positives),
        (check_permutation_invariance, first_graph_weighs_double),
        (check_precision, bfloat16_inside),
        (check_precision, half_precision_out),
        (check_precision, exponentials_written_out),
        (check_zero_rows, unguarded_norm),
        (check_inputs_stay, normalizes_in_place),
        (check_low_temperature, exponentials_written_out),
        (check_documented, healthy),
        (check_documented, half_documented),
    ],
)
def test_the_checkers_fail_a_broken_loss(check, broken):
    with pytest.raises(AssertionError):
        check(broken)


def test_a_loss_without_a_test_file_is_noticed(tmp_path):
    (tmp_path / "test_known.py").touch()
    check_tested(["known"], tmp_path)
    with pytest.raises(AssertionError, match="forgotten"):
        check_tested(["known", "forgotten"], tmp_path)
