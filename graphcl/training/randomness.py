"""Save and restore the states of all random generators that training uses."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch


class Generators:
    """The random generators of a training run: its own, and the global ones, from which transforms and layers may draw.

    Args:
        device: training device; a CUDA device has a global generator of its own.
        **own: the run's own generators by name; names with the value None are ignored.

    Example:
        >>> views = torch.Generator().manual_seed(0)
        >>> generators = Generators(torch.device("cpu"), views=views)
        >>> state = generators.state()
        >>> first = torch.rand(2, generator=views)
        >>> generators.restore(state)
        >>> torch.equal(first, torch.rand(2, generator=views))
        True
    """

    def __init__(self, device: torch.device, **own: torch.Generator | None) -> None:
        self._device = device
        self._own = {name: generator for name, generator in own.items() if generator is not None}

    def state(self) -> dict[str, Any]:
        """Return the states of all generators as plain values and tensors, which load without running code."""
        version, numbers, gauss = random.getstate()
        kind, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state(legacy=True))
        return {
            "own": {name: generator.get_state() for name, generator in self._own.items()},
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
            "numpy": [str(kind), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(cached)],
            "python": [version, torch.tensor(numbers), gauss],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Set all generators to a result of `state()`; own generators without an entry stay unchanged."""
        self.restore_own(state["own"])
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], self._device)
        kind, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers.tolist()), gauss))

    def restore_own(self, states: dict[str, Any]) -> None:
        """Set the run's own generators to `states`, by name; generators without an entry stay unchanged.

        A state from another type of device does not fit; its generator stays unchanged, and its draws are new.
        """
        for name in self._own.keys() & states.keys():
            if len(states[name]) == len(self._own[name].get_state()):
                self._own[name].set_state(states[name])
            else:
                warn_of_new_draws("saved on another type of device, resumed here")


def warn_of_new_draws(reason: str, new: str = "the batches are equal, but the views are new draws") -> None:
    """Print that a resumed run is not bit-identical to an uninterrupted run, and why."""
    print(f"graphcl: {reason}: {new}, so the result is not bit-identical.", file=sys.stderr)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator within a `with` block, for initial weights; no generator changes outside."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed the CUDA generators
        yield
