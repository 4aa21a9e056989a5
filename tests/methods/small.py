"""Helpers for tests of methods: small graphs, two small models, and one training step."""

import io

import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphcl.augment import NodeDrop, two_views
from graphcl.models.contrastive import ContrastiveModel
from graphcl.models.gin import GIN
from graphcl.registry import methods
from tests.strategies import seeded

OF_GRAPHS = [name for name in methods if methods.facts(name).get("rows") != "nodes"]
"""Registered methods that contrast graphs; the others contrast nodes."""


def graphs(n=24, seed=0, dtype=torch.float32):
    """Return n random graphs of 5 to 11 nodes with four features and two classes."""
    generator, found = seeded(seed), []
    for number in range(n):
        size = int(torch.randint(5, 12, (), generator=generator))
        pairs = torch.randint(size, (2, 2 * size), generator=generator)
        x = torch.rand(size, 4, generator=generator, dtype=torch.float64).to(dtype)
        found.append(Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=torch.tensor([number % 2])))
    return found


class Summed(nn.Module):
    """Encoder without BatchNorm, so that a graph's embedding does not depend on the other graphs of its batch."""

    def __init__(self, width=6):
        super().__init__()
        self.out_channels = width
        self.map = nn.Linear(4, width)

    def forward(self, x, edge_index, batch, size):
        sent = x.index_add(0, edge_index[1], x[edge_index[0]])
        values = self.map(sent).tanh()
        return values.new_zeros(size, values.size(1)).index_add(0, batch, values)


def make_model(seed=0, encoder=None, **options):
    """Return a model initialised with `seed`, with encoder `GIN` or the class `encoder`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ContrastiveModel(encoder() if encoder else GIN(4, hidden_channels=8, num_layers=2), **options)


def pick(data, ids):
    return Batch.from_data_list([data[i] for i in ids])


def views_of(data, ids, seed):
    """Return two different views of the graphs `ids`, equal for equal `seed`."""
    return two_views(pick(data, ids), NodeDrop(0.2), NodeDrop(0.3), seeded(seed))


def schedule(n, batch_size, steps, seed=0):
    """Return `steps` batches of graph indices, reshuffled every epoch."""
    generator, found = seeded(seed), []
    while len(found) < steps:
        found += [part.tolist() for part in torch.randperm(n, generator=generator).split(batch_size)]
    return found[:steps]


def trainable(method):
    return [each for each in method.parameters() if each.requires_grad]


def step(method, optimiser, views, ids=None, generator=None):
    """Run one training step as documented in `Method`, and return the outcome."""
    method.train()
    outcome = method(*views, ids=None if ids is None else torch.tensor(ids), generator=generator)
    optimiser.zero_grad()
    outcome.loss.backward()
    optimiser.step()
    method.after_step()
    return outcome


def reload(state):
    """Save `state` with `torch.save` and return it as read by `torch.load(weights_only=True)`."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same_state(got, expected):
    """Assert that two state dicts are equal bit by bit. Values need not be tensors."""
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def unit(row):
    """Return `row` scaled to norm 1, as a list of floats."""
    values = [float(each) for each in row]
    length = sum(each * each for each in values) ** 0.5
    return [each / length for each in values]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def unit_rows(rows):
    """Return `rows [n, D]`, each scaled to norm 1, with their gradient."""
    return rows / rows.square().sum(dim=1, keepdim=True).sqrt()


def same_weights(mine, theirs, gradients=False, sign=1):
    """Assert that two modules have close parameters or gradients; a missing gradient is zero."""
    for (key, one), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        got, expected = one.detach(), other.detach()
        if gradients:
            got, expected = (torch.zeros_like(each) if each.grad is None else each.grad for each in (one, other))
        torch.testing.assert_close(got, sign * expected, rtol=1e-6, atol=1e-8 if gradients else 1e-6, msg=key)
