"""Checks of methods on several ranks against one process. `group.py` runs them, `test_ranks.py` reports them."""

import copy
from contextlib import nullcontext
from functools import partial
from unittest import mock

import torch
import torch.distributed as dist

from graphcl import GIN, ContrastiveModel, Identity, Loss, NodeDrop, OneOf
from graphcl.distributed import ranks
from graphcl.distributed.modules import data_parallel, synchronise
from graphcl.graphs.batching import with_entries
from graphcl.registry import methods
from tests.methods.small import OF_GRAPHS, graphs, pick, schedule, seeded

SHARD, COUNT, STEPS = 3, 36, 2
"""Graphs per rank in a batch, graphs in total, steps of SGD."""
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
GRAPHS = graphs(COUNT, dtype=torch.float64)

CASES = {
    "two_views": [("supcon", {}, {"labels": True})],
    "moco": [("moco", {}, {"queue_size": 10}), ("adnce", {"symmetric": True}, {"queue_size": 10})],
    "memory_bank": [("instance_nce", {"temperature": 0.3}, {"noise": 10, "warmup": 0}), ("infonce", {}, {"noise": 99})],
    "simsiam": [("simsiam", {}, {})],
    "infograph": [("infonce", {"engine": "tiled"}, {}), ("dclw", {}, {}), ("instance_nce", {}, {})],
    "ad_gcl": [("dcl", {}, {})],
    "simgrace": [("infonce", {}, {"eta": 0.1})],
}
"""Method -> (loss, its arguments, the method's arguments); other methods use infonce."""


def build(name, loss, loss_arguments, arguments):
    """Return the method in float64 with fixed initial weights. Its encoder has BatchNorm."""
    known = {"num_graphs": COUNT, "first": Identity(), "second": OneOf([NodeDrop(0.2), Identity()])}
    data = {key: known[key] for key in methods.arguments(name).required if key in known}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = ContrastiveModel(GIN(4, hidden_channels=8, num_layers=2))
        with torch.no_grad():
            for each in model.parameters():  # with zero biases, some units would be at the kink of ReLU
                each += 0.1 * torch.randn(each.shape)
        for norm in model.encoder.norms:  # a small variance would amplify rounding errors
            norm.eps = 0.1
        return methods[name](model, Loss(loss, **loss_arguments), **data, **arguments).double().train()


def views(numbers):
    """Return two views that depend only on the indices of the graphs."""
    view1, view2 = pick(GRAPHS, numbers), pick(GRAPHS, numbers)
    view2.x = (view2.x * 9).sin()
    drawn = torch.tensor(numbers) % 2
    return with_entries(view1, "drawn", drawn), with_entries(view2, "drawn", drawn)


def one_step(network, numbers, generator):
    """Take a step of SGD, and return the loss and the gradient of a batch."""
    network.zero_grad()
    outcome = network(*views(numbers), ids=torch.tensor(numbers), generator=generator)
    outcome.loss.backward()
    trainable = [each for each in network.parameters() if each.requires_grad]
    torch.optim.SGD(trainable, lr=0.01).step()
    return outcome.loss.detach(), torch.cat([each.grad.flatten() for each in trainable])


def compare(name, loss, loss_arguments, arguments):
    """Compare loss, gradients, parameters and the method's state with one process after each step."""
    alone = build(name, loss, loss_arguments, arguments)
    with ranks.across(dist.group.WORLD):
        together = data_parallel(synchronise(copy.deepcopy(alone)), torch.device("cpu"))
    rank, size = dist.get_rank(), dist.get_world_size()
    # All ranks must use the draws of rank 0.
    generators = seeded(5), seeded(5 + rank)
    for numbers in schedule(COUNT, SHARD * size, STEPS):
        own = numbers[rank * len(numbers) // size : (rank + 1) * len(numbers) // size]
        expected, wanted = one_step(alone, numbers, generators[0])
        with ranks.across(dist.group.WORLD):
            value, found = one_step(together, own, generators[1])
            together.module.after_step()
        alone.after_step()
        dist.all_reduce(value)
        torch.testing.assert_close(value / size, expected, **CLOSE)
        torch.testing.assert_close(found, wanted, **CLOSE)
    with ranks.across(dist.group.WORLD):
        logged = together.module.after_epoch()
    assert alone.after_epoch().keys() == logged.keys()
    state = together.module.state_dict()
    torch.testing.assert_close(dict(state), dict(alone.state_dict()), **CLOSE)
    for key, each in ranks.broadcast_object(state, dist.group.WORLD).items():
        assert not torch.is_tensor(each) or torch.equal(each, state[key]), f"{key} differs between ranks"


def every_case(name):
    # Each rank draws its own adversarial view; a constant draw makes them comparable.
    half = mock.patch.object(torch, "rand", lambda shape, dtype, **_: torch.full(shape, 0.5, dtype=dtype))
    for case in CASES.get(name, [("infonce", {}, {})]):
        with half if name == "ad_gcl" else nullcontext():
            try:
                compare(name, *case)
            except AssertionError as error:
                raise AssertionError(f"{name} with {case}: {error}") from None


def one_pass_for_both_views_or_two():
    """By their own numbers of nodes ranks would choose differently, and their collectives would not match."""
    with mock.patch("graphcl.models.contrastive.ONE_PASS", 10**9 if dist.get_rank() == 0 else 0):
        compare("two_views", "infonce", {}, {})


CHECKS = {name: partial(every_case, name) for name in OF_GRAPHS} | {"one_pass": one_pass_for_both_views_or_two}
ON_FOUR = ["moco", "memory_bank", "simgrace"]
"""Methods that gather rows or broadcast draws themselves."""
