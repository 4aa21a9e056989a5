"""The class `Loss`: a PyTorch module that computes a registered loss with fixed arguments."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcl.arguments import LEARN, LEAST_LEARNED, named_arguments
from graphcl.errors import InputError
from graphcl.losses.engine.register import total
from graphcl.registry import losses


class Loss(nn.Module):
    """PyTorch module that computes a registered loss with fixed arguments.

    With `temperature="learn"`, the temperature tau is learned as in CLIP: the parameter `log_scale` is log(1 / tau). It
    starts at the loss's default, and tau stays at 0.01 or above.

    Args:
        name: registered name, such as `"adnce"`.
        **arguments: keyword arguments of the loss function, checked here and not again in each call.

    Raises:
        InputError: an unknown name, an unknown argument, a value out of range.

    Example:
        >>> Loss("adnce", mu=0.5)
        Loss(adnce, mu=0.5)
        >>> round(float(Loss("infonce", temperature="learn").setting("temperature")), 3)
        0.2

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021, Sec. 2.5
        (arXiv 2103.00020), for the learned temperature.
    """

    @named_arguments
    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        if found := losses.problems(name, arguments):
            raise InputError(" ".join(found))
        self.name, self.arguments = name, arguments
        if self.learns:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(losses.arguments(name).defaults["temperature"])))

    @property
    def learns(self) -> bool:
        """Whether the temperature is a parameter."""
        return bool(self.arguments.get("temperature") == LEARN)

    if TYPE_CHECKING:  # the annotation of nn.Module.__call__ is Any

        def __call__(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
            """Compute the loss, see `forward`."""

    def forward(self, z1: Tensor, z2: Tensor, **others: Any) -> Tensor:
        """Return the loss of two views.

        Args:
            z1: projections of the first view, `[N, D]`.
            z2: projections of the second view, `[N, D]`.
            **others: tensors such as `queue` or `weight`, and arguments that override the fixed ones in this call.

        Returns:
            A scalar, or `[A]` with `reduction="none"`.
        """
        loss: Any = losses[self.name]
        arguments = self.arguments | others
        if changed := others.keys() - losses.arguments(self.name).tensors:  # settings of this call are checked here
            if not self.learns:
                return loss(z1, z2, **arguments)
            module = self.with_settings(**{key: others.pop(key) for key in changed})
            return module(z1, z2, **others)
        if self.learns:
            with torch.no_grad():  # after the optimiser's step, as in CLIP; a clamped value would have no gradient
                self.log_scale.clamp_(max=-math.log(LEAST_LEARNED))
            arguments["temperature"] = (-self.log_scale).exp()
        if not hasattr(loss, "formula"):
            return loss.__wrapped__(z1, z2, **arguments)
        # The steps of the function `loss`, inlined so that a debugger steps from here into the formula.
        pairs, own, given = loss.compare(z1, z2, **arguments)
        with torch.autocast(z1.device.type, enabled=False):
            return total(loss.formula(pairs, **own), pairs, given)

    def with_settings(self, **settings: Any) -> Loss:
        """Return a copy with these settings, checked here, and the same learned temperature."""
        changed, valid = copy.copy(self), Loss(self.name, **self.arguments | settings)
        changed.arguments, changed._parameters = valid.arguments, valid._parameters | self._parameters
        return changed

    def accepts(self, argument: str) -> bool:
        """Return whether the loss takes `argument`, a setting or a tensor (`queue`, `weight`, `labels`)."""
        known = losses.arguments(self.name)
        return argument in known.defaults or argument in known.tensors

    def setting(self, argument: str, otherwise: Any = None) -> Any:
        """Return the value of `argument`: the given value or the default; `otherwise` if the loss does not take it.

        A learned temperature is a scalar tensor without gradient.
        """
        if argument == "temperature" and self.learns:
            return (-self.log_scale.detach()).exp()
        return self.arguments.get(argument, losses.arguments(self.name).defaults.get(argument, otherwise))

    def extra_repr(self) -> str:
        """Return the name and the arguments of the loss, for `repr`."""
        return ", ".join([self.name, *(f"{key}={value!r}" for key, value in self.arguments.items())])
