"""Test invalid input: every registered loss raises a one-line error that names the argument, the rule and the value."""

import re

import pytest
import torch

from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss, compare, explicit
from graphcl.losses.rows import NonFiniteInputError
from graphcl.registry import losses
from tests.strategies import seeded

N, Q, D = 6, 7, 5
NAN, INF = float("nan"), float("inf")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


GOOD = {
    "z1": draw(N, D),
    "z2": draw(N, D, seed=1),
    "queue": draw(Q, D, seed=2),
    "ids": torch.arange(N),
    "queue_ids": torch.arange(Q) % 3,
    "weight": torch.ones(N),
    "labels": torch.arange(N) % 2,
}


def having(*arguments):
    """Return the losses that take all tensors `arguments`."""
    return [name for name in losses if {*arguments} <= set(losses.arguments(name).tensors)]


def good(name):
    """Return valid arguments of a loss, with a queue and ids if the loss takes them, and a new generator."""
    known = losses.arguments(name).tensors
    drawn = {"generator": seeded(0)} if "generator" in known else {}
    return drawn | {key: value for key, value in GOOD.items() if key in known}


def accepts(name, argument):
    return argument in losses.arguments(name).defaults


def refused(changes, message, kind=InputError):
    """Assert that all losses that take `changes`, and their modules, raise an error that matches `message` in full."""
    for name in having(*changes):
        arguments = {key: value for key, value in {**good(name), **changes}.items() if value is not None}
        engine = {"engine": "tiled"} if accepts(name, "engine") else {}
        for call, own in ((losses[name], engine), (Loss(name), {})):
            error = None
            try:
                call(**arguments, **own)
            except InputError as caught:
                error = caught
            assert isinstance(error, kind), f"{name}: {message}: {error!r}"
            assert isinstance(error, TypeError) == (kind is InputTypeError), f"{name}: {error!r}"
            assert re.fullmatch(message, str(error)), f"{name}: {error}"


def spoiled(z, row, value, column=2):
    z = z.clone()
    z[row, column] = value
    return z


def long(shape):
    return torch.zeros(shape, dtype=torch.long)


LENGTHS = {"ids": N, "queue_ids": Q, "weight": N, "labels": N}
BOTH, NOT_BOTH = r"`z1` and `z2` must both be \[N, D\], got {} and {}\.", ".*`ids`.*`queue_ids`.*"
VALUES = [
    *(({"z1": torch.zeros(one), "z2": torch.zeros(two)}, BOTH.format(*(re.escape(str([*s])) for s in (one, two))))
      for one, two in [((6, 5), (4, 5)), ((6, 5), (6, 4)), ((6,), (6,)), ((6, 5, 1), (6, 5, 1)), ((), ())]),
    *(({"z1": torch.ones(n, D), "z2": torch.ones(n, D)}, f".* at least 2 .* got {n} .*`z1`.*") for n in (0, 1)),
    *(({"queue": torch.ones(shape)}, rf"`queue` must be \[Q, {D}\], .*got {re.escape(str([*shape]))}\.")
      for shape in [(Q, 4), (D,), (Q, D, 1), (0, 4)]),
    *(({"queue": spoiled(torch.ones(Q, D), 4, value)}, r"`queue` is not finite in row 4\.") for value in (NAN, INF)),
    ({"ids": None}, NOT_BOTH), ({"queue_ids": None}, NOT_BOTH), ({"ids": None, "queue": None}, NOT_BOTH),
    ({"queue_ids": None, "queue": None}, NOT_BOTH), ({"queue": None}, ".*`ids`.*`queue_ids`.*`queue`.*"),
    *(({key: long(shape)}, rf"`{key}` must be \[{length}\], .*got {re.escape(str([*shape]))}\.")
      for key, length in LENGTHS.items() if key != "weight" for shape in ((length - 1,), (length, 1), ())),
    *(({"weight": torch.ones(shape)}, rf"`weight` must be \[{N}\], .*got {re.escape(str([*shape]))}\.")
      for shape in [(N - 1,), (2 * N,), (N, 1), (1,), ()]),
    ({"weight": torch.tensor([1, 1, -0.125, 1, 1, 1])}, r"`weight` must be >= 0 .*got .*-0\.125\."),
    ({"weight": torch.zeros(N)}, r"`weight` must be >= 0 and not all zero, got .*0\.0\."),
    ({"weight": torch.tensor([1.0, 1, NAN, 1, 1, 1])}, r"`weight` is not finite in row 2\."),
    ({"labels": None}, ".*`labels`.*"),
]  # fmt: skip
FLOAT, WHOLE = "`{}` must be a floating-point tensor, got {}\\.", "`{}` must be an integer tensor, got {}\\."
TYPES = [
    *(({key: torch.ones(N, D).to(dtype)}, FLOAT.format(key, dtype))
      for key in ("z1", "z2") for dtype in (torch.int64, torch.bool, torch.complex64)),
    ({"z1": long((N, D)), "z2": long((N, D))}, FLOAT.format("z1", "torch.int64")),
    *(({key: wrong}, FLOAT.format(key, type(wrong).__name__)) for key in ("z1", "z2") for wrong in ([[1.0]], 1.0, "z")),
    ({"z1": GOOD["z1"], "z2": torch.ones(N, D).double()},
     r"`z1` and `z2` must have one dtype, got torch\.float32 and torch\.float64\."),
    ({"queue": long((Q, D))}, FLOAT.format("queue", "torch.int64")),
    ({"queue": [[1.0] * D]}, FLOAT.format("queue", "list")),
    *(({key: torch.zeros(LENGTHS[key], dtype=dtype)}, WHOLE.format(key, dtype))
      for key in ("ids", "queue_ids", "labels") for dtype in (torch.float32, torch.complex64)),
    *(({key: [0] * LENGTHS[key]}, WHOLE.format(key, "list")) for key in ("ids", "queue_ids", "labels")),
    ({"weight": [1.0] * N}, FLOAT.format("weight", "list")),
    ({"weight": long(N)}, FLOAT.format("weight", "torch.int64")),
]  # fmt: skip


