"""Count in how many groups of graphs each pattern occurs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def frequencies(batches: Iterable[tuple[Tensor, ...]], least: int) -> tuple[Tensor, Tensor]:
    """Return the colours that occur in at least `least` groups, ascending, and the number of groups of each.

    Memory: 16 bytes for each pattern of each group.

    Args:
        batches: colours `[D + 1, N]` of nodes and the group of each node `[N]`; a group may be in several batches.
        least: least number of groups.

    Example:
        >>> frequencies([(torch.tensor([[5, 7, 5, 5]]), torch.tensor([0, 0, 0, 1]))], least=2)
        (tensor([5]), tensor([2]))
    """
    seen = []
    for colours, group in batches:
        both = torch.stack([colours.flatten(), group.repeat(len(colours))])
        seen.append(_distinct(both))
    colour, count = _distinct(torch.cat(seen, 1))[0].unique_consecutive(return_counts=True)
    kept = count >= least
    return colour[kept], count[kept]


def _distinct(pairs: Tensor) -> Tensor:
    """Return the distinct columns of `pairs [2, M]`, sorted by the first row."""
    pairs = pairs[:, pairs[1].argsort()]
    pairs = pairs[:, pairs[0].argsort(stable=True)]
    new = torch.ones_like(pairs[0], dtype=torch.bool)
    new[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(0)
    return pairs[:, new]
