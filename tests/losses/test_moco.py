"""Test the loss `moco` against float64 reference loops: InfoNCE with negatives from a queue."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from graphcl.losses import infonce, moco
from tests.losses import loops
from tests.losses.test_infonce import term

batch = loops.of_cosines(partial(term, temperature=0.07))
slow = partial(loops.terms, batch, negatives="queue", symmetric=False)
SETTINGS = [{}, {"temperature": 0.5}]
SMOOTH = [{"temperature": 0.3}]


def queue(count, columns):
    return 3 * torch.randn(count, columns, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_the_loops_by_hand():
    """With a queue, its keys are the negatives; without a queue, the other rows of the batch are."""
    z1, z2, held = [[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 0.0]], [[0.0, 3.0], [-1.0, 0.0]]
    e = math.exp
    expected = [math.log(1 + e(-2) + e(-4)), math.log(1 + e(2) + e(0))]
    assert slow(z1, z2, temperature=0.5, queue=held) == pytest.approx(expected)
    for none in (None, []):
        assert slow(z1, z2, temperature=0.5, queue=none) == pytest.approx([math.log(2)] * 2)
    own = {"temperature": 0.5, "queue": held, "ids": [1, 2], "queue_ids": [1, 2]}
    assert slow(z1, z2, **own) == pytest.approx([math.log(1 + e(-4)), math.log(1 + e(2))])


def test_an_empty_queue_leaves_one_way_infonce(views, gradients):
    z1, z2 = views(6, 4)
    held = queue(0, 4)
    for temperature in (0.07, 0.5):
        loss = partial(moco, queue=held, temperature=temperature)
        plain = partial(infonce, symmetric=False, temperature=temperature)
        torch.testing.assert_close(
            loss(z1, z2, reduction="none"), plain(z1, z2, reduction="none"), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(gradients(loss, z1, z2), gradients(plain, z1, z2), rtol=1e-11, atol=1e-12)


def test_with_a_queue_it_is_cross_entropy_against_the_first_logit(views, gradients):
    """The loss is the cross-entropy of the logits [q.k+, q.queue] / t with label 0."""
    held = queue(9, 4)

    def plain(z1, z2):
        q, k, keys = (torch.nn.functional.normalize(z) for z in (z1, z2, held))
        logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ keys.T], dim=1) / 0.07
        return torch.nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))

    z1, z2 = views(6, 4)
    loss = partial(moco, queue=held)
    assert loss(z1, z2).item() == pytest.approx(plain(z1, z2).item(), rel=1e-12)
    np.testing.assert_allclose(gradients(loss, z1, z2), gradients(plain, z1, z2), rtol=1e-10, atol=1e-12)
    shuffled = torch.cat([z2[:1], z2[1:].flip(0)])
    assert torch.equal(loss(z1, z2, reduction="none")[0], loss(z1, shuffled, reduction="none")[0])


def test_a_key_of_ones_own_is_left_out_wherever_it_lies(views):
    """The queue holds one key per graph, so excluding an anchor's own key leaves the negatives of `infonce`."""
    z1, z2 = views(6, 4)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    got = moco(z1, z2, queue=5 * z2[order], ids=torch.arange(6) + 40, queue_ids=order + 40)
    assert got.item() == pytest.approx(infonce(z1, z2, temperature=0.07, symmetric=False).item(), rel=1e-12)