def test_values_and_types():
    for changes, message in VALUES:
        refused(changes, message)
    for changes, message in TYPES:
        refused(changes, message, InputTypeError)


def test_numbers_that_are_not_finite():
    """The message names the first row of the first view."""
    for value, dtype in ((NAN, torch.float32), (INF, torch.float64), (-INF, torch.bfloat16)):
        views = {key: GOOD[key].to(dtype) for key in ("z1", "z2")}
        twice = spoiled(spoiled(views["z2"], 5, value, 0), 3, value, 4)
        refused(views | {"z2": twice}, r"`z2` is not finite in row 3\.", NonFiniteInputError)
        both = {"z1": spoiled(views["z1"], N - 1, value), "z2": spoiled(views["z2"], 1, value)}
        refused(both, rf"`z1` is not finite in row {N - 1}\.", NonFiniteInputError)


def test_weights_are_looked_at_without_a_mean_too():
    for name in having("weight"):
        with pytest.raises(InputError, match="`weight`"):
            losses[name](**good(name) | {"weight": torch.zeros(N)}, reduction="none")


# -- legal, though unusual ---------------------------------------------------------------------------------------------


def test_unusual_queues_and_ids():
    """No rows are as no queue, zero rows are finite, and other precisions and integer types do not matter."""
    for name in having("queue"):
        arguments = {key: value for key, value in good(name).items() if key in ("z1", "z2", "labels")}
        cross = {"negatives": "cross"} if accepts(name, "negatives") else {}
        assert torch.equal(losses[name](**arguments, queue=torch.ones(0, D)), losses[name](**arguments, **cross))
        queue = torch.zeros(Q, D, requires_grad=True)
        value = losses[name](**arguments, queue=queue)
        value.backward() if value.requires_grad else None
        assert torch.isfinite(value)
        assert torch.isfinite(queue.grad).all()
        size = 9e13 if name in ("jsd", "n_pair") else 3e38  # finite, though the sum overflows
        large = {key: torch.full((N, D), size) for key in ("z1", "z2")}
        assert losses[name](**arguments | large, queue=queue.detach()).isfinite()
        arguments = good(name)
        expected = losses[name](**arguments)
        value = losses[name](**arguments | {"queue": arguments["queue"].double()})
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(expected.item(), rel=1e-6)
        for dtype in (torch.int32, torch.uint8):
            assert torch.equal(losses[name](**arguments | {"ids": arguments["ids"].to(dtype)}), expected)


def test_half_precision_may_meet_float32():
    """As autocast gives it, where one view has passed a linear layer and the other has not."""
    for name in losses:
        half = GOOD["z1"].half()
        found = losses[name](**good(name) | {"z1": half})
        assert found == losses[name](**good(name) | {"z1": half.float()}), name
        assert found == losses[name](**good(name) | {"z1": half, "z2": GOOD["z2"]}), name


Z = torch.eye(3)
QUEUE = r"^`negatives` is 'queue', but `queue` is missing: pass `queue`, or "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses["moco"](Z, Z), QUEUE),
        (lambda: losses["instance_nce"](Z, Z), QUEUE),
        (lambda: losses["infonce"](Z, Z, negatives="queue"), QUEUE),
        (lambda: losses["infonce"](Z, Z, temperature=torch.tensor(0.2, requires_grad=True)),
         r"^`temperature` must be a plain value, got a tensor\.$"),
        (lambda: losses["infonce"](Z[:, :0], Z[:, :0]),
         r"^`z1` and `z2` must have at least one column, got \[3, 0\]\.$"),
        (lambda: losses["contrastive"].terms(explicit(Z, Z, Z)),
         r"^contrastive\.terms requires pairs of similarity 'squared_dist.*', got 'cos"),
        (lambda: losses["infonce"].terms(explicit(Z, Z, Z), temperature=-1.0),
         r"^`temperature` must be in \[1e-6, inf\), got -1\.0\.$"),
        (lambda: compare(Z, Z, engine="densee"), r"^`engine` must be 'auto', 'dense' or 'tiled', got 'densee'\.$"),
        (lambda: explicit(Z, Z, Z[:0]), r"^`negatives` must have at least one row"),
    ],
)  # fmt: skip
def test_other_bad_calls(call, message):
    with pytest.raises(InputError, match=message):
        call()
