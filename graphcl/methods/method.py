"""What every method is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import losses

LossOfViews = Callable[..., Tensor]
"""A `Loss`, or any function of two sides' projections."""
AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass(frozen=True)
class Outcome:
    """What a method made of a batch.

    Args:
        loss: the value to be minimised, a scalar.
        h: embeddings of the first view `[B, H]`.
        z1: what the loss compared, first side `[B, D]` (of nodes: one of each graph).
        z2: second side `[B, D]`.
    """

    loss: Tensor
    h: Tensor
    z1: Tensor
    z2: Tensor


class Method(nn.Module, ABC):
    """A model, a loss, and the way from a batch's views to a value.

    Across ranks (`graphcl.distributed`) a method gets a rank's shard of the batch; the mean of its values over ranks
    is that of the global batch. The draws of the views are each rank's own. A method that compares graphs by a
    registered loss alone has nothing to do for that; one that keeps something of the batch gathers it.

    Args:
        model: encoder and projector, which training is for.
        loss: of the two sides' projections.
    """

    def __init__(self, model: ContrastiveModel, loss: LossOfViews) -> None:
        super().__init__()
        self.model, self.loss = model, _as_loss(loss)

    @abstractmethod
    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """The loss of a batch.

        Args:
            view1: first view of B graphs.
            view2: second view of the same graphs.
            ids: which graphs of the data set they are, `[B]`, where that is known.
            generator: source of whatever the method draws.
        """

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """What makes the two views, of what the user chose to make them; a method may put its own in their place."""
        return first, second

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """The loss's value of an argument; `otherwise` where it has none, or is a function of one's own."""
        return self.loss.setting(argument, otherwise) if isinstance(self.loss, Loss) else otherwise

    def after_step(self) -> None:
        """To be called when the optimiser has made its step."""

    def after_epoch(self) -> dict[str, float]:
        """To be called when an epoch is over; gives what is to be logged of it."""
        return {}


def _as_loss(loss: LossOfViews) -> LossOfViews:
    """A registered function as the `Loss` that it is; any other callable as it is."""
    if not callable(loss):
        raise InputTypeError(f"`loss` must be a Loss or a function of two sides' projections, got {loss!r}.")
    name = next((each for each in losses if losses[each] is loss), None)
    if name is not None:
        loss = Loss(name)
    if isinstance(loss, Loss) and loss.setting("reduction", "mean") != "mean":
        raise InputError(f"`reduction` must be 'mean' for training, got {loss.setting('reduction')!r}.")
    return loss


def slow_copy(module: AnyModule) -> AnyModule:
    """A copy without gradients."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """slow <- momentum slow + (1 - momentum) fast, over all parameters."""
    targets: list[Tensor] = list(slow.parameters())
    sources: list[Tensor] = list(fast.parameters())
    torch._foreach_lerp_(targets, sources, 1 - momentum)


def need_repulsion(loss: LossOfViews, method: str) -> None:
    """Refuse a registered loss under which all graphs of one encoder would collapse."""
    if isinstance(loss, Loss) and losses.facts(loss.name)["gathering"] == "local":
        raise InputError(
            f"loss `{loss.name}` pushes nothing apart, so with method `{method}` all graphs would collapse into one "
            f"point; use method `{losses.facts(loss.name)['method']}`."
        )


def need(loss: LossOfViews, arguments: tuple[str, ...], method: str) -> None:
    """Refuse a registered loss without the arguments that a method passes on."""
    if isinstance(loss, Loss) and (missing := [each for each in arguments if not loss.accepts(each)]):
        raise InputError(
            f"method `{method}` passes {' and '.join(f'`{each}`' for each in missing)} to the loss, which "
            f"`{loss.name}` does not take; try infonce, adnce or another loss that does."
        )
