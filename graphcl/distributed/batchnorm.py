"""BatchNorm across ranks: statistics of the global batch, and running ones that agree at the end.

BatchNorm of a rank's own batch, the usual choice and the quicker one, takes statistics of fewer nodes than one process
with the whole batch would, and each rank's running statistics are its own. `synchronise` makes them those of all ranks'
nodes, `average_statistics` averages the running ones, for the end of an epoch.

torch's own `SyncBatchNorm` refuses tensors on the CPU; on CUDA it does the same by kernels of its own.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from graphcl.distributed import ranks
from graphcl.errors import InputError

AnyModule = TypeVar("AnyModule", bound=nn.Module)


class GlobalBatchNorm(nn.BatchNorm1d):
    r"""BatchNorm whose statistics are those of the rows `[N, H]` of all ranks; on one rank and in evaluation as usual.

    $$m = \frac{\sum_r n_r m_r}{\sum_r n_r}, \qquad
    v = \frac{\sum_r \big( n_r v_r + n_r (m_r - m)^2 \big)}{\sum_r n_r}$$

    from each rank's number of rows, mean and variance: one exchange of 2 H + 1 numbers forward and one backward, and no
    cancellation. Ranks may have different numbers of rows. Arguments, weights and state are those of `BatchNorm1d`.

    References:
        Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance: Analysis and Recommendations", The
        American Statistician 1983, Eq. 1.5.
    """

    @property
    def is_usual(self) -> bool:
        """Whether it does now what `BatchNorm1d` does."""
        return ranks.size() == 1 or not self.training

    def forward(self, x: Tensor) -> Tensor:
        """Rows `[N, H]`, normalised.

        Raises:
            InputError: across ranks, not a matrix.
        """
        if self.is_usual:
            return super().forward(x)
        if x.dim() != 2:
            raise InputError(f"BatchNorm across ranks takes rows [N, {self.num_features}], got {list(x.shape)}.")
        rows = x if x.dtype == torch.float64 else x.float()
        own = rows.mean(dim=0)
        told = torch.cat([rows.new_tensor([rows.size(0)]), own, (rows - own).square().sum(dim=0)])
        count, means, scatters = ranks.gather(told[None]).split([1, self.num_features, self.num_features], dim=1)
        total = count.sum()
        mean = (count * means).sum(dim=0) / total
        variance = (scatters + count * (means - mean).square()).sum(dim=0) / total
        self._follow(mean, variance * (total / (total - 1)))
        out = (rows - mean) * (variance + self.eps).rsqrt()
        if self.affine:
            out = out * self.weight + self.bias
        return out.to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics, after a batch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def synchronise(module: AnyModule) -> AnyModule:
    """The module, every `BatchNorm1d` in it a `GlobalBatchNorm` of the same weights and state; changed in place.

    That within PyG's `BatchNorm` too. Where there are other ranks, the compiled layers of `GIN`, which know of none,
    give way to torch's operations in training.

    Example:
        >>> from graphcl.models.gin import GIN
        >>> type(synchronise(GIN(7, hidden=32)).norms[0]).__name__
        'GlobalBatchNorm'
    """
    for each in module.modules():
        if type(each) is nn.BatchNorm1d:
            # The class alone, so that weights, hooks and optimisers that know the module stay what they are.
            each.__class__ = GlobalBatchNorm
    return module


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running statistics of every BatchNorm in a module, which are each rank's own within an epoch, by name."""
    norms = {name: each for name, each in module.named_modules() if isinstance(each, _BatchNorm)}
    return {f"{name}.{key}": buffer for name, norm in norms.items() for key, buffer in norm.named_buffers()}


@torch.no_grad()
def average_statistics(module: nn.Module) -> None:
    """Average the running statistics of every BatchNorm in a module over ranks, so that all ranks have the same.

    All ranks call it, with modules of one form: at the end of an epoch, before anything is scored or saved.
    """
    norms = [each for each in module.modules() if isinstance(each, _BatchNorm)]
    statistics = [each for norm in norms for each in (norm.running_mean, norm.running_var) if each is not None]
    if ranks.size() > 1 and statistics:
        mean = ranks.sum_over_ranks(torch.cat(statistics)) / ranks.size()
        for into, each in zip(statistics, mean.split([each.numel() for each in statistics]), strict=True):
            into.copy_(each)
