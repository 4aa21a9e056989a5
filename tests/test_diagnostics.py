import math

import pytest
import torch

from graphcl.diagnostics import alignment, uniformity


def test_alignment_by_hand():
    z = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert alignment(z, 3 * z) == 0
    assert alignment(z, -z).item() == pytest.approx(4)
    assert alignment(z, z.flip(1)).item() == pytest.approx(2)


def test_uniformity_by_hand():
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 5.0]])
    squared = [4, 2, 2]
    expected = math.log(sum(math.exp(-2 * d) for d in squared) / 3)
    assert uniformity(z).item() == pytest.approx(expected, rel=1e-6)
    assert uniformity(torch.ones(4, 3)).item() == pytest.approx(0, abs=1e-6)


def test_even_is_lower_than_clustered():
    generator = torch.Generator().manual_seed(0)
    even = torch.randn(200, 64, generator=generator)
    assert uniformity(even) < -3.5 < uniformity(even + 5)
