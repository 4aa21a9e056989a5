"""Define the base class of all methods, and functions that several methods use."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphcl.augment.transform import Augmentation
from graphcl.errors import InputError, InputTypeError
from graphcl.losses import Loss
from graphcl.models.contrastive import ContrastiveModel
from graphcl.registry import losses, methods

LossOfViews = Callable[..., Tensor] | str
"""A `Loss` or its name, or any function that returns the loss of two tensors of projections."""
AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass(frozen=True)
class Outcome:
    """Result of a method on one batch: the loss and the tensors that it compared.

    Args:
        loss: value to minimise, a scalar.
        h: embeddings of the first view, `[B, H]`; of its first piece, if views are encoded in pieces.
        z1: anchors, `[B, D]`; if anchors are nodes, one node per graph.
        z2: positives of the anchors, `[B, D]`.

    Raises:
        InputError: `loss` is not a tensor of one element.
    """

    loss: Tensor
    h: Tensor
    z1: Tensor
    z2: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Tensor) or self.loss.numel() != 1:
            got = f"shape {list(self.loss.shape)}; use .mean()" if isinstance(self.loss, Tensor) else repr(self.loss)
            raise InputError(f"the loss must be a scalar tensor, got {got}.")


class Method(nn.Module, ABC):
    """Base class of training methods. A method computes the loss of a model on two views of a batch.

    Across ranks (`graphcl.distributed`) a method receives one rank's shard of the batch. The mean of its losses over
    ranks is the loss of the global batch. Each rank draws its own views. A method that only calls a registered loss
    needs no code for several ranks. A method that keeps state from the batch must gather that state.

    Facts of its registration say what fits a method, and the rest is refused before training. A subclass has the facts
    of its base unless it is registered with its own.

    - `repels="yes"`: it needs a loss that pushes graphs apart; `queue="yes"`: it passes further negatives to the loss.
    - `pairs` lists what it uses of pairs of graphs: `weight`, the weights of pairs (see `weight_of`); `negatives`, the
      graphs of the second view beyond those of the first; `towers`, separate encoders of both views; "no" refuses all.

    Args:
        model: encoder and projector to train.
        loss: loss of anchors and positives, or its name.

    Attributes:
        in_pieces: whether the method passes its views to the model only, so that `micro_batch` bounds its memory.
        capturable: whether `forward` does the same operations in each step and reads no value on the host, so that a
            CUDA graph can replay it.
        divides_nodes: whether all ranks receive the same views of a graph instead, and `forward` divides its nodes.

    Raises:
        InputError: the loss does not fit, or the model has separate towers, which the method does not train.
        InputTypeError: `loss` is neither a loss nor a function.
    """

    in_pieces: ClassVar[bool] = False
    capturable: ClassVar[bool] = False
    divides_nodes: ClassVar[bool] = False

    def __init__(self, model: ContrastiveModel, loss: LossOfViews) -> None:
        super().__init__()
        if isinstance(loss, str):
            loss = Loss(loss)
        elif not callable(loss) or isinstance(loss, type):
            rule = "must be a Loss, its name, or a function of two tensors of projections"
            raise InputTypeError(f"`loss` {rule}, got {loss!r}.")
        registered = [name for name in losses if losses[name] is loss]
        self.model, self.loss = model, Loss(registered[0]) if registered else loss
        if self.setting("reduction", "mean") != "mean":
            raise InputError(f"`reduction` must be 'mean' for training, got {self.setting('reduction')!r}.")
        if self._fact("repels") == "yes":
            require_repulsion(self.loss, self._name)
        if self._fact("queue") == "yes":
            require_arguments(self.loss, ("queue", "symmetric"), self._name)
        if model.role("target") is not model and "towers" not in self._fact("pairs").split():
            raise InputError(
                f"method `{self._name}` trains one encoder only, but the model has `towers` separate; use two_views, "
                "or one encoder."
            )

    @abstractmethod
    def forward(
        self, view1: Batch, view2: Batch, *, ids: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Outcome:
        """Return the loss of a batch and the tensors it compared.

        Args:
            view1: first view of B graphs.
            view2: second view of the same graphs.
            ids: indices of the graphs in the data set, `[B]`, if known.
            generator: random generator for the method's own draws.
        """

    def augmentations(self, first: Augmentation, second: Augmentation) -> tuple[Augmentation, Augmentation]:
        """Return the two augmentations to use. Subclasses can override this method to replace them."""
        return first, second

    @property
    def rows(self) -> str:
        """What the anchors are: `graphs`, or parts of them such as nodes, so that a batch may hold a single graph."""
        return self._fact("rows") or "graphs"

    def check_pairs(self, listed: bool = False, weights: bool = False, negatives: bool = False) -> None:
        """Raise InputError if the method or its loss does not use what pairs of graphs hold.

        Args:
            listed: whether the pairs are a list, whose queries are always the first view.
            weights: whether the pairs have weights.
            negatives: whether the pairs have negatives.
        """
        used = self._fact("pairs").split()
        if "no" in used:
            raise InputError(f"method `{self._name}` encodes one view only, so it takes no pairs; use two_views.")
        message = "the pairs have {}, which {} does not use; leave them out or use {}."
        for held, fact, argument, part in (
            (weights, "weight", "weight", "weights (the column `weight`)"),
            (negatives, "negatives", "queue", "negatives (a column `negative`, a `label` 0, or `hard_negatives`)"),
        ):
            if held and fact not in used:
                raise InputError(message.format(part, f"method `{self._name}`", "two_views"))
            if held and not self._passes(argument):
                loss = getattr(self.loss, "name", "given")
                raise InputError(message.format(part, f"loss `{loss}`", "infonce"))

    def _passes(self, argument: str) -> bool:
        """Return whether the loss, registered or a function, takes `argument`."""
        if isinstance(self.loss, Loss):
            return self.loss.accepts(argument)
        parameters = inspect.signature(self.loss).parameters
        return argument in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())

    def _fact(self, key: str) -> str:
        """Return a fact that the class, or the first of its bases with such a fact, is registered with; else ""."""
        facts = {methods[name]: methods.facts(name) for name in methods}
        return next((facts[kind][key] for kind in type(self).__mro__ if key in facts.get(kind, ())), "")

    @property
    def _name(self) -> str:
        return next((name for name in methods if methods[name] is type(self)), type(self).__name__)

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """Return the loss's value of `argument`, or `otherwise` if the loss has no such argument or is a function."""
        return self.loss.setting(argument, otherwise) if isinstance(self.loss, Loss) else otherwise

    def loss_with(self, **settings: Any) -> Callable[..., Tensor]:
        """Return the loss with fixed `settings`, so that a training step checks none."""
        return self.loss.with_settings(**settings) if isinstance(self.loss, Loss) else partial(self.loss, **settings)

    def draws(self, generator: torch.Generator | None) -> dict[str, torch.Generator | None]:
        """Return the argument `generator` of a loss that draws random numbers; {} for other losses."""
        drawing = isinstance(self.loss, Loss) and self.loss.accepts("generator")
        return {"generator": generator} if drawing else {}

    def after_step(self) -> None:
        """Update the method's state. Training calls this after each optimiser step."""

    def after_epoch(self) -> dict[str, float]:
        """Update the method's state and return values to log. Training calls this after each epoch."""
        return {}


