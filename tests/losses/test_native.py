"""Test that the compiled loops read memory as it is: at any address, and negated."""

import ctypes
import random

import pytest
import torch

from graphcl.losses import native
from graphcl.registry import losses


@pytest.mark.skipif(not native.enabled, reason="the compiled loops are not there")
def test_compiled_loops_do_not_depend_on_the_place_of_arrays(views):
    """Two exponents of eight rows: a vector or scalar loop, whichever fits the addresses, would round differently."""
    heap, draw = ctypes.CDLL(None), random.Random(0)
    heap.malloc.restype, heap.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    results = set()
    for _ in range(150):
        blocks = [heap.malloc(ctypes.c_size_t(draw.choice([24, 40, 64, 80]))) for _ in range(draw.randint(0, 30))]
        leaves = [z.detach().requires_grad_() for z in views(8, 48, dtype=torch.float32)]
        slopes = torch.autograd.grad(losses["hcl"](*leaves), leaves)
        results.add(tuple(slope.numpy().tobytes() for slope in slopes))
        for block in draw.sample(blocks, len(blocks) * 2 // 3):
            heap.free(block)
    assert len(results) == 1


def test_views_of_negated_memory(views):
    z1, z2 = views(5, 4, dtype=torch.float32)
    torch.testing.assert_close(losses["infonce"](torch._neg_view(z1), z2), losses["infonce"](-z1, z2))
