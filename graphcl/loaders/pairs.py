"""Define the pairs of an epoch: two graphs of every group, as positives of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from graphcl.arguments import named_arguments
from graphcl.datasets.groups import NO_GROUP, GroupNumbers
from graphcl.errors import InputError
from graphcl.graphs.segment import group
from graphcl.loaders.order import WHOLE, EpochBatches, Shard, check_shard

Singles = Literal["drop", "views"]
"""What to do with a graph without a partner: leave it out, or pair it with itself, as two views of one graph."""


class EpochPairs(EpochBatches):
    """Batch sampler of pairs; in each epoch, every group gives one pair of different members, drawn uniformly.

    A group gives one pair per epoch, however many members it has. So no group occurs twice in a batch, no negative is
    of the anchor's group, and large groups do not dominate. Members that an epoch does not use occur in later epochs.
    Without `shuffle`, the pair is always that of the first two members.

    Batches, ranks and `window` are those of `EpochBatches`, for groups instead of graphs. Groups are ordered by their
    first graph, so write the members of a group next to each other in files that are read with a `window`.

    Args:
        groups: group of each graph, `[n]`: numbers, -1 for no group, or strings, see `GroupNumbers`.
        batch_size: number of groups in a batch over all ranks, >= 1.
        shuffle: whether each epoch draws a new order and new members.
        generator: CPU generator that draws the order and the members; default: torch's global one.
        window: see `EpochBatches`.
        shard: see `EpochBatches`.
        singles: graphs without a partner: "drop" leaves them out, "views" pairs each with itself. Such a pair needs an
            augmentation, as it would be two equal graphs otherwise.

    Attributes:
        current: this rank's batches of the current epoch, `(first members [B], second members [B])`.
        ids: the group of each pair, index tensors `[B]` from 0 to the number of groups.

    Raises:
        InputError: there are fewer than two groups, or see `EpochBatches`.

    Example:
        >>> EpochPairs(["a", "b", "b", "a", "c"], batch_size=2).draw()
        [(tensor([0, 1]), tensor([3, 2]))]
    """

    rows = "groups"

    @named_arguments
    def __init__(
        self,
        groups: Sequence[Any] | Tensor,
        batch_size: int,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        window: int | None = None,
        shard: Shard = WHOLE,
        singles: Singles = "drop",
    ) -> None:
        self._groups, self._singles = GroupNumbers()(groups), singles
        super().__init__(self._use(torch.arange(len(self._groups))), batch_size, shuffle, generator, window, shard)
        self.total = len(self._groups)

    def restrict_to(self, graphs: Tensor) -> None:
        """Draw only pairs of the graphs with the indices `graphs`, from the next epoch on; see `EpochBatches`."""
        self.num_graphs = self._use(graphs)
        check_shard(self.shard, self.batch_size, self.num_graphs, self.rows)

    def _use(self, graphs: Tensor) -> int:
        """Prepare the groups of the graphs with these indices, and return their number."""
        members, self._start, self._sizes = segments(self._groups[graphs], self._singles)
        self._members = graphs[members]
        self._choices = torch.stack([self._sizes, self._sizes - 1])  # for the first and for the second member
        count = len(self._sizes)
        if count < 2:
            rule = "two or more graphs each" if self._singles == "drop" else "any size"
            raise InputError(f"training on pairs needs at least two groups of {rule}, got {count}; check `group`.")
        return count

    def __iter__(self) -> Iterator[list[Any]]:
        for one, two in self.draw():
            yield list(zip(one.tolist(), two.tolist(), strict=True))

    def draw(self) -> list[tuple[Tensor, Tensor]]:
        """Draw the order of a new epoch and its pairs, and return the epoch's batches, see `current`."""
        self.ids = super().draw()
        pairs = self._pairs()
        self.current = [(pairs[0, groups], pairs[1, groups]) for groups in self.ids]
        return self.current

    def _pairs(self) -> Tensor:
        """Return the indices of the first and the second member of every group, `[2, G]`; equal for a single."""
        place = torch.zeros(2, self.num_graphs, dtype=torch.long)  # of the member in its group
        if self.shuffle:
            drawn = torch.rand(2, self.num_graphs, generator=self.generator, dtype=torch.float64)
            place = drawn.mul_(self._choices).long()
        place[1].add_(place[0]).add_(1).remainder_(self._sizes)  # the second is 1 to size - 1 places after the first
        return self._members[place.add_(self._start)]


def segments(groups: Sequence[Any] | Tensor, singles: Singles) -> tuple[Tensor, Tensor, Tensor]:
    """Return the graphs sorted by group `[n]`, and the start and size of each group that gives pairs, `[G]`.

    Groups are in the order of their first graph; a graph without a group is a group of its own.
    """
    values, number = GroupNumbers()(groups).unique(return_inverse=True)
    alone = values[number] == NO_GROUP
    number[alone] = len(values) + torch.arange(int(alone.sum()))
    members, ptr = group(number, len(values) + int(alone.sum()))
    sizes = ptr.diff()
    kept = (sizes >= (2 if singles == "drop" else 1)).nonzero().flatten()
    kept = kept[members[ptr[kept]].argsort()]
    return members, ptr[kept], sizes[kept]
