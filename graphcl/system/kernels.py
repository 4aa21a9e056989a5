"""Triton where it is installed; modules with kernels must be importable without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:  # as with PyTorch for the CPU
    triton = tl = None


def jit(*not_specialised: str) -> Callable[[Any], Any]:
    """Return a decorator that makes a function a Triton kernel, or returns it unchanged without Triton.

    No variants are compiled for values of the integer arguments `not_specialised`.
    """
    return triton.jit(do_not_specialize=not_specialised) if triton else lambda function: function
