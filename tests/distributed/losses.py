"""Checks of losses on several ranks against one process. `group.py` runs them, `test_ranks.py` reports them."""

import inspect
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from graphcl.distributed import ranks
from graphcl.losses import Loss, tiled
from graphcl.losses import rows as module
from graphcl.registry import losses

SHARD, FEATURES, WIDTH = 4, 5, 4
"""Graphs per rank, features per graph, columns of a projection."""
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def variants(name):
    """Yield (arguments, names of tensors) of a loss: negatives, engines, and other values of its switches."""
    taken = inspect.signature(losses[name]).parameters

    def of(**arguments):
        return {key: value for key, value in arguments.items() if key in taken}

    yield of(negatives="cross", symmetric=False, engine="tiled"), ()
    yield of(negatives="all", symmetric=True, engine="auto"), ()
    if "weight" in taken:
        yield of(negatives="cross", engine="dense"), ["weight"]
    if {"queue", "ids"} <= taken.keys():
        yield of(negatives="all", engine="tiled"), ["weight", "queue", "ids", "queue_ids"]
    hints = get_type_hints(losses[name])
    for argument in sorted(taken.keys() - {"negatives", "symmetric", "engine", "reduction"}):
        choices = get_args(hints[argument]) if get_origin(hints[argument]) is Literal else ()
        for place, choice in enumerate((False, True) if hints[argument] is bool else choices):
            if choice != taken[argument].default:
                yield of(**{argument: choice, "engine": ("dense", "tiled")[place % 2]}), ()
    for count, engine in [(50, "dense"), (5, "tiled")] if "num_negatives" in taken else ():
        yield {"num_negatives": count, "engine": engine}, ()


def data():
    """Return the features of both views of the global batch, `[2, N, F]`, and the other tensors that losses take."""
    generator, count = torch.Generator().manual_seed(0), SHARD * dist.get_world_size()
    options = {"generator": generator, "dtype": torch.float64}
    return torch.randn(2, count, FEATURES, **options), {
        "weight": torch.rand(count, **options),
        "ids": torch.arange(count) + 3,
        "labels": torch.randint(3, (count,), generator=generator),
        "queue": torch.randn(6, WIDTH, **options),
        "queue_ids": torch.tensor([3, 3, 5, 8, 77, 0]),
    }


def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, WIDTH)).double()


def arguments_of(name, arguments, tensors, given, part=slice(None)):
    """Return the arguments of a loss, with tensors over graphs restricted to the slice `part`."""
    tensors = {*tensors} | {"labels"} & {*losses.arguments(name).tensors}
    cut = {key: each[part] if key in ("weight", "ids", "labels") else each for key, each in given.items()}
    found = arguments | {key: cut[key] for key in tensors}
    if "generator" in losses.arguments(name).tensors:  # with several ranks, rank 0 draws
        found["generator"] = torch.Generator().manual_seed(0 if part == slice(None) else dist.get_rank())
    queued = (losses.arguments(name).defaults | arguments).get("negatives") == "queue"
    return {"queue": given["queue"][:0], **found} if queued else found


def value_and_gradients(network, loss, x):
    """Return the loss, and the gradients of all parameters as one vector."""
    network.zero_grad()
    z = network(x.flatten(0, 1)).view(2, x.size(1), WIDTH)
    value = loss(z[0], z[1])
    value.backward()
    return value.detach(), torch.cat([each.grad.flatten() for each in network.parameters()])


def compare(networks, name, arguments, tensors):
    """Compare losses and gradients with one process."""
    x, given = data()
    part = slice(SHARD * dist.get_rank(), SHARD * (dist.get_rank() + 1))
    plain = {key: value for key, value in arguments.items() if key != "engine"}
    whole = partial(losses[name], **arguments_of(name, plain, tensors, given))
    mine = partial(losses[name], **arguments_of(name, arguments, tensors, given, part))
    alone, together = networks
    expected, wanted = value_and_gradients(alone, whole, x)
    with ranks.across(dist.group.WORLD):
        value, gradients = value_and_gradients(together, mine, x[:, part])
    dist.all_reduce(value)
    torch.testing.assert_close(value / dist.get_world_size(), expected, **CLOSE)
    torch.testing.assert_close(gradients, wanted, **CLOSE)


def every_variant(name):
    """Compare every variant of a loss."""
    networks = model(), DistributedDataParallel(model())
    # With small limits, there are several tiles and chunks, and `auto` selects gathered keys in tiles.
    small = mock.patch.object(tiled, "ROW_ELEMENTS", 24), mock.patch.object(tiled, "TILE", 3)
    with small[0], small[1], mock.patch.object(module, "DENSE_LIMIT", 8):
        for arguments, tensors in variants(name):
            try:
                compare(networks, name, arguments, tensors)
            except AssertionError as error:
                raise AssertionError(f"{name} with {arguments} and {tensors or 'no tensors'}: {error}") from None


def learned_temperature():
    """Gradients averaged over ranks, on either engine, equal that of one process, for all losses that learn one."""
    x, given = data()
    part = slice(SHARD * dist.get_rank(), SHARD * (dist.get_rank() + 1))
    z = model()(x.flatten(0, 1)).view(2, x.size(1), WIDTH).detach()
    for name in losses:
        for engine in ("dense", "tiled") if losses.arguments(name).learnable else ():
            loss = Loss(name, temperature="learn", engine=engine).double()
            (wanted,) = torch.autograd.grad(loss(*z, **arguments_of(name, {}, (), given)), loss.log_scale)
            together = DistributedDataParallel(loss)
            with ranks.across(dist.group.WORLD):
                together(*z[:, part], **arguments_of(name, {}, (), given, part)).backward()
            torch.testing.assert_close(loss.log_scale.grad, wanted, **CLOSE, msg=f"the gradient of {name}, {engine}")


CHECKS = {name: partial(every_variant, name) for name in losses} | {"learned temperature": learned_temperature}
ON_FOUR = ["triplet", "barlow_twins", "dclw", "instance_nce", "moco", "sigreg", "supcon", "vicreg"]
"""Different reductions over ranks; the other losses use these."""
