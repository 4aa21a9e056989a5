"""Define a queue of keys, which are negatives in later batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphcl.errors import InputError
from graphcl.losses.engine.checks import check_labels


class KeyQueue(nn.Module):
    """First-in, first-out queue of keys, initially empty. Its size need not be a multiple of the batch size.

    Args:
        size: capacity, >= 0.
        width: number of columns D of a key.

    Example:
        >>> queue = KeyQueue(3, 2)
        >>> queue.add(torch.eye(2), torch.tensor([4, 5]))
        >>> queue.add(-torch.eye(2), torch.tensor([6, 7]))
        >>> sorted(queue.ids.tolist())
        [5, 6, 7]
    """

    _keys: Tensor
    _ids: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        if size < 0:
            raise InputError(f"`size` of a queue must be at least 0, got {size}.")
        self.register_buffer("_keys", torch.zeros(size, width))
        self.register_buffer("_ids", torch.full((size,), -1))
        # Keep the fill level in Python numbers, as reading a tensor would synchronise with the device.
        self._filled, self._next = 0, 0

    def __len__(self) -> int:
        return self._filled

    @property
    def keys(self) -> Tensor:
        """Keys in the queue, `[Q, D]`, in arbitrary order."""
        return self._keys[: self._filled]

    @property
    def ids(self) -> Tensor:
        """Index of the graph of each key, `[Q]`; -1 if unknown."""
        return self._ids[: self._filled]

    @torch.no_grad()
    def add(self, keys: Tensor, ids: Tensor | None = None) -> None:
        """Append `keys [B, D]` of the graphs `ids [B]`; beyond the capacity, the oldest keys are overwritten."""
        size = self._ids.numel()
        if keys.dim() != 2 or keys.size(1) != self._keys.size(1):
            raise InputError(f"`keys` must be [B, {self._keys.size(1)}], got {list(keys.shape)}.")
        if ids is not None:
            check_labels("ids", ids, keys.size(0))
        if size == 0:
            return
        ids = torch.full((keys.size(0),), -1, device=keys.device) if ids is None else ids
        keys, ids = keys[-size:], ids[-size:]
        count = keys.size(0)
        first = min(count, size - self._next)  # the buffer is circular, so the rest goes to its start
        for start, part in ((self._next, slice(0, first)), (0, slice(first, count))):
            length = part.stop - part.start
            self._keys[start : start + length] = keys[part].to(self._keys.dtype)
            self._ids[start : start + length] = ids[part]
        self._next = (self._next + count) % size
        self._filled = min(size, self._filled + count)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the fill level and the next position to write, for `state_dict`."""
        return {"filled": self._filled, "next": self._next}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore `state`, a result of `get_extra_state`."""
        self._filled, self._next = state["filled"], state["next"]
