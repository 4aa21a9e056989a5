"""Checks of collectives and BatchNorm on several ranks. `group.py` runs them, `test_ranks.py` reports them."""

import copy
import math
from functools import partial
from itertools import product

import pytest
import torch
import torch.distributed as dist
import torch_geometric.nn as pyg
from torch import nn

from graphcl import InputError
from graphcl.distributed import ranks
from graphcl.distributed.modules import GlobalBatchNorm, average_statistics, synchronise
from graphcl.losses import barlow_twins, infonce, sigreg, vicreg
from graphcl.losses.rows import NonFiniteInputError

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def across():
    return ranks.across(dist.group.WORLD)


def numbers(count, columns=3, seed=0):
    generator = torch.Generator().manual_seed(seed + dist.get_rank())
    return torch.randn(count, columns, generator=generator, dtype=torch.float64)


def message_of(call, kind=InputError):
    """Return the message of the error that `call` raises on this rank."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@check
def rows_come_in_the_order_of_ranks():
    rank, size = dist.get_rank(), dist.get_world_size()
    own = torch.tensor([[rank, 0], [rank, 1]])
    with across():
        assert (ranks.size(), ranks.rank()) == (size, rank)
        assert ranks.gather(own).tolist() == [[number, row] for number in range(size) for row in (0, 1)]
        after = [(rank + step) % size for step in range(1, size)]
        assert ranks.others(own).tolist() == [[number, row] for number in after for row in (0, 1)]
        # More rows, fewer, none: sizes that change on all ranks at once.
        for count, dtype in product((5, 3, 0, 6), (torch.int64, torch.float32, torch.bfloat16, torch.bool)):
            found, expected = torch.full((count,), rank), torch.arange(size).repeat_interleave(count)
            assert torch.equal(ranks.gather(found.to(dtype)), expected.to(dtype))
        assert ranks.sum_over_ranks(torch.tensor(2.0)) == 2 * size
        assert ranks.largest_over_ranks(torch.tensor(rank)) == size - 1
        assert ranks.broadcast(torch.tensor(rank + 7)) == 7
        # Rank r has r + 1 items of value r.
        mean = ranks.part_of_mean(torch.tensor(float(rank)), rank + 1)
        expected = sum(number * (number + 1) for number in range(size)) / sum(range(size + 1))
        assert math.isclose(float(ranks.sum_over_ranks(mean)) / size, expected, rel_tol=1e-6)


@check
def a_mistake_of_one_rank_is_refused_by_all():
    """Batches of different sizes or widths, and rows that are not finite."""
    rank, size = dist.get_rank(), dist.get_world_size()
    expected = f"all ranks must have equally many graphs in a batch, got {', '.join(map(str, range(4, 4 + size)))} by "
    wide, bad = numbers(4, 20 + rank), numbers(4)
    if rank == 1:
        bad[2, 1] = math.nan
    losses = [infonce, barlow_twins, vicreg, sigreg, partial(infonce, engine="tiled")]
    with across():
        for loss in 2 * losses:  # the first call stores the number of rows
            assert message_of(partial(loss, numbers(4 + rank), numbers(4 + rank))).startswith(expected)
            loss(numbers(4), numbers(4))
            if loss in (barlow_twins, vicreg, sigreg):  # training stops at a loss of NaN
                assert loss(numbers(4), bad).isnan()
            else:
                assert "not finite" in message_of(partial(loss, numbers(4), bad), NonFiniteInputError)
        own = message_of(partial(infonce, numbers(4), bad), NonFiniteInputError)
        assert own.startswith("`z2` is not finite in row ")
        for engine in ("dense", "tiled"):
            message = message_of(partial(infonce, wide, wide, engine=engine))
            assert message.startswith("all ranks must have rows of one shape, got [4, ")


@check
def weights_may_be_zero_on_a_rank_and_losses_be_local():
    z, weight = numbers(4), torch.full((4,), float(dist.get_rank() == 0))
    alone = infonce(z, z.flip(1))
    with across():
        assert torch.isfinite(infonce(z, z.flip(1), weight=weight))
        with ranks.across(None):
            assert torch.equal(infonce(z, z.flip(1)), alone)
        message = message_of(lambda: infonce(z, z.flip(1), weight=0 * weight))
    assert message == "`weight` must not be all zero, got only zeros on every rank."


# -- BatchNorm ---------------------------------------------------------------------------------------------------------


@check
def norm_of_one_row_and_without_momentum():
    """A rank can have a single row. With momentum None, running statistics are averages."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(2.0 * (size + 1), dtype=torch.float64).view(-1, 2).square()
    alone = nn.BatchNorm1d(2, momentum=None).double()
    together = synchronise(copy.deepcopy(alone))
    with across():
        for _ in range(2):
            part = rows[:2] if rank == 0 else rows[rank + 1 : rank + 2]
            found, expected = together(part), alone(rows)
            torch.testing.assert_close(found, expected[:2] if rank == 0 else expected[rank + 1 : rank + 2], **CLOSE)
        assert "takes rows [N, 2], got [1, 2, 4]" in message_of(lambda: together(torch.zeros(1, 2, 4).double()))
    torch.testing.assert_close(together.running_var, alone.running_var, **CLOSE)
    assert type(synchronise(pyg.BatchNorm(3)).module) is GlobalBatchNorm


@check
def running_statistics_are_averaged():
    norm, rank = nn.BatchNorm1d(2), dist.get_rank()
    norm.running_mean.fill_(rank)
    average_statistics(norm)  # one rank: unchanged
    assert norm.running_mean[0] == rank
    with across():
        average_statistics(norm)
    assert norm.running_mean.tolist() == [(dist.get_world_size() - 1) / 2] * 2
    assert norm.running_var.tolist() == [1.0] * 2


ON_FOUR = CHECKS
