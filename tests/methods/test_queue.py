"""Test `KeyQueue` against a deque of plain numbers."""

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcl.errors import InputError
from graphcl.methods import KeyQueue
from tests.methods.small import assert_same_state, through_a_file

ADDITIONS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=10)


def key_of(number):
    return [float(number), -0.5 * number, 1.0 / (number + 1)]


def rows(queue):
    """Return the (id, key) pairs in the queue, sorted."""
    return sorted(zip(queue.ids.tolist(), queue.keys.double().tolist(), strict=True))


def numbered(start, count):
    keys = torch.tensor([key_of(n) for n in range(start, start + count)], dtype=torch.float64).reshape(count, 3)
    return keys, torch.arange(start, start + count)


@settings(max_examples=150, deadline=None)
@given(size=st.integers(0, 9), additions=ADDITIONS)
def test_it_is_a_deque(size, additions):
    queue, plain = KeyQueue(size, 3).double(), deque(maxlen=size)
    total = 0
    for count, known in additions:
        keys, ids = numbered(total, count)
        queue.add(keys, ids if known else None)
        plain.extend((n if known else -1, key_of(n)) for n in range(total, total + count))
        total += count
        assert len(queue) == len(plain) == min(size, total)
        assert queue.keys.shape == (len(plain), 3)
        assert queue.ids.shape == (len(plain),)
        assert rows(queue) == sorted(plain)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(0, 9), before=ADDITIONS, after=ADDITIONS)
def test_a_restored_queue_is_identical(size, before, after):
    first, second, total = KeyQueue(size, 3), KeyQueue(size, 3), 0
    second.add(torch.ones(4, 3), torch.tensor([90, 91, 92, 93]))  # overwritten by the loaded state
    for queues, additions in (((first,), before), ((first, second), after)):
        for count, known in additions:
            keys, ids = numbered(total, count)
            total += count
            for queue in queues:
                queue.add(keys.float(), ids if known else None)
        if len(queues) == 1:
            second.load_state_dict(through_a_file(first.state_dict()))
            assert rows(first) == rows(second)
    assert_same_state(first.state_dict(), second.state_dict())
    assert rows(first) == rows(second)


@pytest.mark.parametrize(("size", "batch"), [(6, 2), (6, 4), (6, 6), (6, 7), (6, 13), (1, 3)])
def test_the_oldest_keys_are_dropped_first(size, batch):
    queue = KeyQueue(size, 3)
    for round_ in range(9):
        queue.add(numbered(round_ * batch, batch)[0].float(), torch.arange(round_ * batch, (round_ + 1) * batch))
        last = (round_ + 1) * batch
        assert sorted(queue.ids.tolist()) == list(range(max(0, last - size), last))


def test_it_starts_empty_and_unknown_graphs_are_minus_one():
    queue = KeyQueue(4, 2)
    assert len(queue) == 0
    assert queue.keys.shape == (0, 2)
    assert queue.ids.shape == (0,)
    queue.add(torch.ones(2, 2))
    assert queue.ids.tolist() == [-1, -1]


def test_keys_are_copied_without_their_history():
    queue = KeyQueue(4, 2)
    keys, ids = torch.ones(2, 2, requires_grad=True), torch.tensor([3, 4])
    queue.add(2 * keys, ids)
    assert not queue.keys.requires_grad
    with torch.no_grad():
        keys.zero_()
    ids.zero_()
    assert queue.keys.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert queue.ids.tolist() == [3, 4]


def test_half_precision_keys_are_held_in_the_queues_own_dtype():
    queue = KeyQueue(4, 2)
    queue.add(torch.full((3, 2), 0.3, dtype=torch.bfloat16))
    assert queue.keys.dtype == torch.float32
    assert torch.equal(queue.keys, torch.full((3, 2), 0.3, dtype=torch.bfloat16).float())


def test_it_has_fixed_buffers_and_no_parameters():
    queue = KeyQueue(5, 2)
    assert not list(queue.parameters())
    sizes = {name: value.shape for name, value in queue.named_buffers()}
    for _ in range(20):
        queue.add(torch.randn(3, 2))
    assert {name: value.shape for name, value in queue.named_buffers()} == sizes


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 3, 1), ()])
def test_keys_of_another_shape_are_rejected(shape):
    queue = KeyQueue(4, 3)
    with pytest.raises(InputError, match=r"`keys` must be \[B, 3\], got \[") as caught:
        queue.add(torch.zeros(shape))
    assert "\n" not in str(caught.value)
    assert len(queue) == 0


def test_a_negative_size_is_rejected():
    with pytest.raises(InputError, match=r"^`size` of a queue must be at least 0, got -1\.$"):
        KeyQueue(-1, 3)
