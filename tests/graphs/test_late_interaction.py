"""Test late interaction against loops over nodes from the equation."""

import pytest
import torch

from graphcl.errors import InputError
from graphcl.graphs import late_interaction as module
from graphcl.graphs.late_interaction import late_interaction, to_candidates


def batch(sizes, seed):
    nodes = torch.randn(sum(sizes), 4, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    return nodes, torch.tensor([0, *sizes]).cumsum(0)


def loops(nodes1, ptr1, nodes2, ptr2):
    def cosine(u, v):
        return u @ v / u.norm() / v.norm()

    table = torch.zeros(len(ptr1) - 1, len(ptr2) - 1).double()
    for i, j in ((i, j) for i in range(table.size(0)) for j in range(table.size(1))):
        one, two = nodes1[ptr1[i] : ptr1[i + 1]], nodes2[ptr2[j] : ptr2[j + 1]]
        there = sum(max(cosine(u, v) for v in two) for u in one) / len(one)
        back = sum(max(cosine(u, v) for u in one) for v in two) / len(two)
        table[i, j] = (there + back) / 2
    return table


@pytest.mark.parametrize("nodes", [4096, 5])
def test_equals_the_loops(nodes, monkeypatch):
    monkeypatch.setattr(module, "_NODES", nodes)
    one, two = batch([3, 1, 5, 2], 0), batch([2, 6, 1], 1)
    torch.testing.assert_close(late_interaction(*one, *two), loops(*one, *two))
    torch.testing.assert_close(late_interaction(*two, *one), late_interaction(*one, *two).T)
    torch.testing.assert_close(late_interaction(*one, *one).diagonal(), torch.ones(4).double())


def test_one_graph_against_candidates():
    nodes, ptr = batch([3, 1, 5, 2], 0)
    others = torch.tensor([3, 0, 2])
    torch.testing.assert_close(to_candidates(nodes, ptr)(2, others), loops(nodes, ptr, nodes, ptr)[2, others])


def test_gradient():
    (one, ptr1), (two, ptr2) = batch([3, 1], 0), batch([2, 2], 1)
    one.requires_grad_()
    two.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: late_interaction(a, ptr1, b, ptr2), (one, two))


def test_invalid_data():
    nodes, ptr = batch([2, 2], 0)
    for arguments, message in (
        ((nodes, ptr, nodes[:, :3], ptr), r"nodes must be \[N, H\] with one H, got \[4, 4\] and \[4, 3\]\."),
        ((nodes, ptr[:2], nodes, ptr), r"`ptr1` must ascend from 0 to 4 nodes, with a node in every graph\."),
        ((nodes, ptr, nodes, torch.tensor([0, 0, 4])), r"`ptr2` must ascend from 0 to 4 nodes, with a node in e"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            late_interaction(*arguments)
