import pytest
import torch

from tests.losses import references


@pytest.fixture(scope="session")
def reference():
    """The module `references`."""
    return references


@pytest.fixture(scope="session")
def views():
    """`views(count, columns, seed)` -> two random float64 views `[N, D]`, norms well away from 1."""

    def draw(count, columns, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        z1, z2 = torch.randn(2, count, columns, generator=generator, dtype=torch.float64)
        return (2.5 * z1).to(dtype), (0.4 * z2).to(dtype)

    return draw


@pytest.fixture(scope="session")
def gradients():
    """`gradients(f, z1, z2)` -> gradients of the scalar `f(z1, z2)`, as one float64 array `[2, N, D]`."""

    def backward(function, z1, z2):
        z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
        function(z1, z2).backward()
        return torch.stack([z1.grad, z2.grad]).double().numpy()

    return backward


@pytest.fixture(scope="session")
def at_cosines():
    """`at_cosines(positive, negatives)` -> unit views whose first anchor has these cosines across the views.

    Every row of the first view is e_0; row j of the second has the wanted cosine with e_0 and goes its own way
    otherwise. With `negatives="cross", reduction="none"` term 0 is a function of the listed cosines alone.
    """

    def build(positive, negatives, dtype=torch.float64):
        wanted = torch.tensor([positive, *negatives], dtype=torch.float64)
        count = len(wanted)
        z2 = torch.zeros(count, count + 1, dtype=torch.float64)
        z2[:, 0] = wanted
        z2[:, 1:] = torch.diag((1 - wanted**2).clamp(min=0).sqrt())
        z1 = torch.zeros_like(z2)
        z1[:, 0] = 1.0
        return z1.to(dtype), z2.to(dtype)

    return build


@pytest.fixture(scope="session")
def slopes(at_cosines):
    """`slopes(loss, positive, negatives)` -> d term / d cosine, of the first anchor's positive and each negative."""

    def derive(loss, positive, negatives, **own):
        z1, z2 = at_cosines(positive, negatives)
        z2.requires_grad_()
        loss(z1, z2, reduction="none", **own)[0].backward()
        # The part along e_0, across z2_j: d c / d z2 = e_0 - c z2, whose square is 1 - c^2.
        return (z2.grad[:, 0] / (1 - z2[:, 0] ** 2)).tolist()

    return derive
