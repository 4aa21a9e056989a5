"""Test invalid input: every registered loss raises a one-line error that names the argument, the rule and the value."""

import re

import pytest
import torch

from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss, compare, explicit
from graphcl.losses.engine.checks import (
    NonFiniteInputError,
    check_ids,
    check_labels,
    check_queue,
    check_rows,
    check_views,
    check_weight,
)
from graphcl.registry import losses

N, Q, D = 6, 7, 5
NAMES = list(losses)


def having(argument):
    return pytest.mark.parametrize("name", [name for name in NAMES if argument in losses.arguments(name).tensors])


each_name = pytest.mark.parametrize("name", NAMES)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def good(name):
    """Return valid arguments of a loss, with a queue and ids if the loss takes them."""
    some = {
        "z1": draw(N, D),
        "z2": draw(N, D, seed=1),
        "queue": draw(Q, D, seed=2),
        "ids": torch.arange(N),
        "queue_ids": torch.arange(Q) % 3,
        "weight": torch.ones(N),
        "labels": torch.arange(N) % 2,
    }
    return {key: value for key, value in some.items() if key in losses.arguments(name).tensors}


def refused(name, changes, message, kind=InputError):
    """Assert that the loss function and its module, with each engine, raise an error that matches `message` in full."""
    arguments = {**good(name), **changes}
    for left_out in [key for key, value in changes.items() if value is None]:
        del arguments[left_out]
    engines = [{"engine": engine} for engine in ("dense", "tiled")] if accepts(name, "engine") else [{}]
    for engine in engines:
        for call in (losses[name], Loss(name)):
            with pytest.raises(kind, match="^" + message + "$") as caught:
                call(**arguments, **engine)
            line = str(caught.value)
            assert "\n" not in line
            assert isinstance(caught.value, InputError)
            assert isinstance(caught.value, TypeError) == (kind is InputTypeError), type(caught.value)


def accepts(name, argument):
    return argument in losses.arguments(name).defaults


def literal(shape):
    return re.escape(str(list(shape)))


def spoiled(z, row, value, column=2):
    z = z.clone()
    z[row, column] = value
    return z


# -- the views ---------------------------------------------------------------------------------------------------------


@each_name
@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [((6, 5), (4, 5)), ((6, 5), (6, 4)), ((6,), (6,)), ((6, 5, 1), (6, 5, 1)), ((), ()), ((6, 5), (6,))],
)
def test_shapes(name, shape1, shape2):
    message = rf"`z1` and `z2` must both be \[N, D\], got {literal(shape1)} and {literal(shape2)}\."
    refused(name, {"z1": torch.zeros(shape1), "z2": torch.zeros(shape2)}, message)


@each_name
@pytest.mark.parametrize("count", [0, 1])
def test_too_few_graphs(name, count):
    refused(name, {"z1": torch.ones(count, D), "z2": torch.ones(count, D)}, f".* at least 2 .* got {count} .*`z1`.*")


@each_name
@pytest.mark.parametrize(
    ("value", "dtype"), [("nan", torch.float32), ("inf", torch.float64), ("-inf", torch.bfloat16)], ids=str
)
def test_numbers_that_are_not_finite(name, value, dtype):
    value, views = float(value), {key: good(name)[key].to(dtype) for key in ("z1", "z2")}
    for key in views:
        for row in (0, 3, N - 1):
            refused(name, views | {key: spoiled(views[key], row, value)}, rf"`{key}` is not finite in row {row}\.")
    # The message names the first row of the first view.
    twice = spoiled(spoiled(views["z2"], 5, value, 0), 3, value, 4)
    refused(name, views | {"z2": twice}, r"`z2` is not finite in row 3\.", NonFiniteInputError)
    both = {"z1": spoiled(views["z1"], 4, value), "z2": spoiled(views["z2"], 1, value)}
    refused(name, both, r"`z1` is not finite in row 4\.", NonFiniteInputError)


@each_name
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_views_of_other_types(name, dtype):
    for key in ("z1", "z2"):
        wrong = {key: torch.ones(N, D).to(dtype)}
        refused(name, wrong, rf"`{key}` must be a floating-point tensor, got {dtype}\.", InputTypeError)
    both = {"z1": torch.ones(N, D).to(dtype), "z2": torch.ones(N, D).to(dtype)}
    refused(name, both, rf"`z1` must be a floating-point tensor, got {dtype}\.", InputTypeError)


@each_name
@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], 1.0, "z"], ids=type)
def test_views_that_are_no_tensors(name, wrong):
    for key in ("z1", "z2"):
        message = rf"`{key}` must be a floating-point tensor, got {type(wrong).__name__}\."
        refused(name, {key: wrong}, message, InputTypeError)


@each_name
def test_views_of_two_dtypes(name):
    message = r"`z1` and `z2` must have one dtype, got torch\.float32 and torch\.float64\."
    refused(name, {"z2": torch.ones(N, D).double()}, message, InputTypeError)