@contextmanager
def explain_single_row() -> Iterator[None]:
    """Convert BatchNorm's error about a single row into an InputError."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "BatchNorm needs at least two rows to train on, got a batch of one node or one graph; use more data, "
            "larger batches, `drop_last=True` of DataLoader, or an encoder without BatchNorm."
        ) from None


def momentum_copy(module: AnyModule) -> AnyModule:
    """Return a copy of `module` with parameters that need no gradient. Update the copy with `ema_update`."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_update(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """Set every parameter of `target` to momentum * target + (1 - momentum) * source."""
    torch._foreach_lerp_([*target.parameters()], [*source.parameters()], 1 - momentum)


def require_repulsion(loss: LossOfViews, method: str) -> None:
    """Raise InputError if `loss` is a registered loss that does not repel negatives: the encoder would collapse."""
    if isinstance(loss, Loss) and losses.facts(loss.name)["repels"] == "no":
        raise InputError(
            f"loss `{loss.name}` pushes nothing apart, so with method `{method}` all graphs would collapse into one "
            f"point; use method `{losses.facts(loss.name)['method']}`."
        )


def weight_of(view: Batch) -> dict[str, Tensor]:
    """Return the argument `weight [B]` of a loss: the weights of a batch of pairs, see `ListedPairs`; {} without."""
    weight = view.get("pair_weight")
    return {} if weight is None else {"weight": weight}


def require_arguments(loss: LossOfViews, arguments: tuple[str, ...], method: str) -> None:
    """Raise InputError if `loss` is a registered loss that lacks one of the arguments `arguments`."""
    if isinstance(loss, Loss):
        missing = " and ".join(f"`{argument}`" for argument in arguments if not loss.accepts(argument))
        advice = "try infonce, adnce or another loss that does"
        if missing:
            raise InputError(
                f"method `{method}` passes {missing} to the loss, which `{loss.name}` does not take; {advice}."
            )


def require_ids(ids: Tensor | None, method: str) -> Tensor:
    """Return `ids`, the indices of a batch's graphs; raise InputError if they are unknown."""
    if ids is None:
        raise InputError(f"method `{method}` needs the indices of a batch's graphs; use ResidentLoader or make_loader.")
    return ids
