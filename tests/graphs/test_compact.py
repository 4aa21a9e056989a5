"""Compact columns: exact values and dtypes, few bytes, and the same results of all operations."""

import copy
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcl.graphs.compact import Compact, Layout, layout_of

ONE_HOT = torch.eye(5)[[3, 1, 1, 4, 0, 2, 2]]
NUMBERS = torch.tensor([[0.5], [-0.0], [3.0], [-2.0], [0.25], [1.0], [0.0]])


def bits(x):
    return x.view({torch.float32: torch.int32, torch.float64: torch.int64}[x.dtype]).tolist()


def test_one_hot_blocks_and_numbers_are_split():
    thirds = NUMBERS / 3
    x = torch.cat([NUMBERS, ONE_HOT, ONE_HOT.flip(0), thirds], 1)
    assert layout_of(ONE_HOT).blocks == (("code8", 5),)
    layout = layout_of(x)
    assert layout.blocks[0] == ("float16", 1)
    assert layout.blocks[-1] == ("float32", 1)
    assert layout.row_bytes == 2 + 1 + 1 + 4
    assert bits(Compact.of(x).clone()) == bits(x)
    assert layout_of(x.double()).row_bytes == 8  # the thirds are of single precision
    assert layout_of(torch.rand(50, 3)).is_smaller is False
    numbers = torch.tensor([[0, 5, 300, 2**40], [1, 255, -2, 7]])
    assert layout_of(numbers).blocks == (("uint8", 2), ("int16", 1), ("int64", 1))
    assert torch.equal(Compact.of(numbers).clone(), numbers)
    wide = torch.eye(300).repeat(1, 2)
    assert layout_of(wide).blocks == (("code16", 300), ("code16", 300))
    assert torch.equal(Compact.of(wide).clone(), wide)
    words = (torch.rand(50, 400, generator=torch.Generator().manual_seed(0)) < 0.1).float() * 7
    words[:, :200] /= 7
    assert layout_of(words).blocks == (("uint8", 400),)
    assert torch.equal(Compact.of(words).clone(), words)


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64])
)
def test_any_rows_are_exact_also_those_of_a_coarser_layout(seed, n, width, dtype):
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([0.0, 1.0, 1.0, 0.5, -0.0, 1 / 3, 1e30])
    most = int(torch.randint(2, 8, (), generator=generator))
    first, second = values[torch.randint(most, (2, n, width), generator=generator)].to(dtype)
    second = second * (torch.rand(n, width, generator=generator) < 0.5)
    layout = layout_of(first)
    both = layout_of(second, layout)
    for each, rows in ((layout, first), (both, first), (both, second)):
        assert bits(each.expand(each.pack(rows))) == bits(rows)
    assert both.width == width


def test_operations_see_the_floats():
    x = torch.cat([ONE_HOT, NUMBERS], 1)
    compact = Compact.of(x)
    assert isinstance(compact, Compact)
    assert (compact.shape, compact.dtype, compact.nbytes) == (x.shape, x.dtype, 7 * 3)
    rows = torch.tensor([4, 0, 4])
    for function in (
        lambda x: x @ torch.ones(6, 2), lambda x: x[2:5], lambda x: x[rows], lambda x: x[:, 1:3],
        lambda x: x[x[:, 5] > 0],
        lambda x: x.index_select(0, rows), lambda x: x.narrow(0, 1, 3), lambda x: torch.cat([x, x]), lambda x: x.T,
        lambda x: x.mean(0), lambda x: x.double(), lambda x: x[3], lambda x: x.clone(),
        lambda x: x[torch.tensor([[1, 2]])],
    ):  # fmt: skip
        found = function(compact)
        assert type(found) is torch.Tensor
        assert torch.equal(found, function(x))
    for same in (compact.detach(), compact.to("cpu"), copy.copy(compact), copy.deepcopy(compact)):
        assert torch.equal(same, x)
    torch.save(compact, file := io.BytesIO())
    file.seek(0)
    assert type(loaded := torch.load(file, weights_only=True)) is torch.Tensor
    assert torch.equal(loaded, x)
    for change in (lambda x: x.__setitem__(0, 1), lambda x: x.add_(1), lambda x: torch.add(x, 1, out=x)):
        with pytest.raises(TypeError, match="in place; change a clone"):
            change(compact)
    assert torch.equal(torch.zeros(7, 6).index_add_(0, rows.new_tensor(range(7)), compact), x)
    assert torch.equal(torch.empty(7, 6).copy_(compact), x)


def test_the_bytes_are_shared_with_other_processes():
    compact = Compact.of(ONE_HOT)
    assert not compact.is_shared()
    assert compact.share_memory_().is_shared()
    assert torch.equal(compact, ONE_HOT)


def test_bytes_of_a_damaged_file_stay_within_their_block():
    layout = Layout(torch.float32, (("code8", 3), ("code8", 2)))
    assert layout.expand(torch.tensor([[255, 1]], dtype=torch.uint8)).tolist() == [[0, 0, 0, 0, 1]]