# -- the queue ---------------------------------------------------------------------------------------------------------


@having("queue")
@pytest.mark.parametrize("shape", [(Q, 4), (Q, 6), (D,), (Q, D, 1), (0, 4), (1,)])
def test_queues_of_another_width(name, shape):
    refused(name, {"queue": torch.ones(shape)}, rf"`queue` must be \[Q, {D}\], .*got {literal(shape)}\.")


@having("queue")
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_queues_of_other_types(name, dtype):
    message = rf"`queue` must be a floating-point tensor, got {dtype}\."
    refused(name, {"queue": torch.ones(Q, D).to(dtype)}, message, InputTypeError)
    refused(name, {"queue": [[1.0] * D]}, r"`queue` must be a floating-point tensor, got list\.", InputTypeError)


@having("queue")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_queues_that_are_not_finite(name, value):
    refused(name, {"queue": spoiled(torch.ones(Q, D), 4, value)}, r"`queue` is not finite in row 4\.")


@having("queue")
def test_a_queue_without_rows_is_none_and_zero_rows_are_fine(name):
    arguments = {key: value for key, value in good(name).items() if key in ("z1", "z2", "labels")}
    cross = {"negatives": "cross"} if accepts(name, "negatives") else {}
    assert torch.equal(losses[name](**arguments, queue=torch.ones(0, D)), losses[name](**arguments, **cross))
    queue = torch.zeros(Q, D, requires_grad=True)
    value = losses[name](**arguments, queue=queue)
    value.backward() if value.requires_grad else None
    assert torch.isfinite(value)
    assert torch.isfinite(queue.grad).all()


@having("queue")
def test_a_queue_of_another_precision_is_taken(name):
    """The result has the precision of the views."""
    arguments = good(name)
    value = losses[name](**arguments | {"queue": arguments["queue"].double()})
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(losses[name](**arguments).item(), rel=1e-6)


# -- ids ---------------------------------------------------------------------------------------------------------------


@having("ids")
@pytest.mark.parametrize("missing", ["ids", "queue_ids"])
def test_ids_of_one_side_only(name, missing):
    refused(name, {missing: None}, ".*`ids`.*`queue_ids`.*")
    refused(name, {missing: None, "queue": None}, ".*`ids`.*`queue_ids`.*")


@having("ids")
def test_ids_without_a_queue(name):
    refused(name, {"queue": None}, ".*`ids`.*`queue_ids`.*`queue`.*")


@having("ids")
@pytest.mark.parametrize(("key", "length"), [("ids", N), ("queue_ids", Q)])
def test_ids_of_another_length(name, key, length):
    for shape in ((length - 1,), (length + 1,), (0,), (length, 1), ()):
        wrong = {key: torch.zeros(shape, dtype=torch.long)}
        refused(name, wrong, rf"`{key}` must be \[{length}\], .*got {literal(shape)}\.")


@having("ids")
@pytest.mark.parametrize(("key", "length"), [("ids", N), ("queue_ids", Q)])
def test_ids_that_are_no_whole_numbers(name, key, length):
    for dtype in (torch.float32, torch.float64, torch.complex64):
        message = rf"`{key}` must be an integer tensor, got {dtype}\."
        refused(name, {key: torch.zeros(length, dtype=dtype)}, message, InputTypeError)
    refused(name, {key: [0] * length}, rf"`{key}` must be an integer tensor, got list\.", InputTypeError)


@having("ids")
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_ids_of_any_whole_type(name, dtype):
    arguments = good(name)
    expected = losses[name](**arguments)
    assert torch.equal(losses[name](**arguments | {"ids": arguments["ids"].to(dtype)}), expected)
    fewer = {key: arguments[key].to(dtype) for key in ("ids", "queue_ids")}
    assert torch.equal(losses[name](**arguments | fewer), expected)


# -- weights and labels ------------------------------------------------------------------------------------------------


@having("weight")
@pytest.mark.parametrize("shape", [(N - 1,), (N + 1,), (2 * N,), (N, 1), (1,), ()])
def test_weights_of_another_length(name, shape):
    refused(name, {"weight": torch.ones(shape)}, rf"`weight` must be \[{N}\], .*got {literal(shape)}\.")


@having("weight")
@pytest.mark.parametrize("least", [-1.0, -0.125])
def test_negative_weights(name, least):
    weight = torch.ones(N)
    weight[2] = least
    refused(name, {"weight": weight}, rf"`weight` must be >= 0 .*got .*{least}\.")


@having("weight")
def test_weights_that_are_all_zero(name):
    refused(name, {"weight": torch.zeros(N)}, r"`weight` must be >= 0 and not all zero, got .*0\.0\.")


