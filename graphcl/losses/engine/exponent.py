"""Exponents of the family's sums: polynomials of the similarity, with a part that the gradient does not see.

Every loss of the form "positive minus (weighted) logsumexp" sums exp(P(c)) over its negatives, P a polynomial of the
similarity c: c / tau (InfoNCE), a Gaussian's logarithm (ADNCE), their sum. That is all an engine needs to know of it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from graphcl.errors import InputError

Coefficients = tuple[float, ...]
Value = TypeVar("Value", float, Tensor)


@dataclass(frozen=True)
class Exponent:
    r"""$P(c) = \sum_k (\text{free}_k + \text{frozen}_k)\,(c - \text{center})^k$; its gradient is that of `free` alone.

    Exponents add up: `linear(5.0) + gaussian(0.7, 1.0, frozen=True)`.

    Args:
        free: coefficients, lowest power first, up to the fourth.
        frozen: coefficients of the part that is a constant to the gradient.
        center: where the powers are taken. A narrow Gaussian written in powers of c itself would cancel.
    """

    free: Coefficients
    frozen: Coefficients = ()
    center: float = 0.0

    def __post_init__(self) -> None:
        if max(len(self.free), len(self.frozen)) > 5:
            raise InputError(f"an exponent is a polynomial up to the fourth power, got {self}.")

    def __add__(self, other: Exponent) -> Exponent:
        # The center of the higher power stays: there its terms are smallest.
        if other.degree > self.degree:
            return other + self
        delta = self.center - other.center
        return Exponent(
            _sum(self.free, _shifted(other.free, delta)), _sum(self.frozen, _shifted(other.frozen, delta)), self.center
        )

    @property
    def degree(self) -> int:
        """The highest power."""
        return max(len(self.free), len(self.frozen)) - 1

    @property
    def total(self) -> Coefficients:
        """Coefficients of the value."""
        return _sum(self.free, self.frozen)

    @property
    def slope(self) -> Coefficients:
        """Coefficients of the derivative that the gradient uses, about the same center."""
        return tuple(k * value for k, value in enumerate(self.free) if k > 0)

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether it stays within plus and minus 60 on cosines: there e^P and a sum of a million of them are finite."""
        return all(abs(float(horner(self.total, c / 64 - self.center))) < 60 for c in range(-65, 66))

    def __call__(self, similarity: Tensor) -> Tensor:
        """The values, with the gradient of the free part."""
        offset = similarity - self.center if self.center else similarity
        value = horner(self.free, offset)
        return value + horner(self.frozen, offset.detach()) if self.frozen else value


def linear(factor: float) -> Exponent:
    """`factor * c`; the logits of a temperature are `linear(1 / temperature)`."""
    return Exponent((0.0, factor))


def gaussian(mu: float, sigma: float, frozen: bool = True) -> Exponent:
    r"""$-(c - \mu)^2 / 2 \sigma^2$, the logarithm of a Gaussian weight; with sigma = inf it is 0."""
    coefficients = (0.0, 0.0, -min(0.5 / sigma / sigma, 1e25))
    return Exponent((), coefficients, mu) if frozen else Exponent(coefficients, (), mu)


def horner(coefficients: Coefficients, x: Value) -> Value:
    """The polynomial's value, of the type and shape of `x`."""
    value: float | Value = coefficients[-1] if coefficients else 0.0
    for coefficient in reversed(coefficients[:-1]):
        value = value * x
        if coefficient:
            value = value + coefficient
    if isinstance(x, Tensor) and not isinstance(value, Tensor):
        return torch.full_like(x, value)
    return value


def _sum(a: Coefficients, b: Coefficients) -> Coefficients:
    longest = max(len(a), len(b))
    a, b = (each + (0.0,) * (longest - len(each)) for each in (a, b))
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _shifted(coefficients: Coefficients, delta: float) -> Coefficients:
    """The same polynomial about a center that lies `delta` higher."""
    n = len(coefficients)
    return tuple(
        sum(coefficients[k] * math.comb(k, power) * delta ** (k - power) for k in range(power, n)) for power in range(n)
    )
