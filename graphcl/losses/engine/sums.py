"""The description of the sums over negatives that tiles compute, and the interface of the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from graphcl.losses.engine.comparison import Comparison, Mask
from graphcl.losses.engine.exponent import Exponent


@dataclass(frozen=True)
class Block:
    """Matrix of the similarities of two sets of rows, to be divided into tiles.

    Args:
        rows: index of the set that gives the rows.
        columns: index of the set that gives the columns.
        both: whether the columns are anchors too, with the rows as keys.
        mask: pairs that are not negatives.
    """

    rows: int
    columns: int
    both: bool
    mask: Mask | None


@dataclass(frozen=True)
class Sums:
    """Description of the sums over negatives that the tiles compute.

    Args:
        comparison: sets of anchors and keys, detached.
        exponents: one exponent P for each sum of e^P.
        expected: whether to compute also, for each sum, the mean similarity with weights e^P.
    """

    comparison: Comparison
    exponents: tuple[Exponent, ...]
    expected: bool

    def small(self, exponent: Exponent) -> bool:
        """Return whether e^P, with P = `exponent`, can neither overflow nor underflow and needs no running maximum."""
        return self.comparison.similarity == "cosine" and exponent.is_small

    @property
    def blocks(self) -> list[Block]:
        """Blocks to compute. Two sets that are compared in both directions share one block."""
        key_sets = self.comparison.key_sets
        result = []
        for anchors, keys_of in enumerate(key_sets):
            for keys, mask in keys_of:
                back = keys < len(key_sets) and (anchors, mask) in key_sets[keys]
                if not (back and keys < anchors):
                    result.append(Block(anchors, keys, back, mask))
        return result


class Tiles(Protocol):
    """Interface of the modules that compute sums and their gradients tile by tile."""

    def forward(self, sums: Sums) -> tuple[list[Tensor], list[Tensor]]:
        """Return two sums over the negatives of each anchor, for each of the K exponents P of `sums`.

        Returns:
            The logs of the sums of e^P, and the means of the similarities with weights e^P. Each list has one tensor
            `[K, N]` per set of N anchors. The means are valid only if `sums.expected`.
        """

    def backward(
        self,
        sums: Sums,
        totals: list[Tensor],
        grad_totals: list[Tensor],
        grad_expected: list[Tensor],
        wanted: list[bool],
    ) -> list[Tensor | None]:
        """Return the gradient with respect to each set of rows.

        Args:
            sums: sums to differentiate.
            totals: logsumexps returned by `forward`.
            grad_totals: gradients with respect to the logsumexps, `[K, N]` for each set of anchors.
            grad_expected: gradients with respect to the mean similarities, `[K, N]` for each set of anchors.
            wanted: whether the gradient of each set is needed; the result is None if not.
        """
