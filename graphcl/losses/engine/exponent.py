"""Exponents P, polynomials of the similarity c, for sums of exp(P(c)) over negatives.

Many losses are a (weighted) logsumexp of the negatives minus the positive. They sum exp(P(c)) over the negatives, where
P(c) is c / tau (InfoNCE), the logarithm of a Gaussian (ADNCE), or the sum of both. Part of P can be detached. The
engines need no other description of such a loss.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from graphcl.errors import InputError

Coefficients = tuple[float, ...]
"""Coefficients of a polynomial; those that depend on a learned temperature are scalar tensors."""
Value = TypeVar("Value", float, Tensor)


@dataclass(frozen=True)
class Exponent:
    r"""The polynomial $P(c) = \sum_k (\text{free}_k + \text{frozen}_k)\,(c - \text{center})^k$.

    Here c is the similarity. Only the terms in `free` are differentiated. Exponents can be added:
    `linear(5.0) + gaussian(0.7, 1.0, frozen=True)`.

    Args:
        free: coefficients of the part with a gradient, lowest power first, degree at most 4.
        frozen: coefficients of the detached part, lowest power first, degree at most 4.
        center: origin of the powers. Use the mean of a narrow Gaussian: powers of c itself would suffer cancellation.
    """

    free: Coefficients
    frozen: Coefficients = ()
    center: float = 0.0

    def __post_init__(self) -> None:
        if max(len(self.free), len(self.frozen)) > 5:
            raise InputError(f"an exponent must have degree 4 or less, got {self}.")

    def __add__(self, other: Exponent) -> Exponent:
        # Keep the center of the exponent of higher degree, whose coefficients are smallest about its own center.
        if len(other.total) > len(self.total):
            return other + self
        free, frozen = (
            _sum(mine, _shifted(theirs, self.center - other.center))
            for mine, theirs in ((self.free, other.free), (self.frozen, other.frozen))
        )
        return Exponent(free, frozen, self.center)

    @property
    def total(self) -> Coefficients:
        """Coefficients of P: the sum of `free` and `frozen`."""
        return _sum(self.free, self.frozen)

    @property
    def slope(self) -> Coefficients:
        """Coefficients of the derivative of the part `free`, in powers of c - `center`."""
        return tuple(k * value for k, value in enumerate(self.free) if k > 0)

    @property
    def is_learned(self) -> bool:
        """Whether a coefficient depends on a learned temperature."""
        return any(isinstance(value, Tensor) for value in self.free)

    def constant(self) -> Exponent:
        """Return the exponent with plain numbers as coefficients; waits for the device if the exponent is learned."""
        if not self.is_learned:
            return self
        free = (float(value.detach()) if isinstance(value, Tensor) else value for value in self.free)
        return Exponent(tuple(free), self.frozen, self.center)

    def varied(self, total: Tensor, mean: Tensor) -> Tensor:
        r"""Return the logsumexps `total [A]` with a gradient by learned coefficients of degree 0 and 1.

        The derivative by the coefficient of $(c - \text{center})^k$ is the mean of this power with weights e^P. `mean
        [A]` is the mean of c, see `Pairs.expectation`.
        """
        for coefficient, power in zip(self.free, (1.0, mean - self.center), strict=False):
            if isinstance(coefficient, Tensor):
                total = total + (coefficient - coefficient.detach()) * power
        return total

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether |P| < 60 on all cosines. A float32 sum of a million terms e^P is then finite."""
        return all(abs(float(horner(self.total, c / 64 - self.center))) < 60 for c in range(-65, 66))

    def __call__(self, similarity: Tensor) -> Tensor:
        """Return P(c) for each entry of `similarity`. Only the part `free` is differentiated."""
        offset = similarity - self.center if self.center else similarity
        value = horner(self.free, offset)
        return value + horner(self.frozen, offset.detach()) if self.frozen else value


def linear(factor: float) -> Exponent:
    """Return the exponent `factor * c`; `linear(1 / temperature)` is the exponent of InfoNCE."""
    return Exponent((0.0, factor))


def gaussian(mu: float, sigma: float, frozen: bool = True) -> Exponent:
    r"""Return the exponent $-(c - \mu)^2 / 2 \sigma^2$, the logarithm of a Gaussian of the similarity c."""
    coefficients = (0.0, 0.0, -min(0.5 / sigma / sigma, 1e25))
    return Exponent((), coefficients, mu) if frozen else Exponent(coefficients, (), mu)


def horner(coefficients: Coefficients, x: Value) -> Value:
    """Return the polynomial with these coefficients (lowest power first) evaluated at `x`, in the shape of `x`."""
    value: float | Value = coefficients[-1] if coefficients else 0.0
    for coefficient in reversed(coefficients[:-1]):
        value = value * x
        if isinstance(coefficient, Tensor) or coefficient:  # the truth of a tensor would wait for the device
            value = value + coefficient
    if isinstance(x, Tensor) and not isinstance(value, Tensor):
        return torch.full_like(x, value)
    return value


def _sum(a: Coefficients, b: Coefficients) -> Coefficients:
    return tuple(x + y for x, y in itertools.zip_longest(a, b, fillvalue=0.0))


def _shifted(coefficients: Coefficients, delta: float) -> Coefficients:
    """Return the coefficients of the same polynomial in powers about a center shifted by `delta`."""
    n = len(coefficients)
    return tuple(
        sum(coefficients[k] * math.comb(k, power) * delta ** (k - power) for k in range(power, n)) for power in range(n)
    )
