"""The engine `dense`: reductions over a matrix of all similarities, for small batches and second derivatives."""

import torch
from torch import Tensor

from graphcl.losses.pairs import Comparison, Exponent, Pairs, Row, RowFunction
from graphcl.losses.tiled import compiled, sum_negatives


class DensePairs(Pairs):
    """`Pairs` with a matrix of all similarities, and the reference for the tiled engine.

    Where compiled loops can sum exponentials, the matrix is computed for second derivatives and `rows` only.
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(comparison)
        self._compiled, self._differentiable = compiled(comparison), torch.is_grad_enabled()
        self._row = None if self._compiled else comparison.row()

    @property
    def row(self) -> Row:
        """The matrix, see `Comparison.row`."""
        if self._row is None:
            with torch.set_grad_enabled(self._differentiable):  # a formula may ask for it without
                self._row = self.comparison.row()
        return self._row

    def rows(self, function: RowFunction, *per_anchor: Tensor) -> Tensor:
        """Apply `function` to all anchors at once, see `Pairs`."""
        return function(self.row, *per_anchor)

    def logsumexp(self, *exponents: Exponent) -> tuple[Tensor, ...]:
        """Return the logsumexps of the negatives, see `Pairs`."""
        if any(exponent.is_learned for exponent in exponents) or not self._compiled:
            return super().logsumexp(*exponents)
        return sum_negatives(self, exponents, expected=False, dense=True)[0].unbind()

    def expectation(self, exponent: Exponent) -> tuple[Tensor, Tensor]:
        """Return weighted means and logs of the sums of weights, see `Pairs.expectation`."""
        if exponent.is_learned or not self._compiled:
            return self.row.expectation(exponent)
        (total,), (mean,) = sum_negatives(self, (exponent,), expected=True, dense=True)
        return mean, total
