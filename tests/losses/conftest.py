import pytest
import torch


@pytest.fixture(scope="session")
def views():
    """Return `draw(count, columns, seed, dtype)`, which makes two random views `[N, D]` with norms far from 1."""

    def draw(count, columns, seed=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)
        z1, z2 = torch.randn(2, count, columns, generator=generator, dtype=torch.float64)
        return (2.5 * z1).to(dtype), (0.4 * z2).to(dtype)

    return draw


@pytest.fixture(scope="session")
def gradients():
    """Return a function `(f, z1, z2)` that computes the gradients of the scalar `f(z1, z2)`, float64 `[2, N, D]`."""

    def backward(function, z1, z2):
        z1, z2 = (z.detach().clone().requires_grad_() for z in (z1, z2))
        function(z1, z2).backward()
        return torch.stack([z1.grad, z2.grad]).double().numpy()

    return backward


@pytest.fixture(scope="session")
def at_cosines():
    """Return `build(positive, negatives)`, which makes two views of unit rows with given cosines.

    Every row of the first view is e_0. Row j of the second view has the j-th given cosine with e_0, and its remaining
    part is orthogonal to the other rows. With `negatives="cross", reduction="none"`, term 0 depends only on the given
    cosines.
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
    """Return `derive(loss, positive, negatives)`, which computes d term 0 / d cosine for each of the given cosines."""

    def derive(loss, positive, negatives, **own):
        z1, z2 = at_cosines(positive, negatives)
        z2.requires_grad_()
        loss(z1, z2, reduction="none", **own)[0].backward()
        # d c / d z2 = e_0 - c z2, with squared norm 1 - c^2.
        return (z2.grad[:, 0] / (1 - z2[:, 0] ** 2)).tolist()

    return derive
