"""A queue of keys: negatives from earlier batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphcl.errors import InputError
from graphcl.losses.engine.checks import check_labels


class KeyQueue(nn.Module):
    """The last keys, first in, first out; empty at first, never filled with noise.

    Its size need not be a multiple of the batch's: the oldest keys go, one for each new one.

    Args:
        size: keys at most, >= 0.
        width: D of a key.

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
        # Plain numbers, so that no step has to ask the device for them.
        self._filled, self._next = 0, 0

    def __len__(self) -> int:
        return self._filled

    @property
    def keys(self) -> Tensor:
        """The keys `[Q, D]`, in no order that matters."""
        return self._keys[: self._filled]

    @property
    def ids(self) -> Tensor:
        """The graphs they are of `[Q]`; -1 where that was not known."""
        return self._ids[: self._filled]

    @torch.no_grad()
    def add(self, keys: Tensor, ids: Tensor | None = None) -> None:
        """Append keys `[B, D]` of some graphs `[B]`; of more than the queue holds, the last ones."""
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
        first = min(count, size - self._next)  # up to the end, the rest from the start
        for start, part in ((self._next, slice(0, first)), (0, slice(first, count))):
            length = part.stop - part.start
            self._keys[start : start + length] = keys[part].to(self._keys.dtype)
            self._ids[start : start + length] = ids[part]
        self._next = (self._next + count) % size
        self._filled = min(size, self._filled + count)

    def get_extra_state(self) -> dict[str, Any]:
        """For `state_dict`: how far it is filled."""
        return {"filled": self._filled, "next": self._next}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """From `load_state_dict`."""
        self._filled, self._next = state["filled"], state["next"]
