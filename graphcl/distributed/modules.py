"""Train one module on several ranks: average its gradients, and share the statistics of its BatchNorm.

By default each rank normalises by the statistics of its own shard, which is faster; running statistics are averaged
after an epoch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
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


AnyModule = TypeVar("AnyModule", bound=nn.Module)


class GlobalBatchNorm(nn.BatchNorm1d):
    r"""BatchNorm1d over the rows `[N, H]` of all ranks; on one rank and in evaluation it equals `BatchNorm1d`.

    $$m = \frac{\sum_r n_r m_r}{\sum_r n_r}, \qquad
    v = \frac{\sum_r \big( n_r v_r + n_r (m_r - m)^2 \big)}{\sum_r n_r}$$

    where $n_r$, $m_r$ and $v_r$ are the number, mean and variance of the rows of rank r, and m and v the mean and
    variance of all rows. Ranks may have different numbers of rows. The forward and the backward pass each exchange
    2 H + 1 numbers once, and the formula avoids cancellation. Arguments, weights and state dict are those of
    `BatchNorm1d`. `torch.nn.SyncBatchNorm` computes the same on CUDA, but does not support the CPU.

    References:
        Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance: Analysis and Recommendations", The
        American Statistician 1983, Eq. 1.5.
    """

    @property
    def is_usual(self) -> bool:
        """Whether the layer currently equals `BatchNorm1d`: on one rank, or in evaluation mode."""
        return ranks.size() == 1 or not self.training

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows of `x [N, H]`."""
        if self.is_usual:
            return super().forward(x)
        if x.dim() != 2:
            raise InputError(f"BatchNorm over several ranks takes rows [N, {self.num_features}], got {list(x.shape)}.")
        rows = x if x.dtype == torch.float64 else x.float()
        center = rows.mean(dim=0)
        local = torch.cat([rows.new_full((1,), rows.size(0)), center, (rows - center).square().sum(dim=0)])
        count, means, scatters = ranks.gather(local[None]).split([1, self.num_features, self.num_features], dim=1)
        total = count.sum()
        mean = (count * means).sum(dim=0) / total
        variance = (scatters + count * (means - mean).square()).sum(dim=0) / total
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            unbiased = variance.detach() * (total / (total - 1))
            self.num_batches_tracked.add_(1)
            weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), weight)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), weight)
        out = (rows - mean) * (variance + self.eps).rsqrt()
        if self.affine:
            out = out * self.weight + self.bias
        return out.to(x.dtype)


def synchronise(module: AnyModule) -> AnyModule:
    """Turn every `BatchNorm1d` in `module` into a `GlobalBatchNorm` in place, and return `module`.

    Weights and state are kept. PyG's `BatchNorm` is covered, as it contains a `BatchNorm1d`. On several ranks, `GIN`
    then trains with torch's operations instead of its compiled layers.

    Example:
        >>> from graphcl.models.gin import GIN
        >>> type(synchronise(GIN(7, hidden_channels=32)).norms[0]).__name__
        'GlobalBatchNorm'
    """
    for layer in module.modules():
        if type(layer) is nn.BatchNorm1d:
            # Change only the class, so that hooks and optimisers that refer to the layer stay valid.
            layer.__class__ = GlobalBatchNorm
    return module


@torch.no_grad()
def average_statistics(module: nn.Module) -> None:
    """Average the running statistics of every BatchNorm in `module` over ranks, in place.

    Call this function on all ranks at the end of an epoch, before the model is scored or saved.
    """
    if ranks.size() == 1:
        return
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    statistics = [values for norm in norms for values in (norm.running_mean, norm.running_var) if values is not None]
    if statistics:
        mean = ranks.sum_over_ranks(torch.cat(statistics)) / ranks.size()
        for values, average in zip(statistics, mean.split([values.numel() for values in statistics]), strict=True):
            values.copy_(average)
