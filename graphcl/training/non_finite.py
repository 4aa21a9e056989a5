"""Handle a NaN or infinite loss or gradient: raise an error, or skip the step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.methods import KeyQueue, Method


class NonFiniteLossError(InputError):
    """The loss or the weights became NaN or infinite."""


class StopAtEpochEnd:
    """Let every step run: training checks all losses and the weights at the end of an epoch, to wait for them once."""

    skips = False

    def __init__(self, method: Method) -> None:
        self.method = method

    def begin(self) -> None:
        """Prepare to undo a step."""

    def finite(self, *values: Tensor | None) -> bool:
        """Return whether the step may go on: every value is given and finite, on all ranks."""
        return True

    def undo(self) -> None:
        """Restore the state before the step."""


class SkipStep(StopAtEpochEnd):
    """Skip a step whose projections, loss or gradient are not finite on any rank; it leaves all state unchanged."""

    skips = True

    def begin(self) -> None:
        """Copy the tensors that the forward pass may change."""
        self._before = [(each, each.clone()) for each in _changed_by_forward(self.method)]

    def finite(self, *values: Tensor | None) -> bool:
        """Return whether every value is given and finite on all ranks; synchronises with the device.

        All ranks must agree before a backward pass: if only some skipped it, the others would wait for them forever.
        """
        (skipped,) = ranks.any_rank(not all(value is not None and bool(value.isfinite()) for value in values))
        return not skipped

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the tensors that the forward pass has changed."""
        for each, value in self._before:
            each.copy_(value)


REACTIONS: dict[str, type[StopAtEpochEnd]] = {"stop": StopAtEpochEnd, "skip": SkipStep}
"""Setting `non_finite` -> class."""


def all_finite(weights: Sequence[Tensor]) -> bool:
    """Return True if all weights are finite. A rare check suffices: after one NaN gradient, weights stay NaN."""
    return all(map(math.isfinite, torch.stack(torch._foreach_norm(list(weights))).tolist()))


def non_finite_error(
    problem: str, epoch: int, step: int, batches: Sequence[Tensor] | None, number: int
) -> NonFiniteLossError:
    """Return an error that names the epoch, the step and the batch's first graphs, and suggests remedies.

    Args:
        problem: start of the message: which value became NaN or infinite.
        epoch: number of the epoch, from 1.
        step: number of the step in the epoch, from 1.
        batches: indices of the graphs in each batch of the epoch, if known.
        number: index of the step's batch in `batches`; negative if `batches` does not contain it.
    """
    place = f"epoch {epoch}, step {step}"
    if batches:
        place += f" of {len(batches)}"
        if number >= 0:
            place += f", graphs {', '.join(map(str, torch.as_tensor(batches[number][:8]).tolist()))}, ..."
    return NonFiniteLossError(
        f"{problem} at {place}; try a smaller learning rate, `clip_norm: 1.0`, a larger temperature, or `amp: false`, "
        "and look for extreme values in the node features."
    )


def _changed_by_forward(method: Method) -> list[Tensor]:
    """Return the tensors that the forward pass may change: BatchNorm statistics and the weights of momentum encoders.

    Queues are excluded, as only `Method.after_step` changes them.
    """
    found: list[Tensor] = [each for each in method.parameters() if not each.requires_grad]
    for part in method.children():
        found += [] if isinstance(part, KeyQueue) else part.buffers()
    return found
