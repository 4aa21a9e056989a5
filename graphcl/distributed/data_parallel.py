"""Average gradients over ranks by `DistributedDataParallel`, optionally in a deterministic order."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graphcl.distributed import ranks
from graphcl.errors import InputError


def data_parallel(module: nn.Module, device: torch.device) -> nn.Module:
    """Return a wrapper of `module` that averages gradients over ranks in the backward pass.

    Without several ranks, return `module` itself. With `torch.use_deterministic_algorithms(True)`, gradients are summed
    in rank order, so that a resumed run is bit-identical to an uninterrupted run. This is slower, as the sum does not
    overlap with the backward pass. Otherwise the order depends on the gradient buckets, which `DistributedDataParallel`
    rebuilds after the first step, so the last bits can differ with more than two ranks.
    """
    if (joined := ranks.current()) is None:
        return module
    # Do not synchronise buffers: statistics of BatchNorm are averaged after each epoch, queues and banks are equal.
    parameters = inspect.signature(DistributedDataParallel).parameters
    sync = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    buffers: dict[str, Any] = {sync: False}
    devices = [device] if device.type == "cuda" else None
    parallel = DistributedDataParallel(module, device_ids=devices, process_group=joined.group, **buffers)
    if torch.are_deterministic_algorithms_enabled():
        # Use a lambda without annotations: DDP checks a hook's annotations, which are strings in this file.
        parallel.register_comm_hook(joined, lambda joined, bucket: _mean_in_rank_order(joined, bucket))
    return parallel


@contextmanager
def explain_unused_parameters() -> Iterator[None]:
    """Convert DistributedDataParallel's error about parameters without a gradient into an InputError."""
    try:
        yield
    except RuntimeError as error:
        if "Expected to have finished reduction" not in str(error):
            raise
        raise InputError(
            "with several ranks every trainable parameter must contribute to each step's loss; remove unused layers, "
            "or freeze them with requires_grad_(False)."
        ) from None


def _mean_in_rank_order(joined: ranks.Collectives, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    flat = bucket.buffer()
    done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[flat.device] if flat.is_cuda else None)
    done.set_result(joined.summed_in_order(flat).div_(joined.size))
    return done