@having("weight")
def test_weights_that_are_no_numbers(name):
    refused(name, {"weight": torch.tensor([1.0, 1, float("nan"), 1, 1, 1])}, r"`weight` is not finite in row 2\.")
    refused(name, {"weight": [1.0] * N}, r"`weight` must be a floating-point tensor, got list\.", InputTypeError)
    message = r"`weight` must be a floating-point tensor, got torch\.int64\."
    refused(name, {"weight": torch.ones(N, dtype=torch.long)}, message, InputTypeError)


@having("weight")
def test_weights_are_looked_at_without_a_mean_too(name):
    refused_, arguments = torch.zeros(N), good(name)
    with pytest.raises(InputError, match="`weight`"):
        losses[name](**arguments | {"weight": refused_}, reduction="none")


@having("labels")
def test_labels(name):
    refused(name, {"labels": None}, ".*`labels`.*")
    for shape in ((N - 1,), (N, 1), (2 * N,), ()):
        wrong = {"labels": torch.zeros(shape, dtype=torch.long)}
        refused(name, wrong, rf"`labels` must be \[{N}\], .*got {literal(shape)}\.")
    for dtype in (torch.float32, torch.complex64):
        message = rf"`labels` must be an integer tensor, got {dtype}\."
        refused(name, {"labels": torch.zeros(N, dtype=dtype)}, message, InputTypeError)
    refused(name, {"labels": [0] * N}, r"`labels` must be an integer tensor, got list\.", InputTypeError)


# -- the checks themselves ---------------------------------------------------------------------------------------------


def test_what_is_good_passes():
    z = torch.zeros(N, D)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        check_rows("z", z.to(dtype))
        check_views(z.to(dtype), z.to(dtype))
    check_queue(torch.zeros(0, D), D)
    check_ids(None, None, N, None)
    check_ids(torch.arange(N), torch.arange(0), N, torch.zeros(0, D))
    check_labels("labels", torch.arange(N), N)
    check_weight(torch.tensor([0.0, 1e-30]), 2)


def test_a_scalar_that_is_not_finite():
    with pytest.raises(NonFiniteInputError, match=r"`x` is not finite in row 0\."):
        check_rows("x", torch.tensor(float("nan")))


def test_large_numbers_are_finite():
    """Finite entries pass the check even if their sum overflows."""
    check_rows("x", torch.full((N, D), 3e38))
    check_rows("x", torch.full((N, D), 65504.0).half())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        *((name, 1e20, r" for its squares in torch\.float32, got .* 1e\+20") for name in ("n_pair", "jsd", "vicreg")),
        *(("vicreg", size, r": its statistics overflow in torch\.float32; scale it down") for size in (1e12, 1e18)),
        ("barlow_twins", 2e38, r": its statistics overflow in torch\.float32; scale it down"),
    ],
)
def test_rows_that_are_too_large_are_refused(name, size, message):
    z = size * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-0.5, -1.0]])
    with pytest.raises(InputError, match=rf"^`z1` is too large{message}\.$"):
        losses[name](z.requires_grad_(), z.clone())


def test_a_queue_is_needed_where_only_its_rows_are_negatives():
    z = torch.eye(3)
    for name, own in (("moco", {}), ("instance_nce", {}), ("infonce", {"negatives": "queue"})):
        with pytest.raises(InputError, match=r"^`negatives` is 'queue', but `queue` is missing: pass `queue`, or "):
            losses[name](z, z, **own)


def test_numbers_must_be_plain():
    """Reject a tensor as a number: its gradient would be lost."""
    z = torch.eye(3)
    with pytest.raises(InputTypeError, match=r"^`temperature` must be a plain value, got a tensor\.$"):
        losses["infonce"](z, z, temperature=torch.tensor(0.2, requires_grad=True))


def test_rows_without_columns_are_refused():
    with pytest.raises(InputError, match=r"^`z1` and `z2` must have at least one column, got \[3, 0\]\.$"):
        losses["infonce"](torch.ones(3, 0), torch.ones(3, 0))


def test_terms_are_checked_like_the_loss():
    z = torch.eye(3)
    with pytest.raises(
        InputError, match=r"^contrastive\.terms requires pairs of similarity 'squared_dist.*', got 'cos"
    ):
        losses["contrastive"].terms(explicit(z, z, z))
    with pytest.raises(InputError, match=r"^`temperature` must be in \[1e-6, inf\), got -1\.0\.$"):
        losses["infonce"].terms(explicit(z, z, z), temperature=-1.0)
    with pytest.raises(InputError, match=r"^`engine` must be 'auto', 'dense' or 'tiled', got 'densee'\.$"):
        compare(z, z, engine="densee")
    with pytest.raises(InputError, match=r"^`negatives` must have at least one row"):
        explicit(z, z, z[:0])
    with pytest.raises(InputTypeError, match=r"must have one dtype"):
        explicit(z, z, z.double())
