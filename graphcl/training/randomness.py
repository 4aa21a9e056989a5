"""Every source of randomness that training draws from, so that a training goes on where it stopped, bit by bit."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor


class Generators:
    """The generators of a training: its own, and the global ones of torch, NumPy and Python.

    A transform or a layer of the user's may draw from the global ones, as `torch.nn.Dropout` does.

    Args:
        device: where the training computes; CUDA has a global generator of its own.
        **own: further generators by name; None is left out.

    Example:
        >>> own = torch.Generator().manual_seed(0)
        >>> generators = Generators(torch.device("cpu"), views=own)
        >>> state = generators.state()
        >>> first = torch.rand(2, generator=own)
        >>> generators.restore(state)
        >>> torch.equal(first, torch.rand(2, generator=own))
        True
    """

    def __init__(self, device: torch.device, **own: torch.Generator | None) -> None:
        self._device = device
        self._own = {name: each for name, each in own.items() if each is not None}

    def state(self) -> dict[str, Any]:
        """Where they stand: tensors, numbers and lists only, so that it can be loaded without running code."""
        version, numbers, gauss = random.getstate()
        kind, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state(legacy=True))
        return {
            "own": {name: each.get_state() for name, each in self._own.items()},
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
            "numpy": [str(kind), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(cached)],
            "python": [version, torch.tensor(numbers), gauss],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Put them where they stood; a generator that is not in `state` stays where it is."""
        for name, each in self._own.items():
            if name in state["own"]:
                each.set_state(state["own"][name])
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and isinstance(state.get("cuda"), Tensor):
            torch.cuda.set_rng_state(state["cuda"], self._device)
        if "numpy" in state:
            kind, keys, position, has_gauss, cached = state["numpy"]
            np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        if "python" in state:
            version, numbers, gauss = state["python"]
            random.setstate((version, tuple(numbers.tolist()), gauss))
