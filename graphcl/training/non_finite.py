"""Handle a NaN or infinite loss or gradient: raise an error, or skip the step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphcl.distributed import ranks
from graphcl.errors import InputError
from graphcl.losses.engine.checks import NonFiniteInputError
from graphcl.methods import KeyQueue, Method, Outcome
from graphcl.training.step import Step


class NonFiniteLossError(InputError):
    """The loss or the weights became NaN or infinite."""


def step_or_skip(step: Step, view1: Batch, view2: Batch, ids: Tensor | None) -> Outcome | None:
    """Run one training step and return its outcome, or skip the step and return None.

    The step is skipped if the projections, the loss or the gradient are not finite on any rank. A skipped step leaves
    all state unchanged.
    """
    before = [(each, each.clone()) for each in _changed_by_forward(step.method)]
    try:
        outcome = step.forward(view1, view2, ids)
    except NonFiniteInputError:
        outcome = None
    # all ranks agree before the backward pass: if only some ranks skipped it, the others would wait for them forever
    (skipped,) = ranks.any_rank(outcome is None)
    if outcome is not None and not skipped:
        norm = step.backward(outcome.loss)
        finite = torch.isfinite(outcome.loss.detach()) & torch.isfinite(torch.as_tensor(norm))
        if not ranks.any_rank(not bool(finite))[0]:
            step.update()
            return outcome
    with torch.no_grad():
        for each, value in before:
            each.copy_(value)
    return None


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
